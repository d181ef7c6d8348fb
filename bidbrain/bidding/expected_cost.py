"""Computes expected charges under any market's rules, and cost per work (Harlap 4.3, equations 4.1 and 4.4).

    P     price       dollars per instance-hour
    k     count       instances
    a     age_s       seconds that an instance has run
    t_r   horizon_s   seconds that it will still run: in the paper, the time left in its billing hour
    T                 time to its eviction, from now; survival(t) = P(T >= t)
    beta  1 - survival
    C     charge      expected dollars
    E     cost per work, dollars per core-second

Billing rules are data (``MarketRules``), and ``billed_time.py`` turns them into seconds. Where evicted hours
are free, ``expected_charge`` is equation 4.1. An instance costs ``price`` throughout: no future price enters.

A bill (``pricing_data.model.billing.settle``) has three parts. The seconds before now are spent, whatever is
decided. The seconds from now on cost ``expected_charge``. The provider may give back some of the first part
if it ends the instance: ``expected_refund``. The paper decides by the second part alone, and so does
``cost_per_work``. The three parts add up to the expected bill exactly, which a property test checks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.billed_time import SurviveUntil, billed_seconds
from bidbrain.bidding.expected_work import AllocationColumns, expected_work
from bidbrain.model import ScalingModel
from pricing_data.model.market import MarketRules, Refund
from pricing_data.model.units import HOUR_S, Seconds, Usd, UsdPerHour


class Survival(Protocol):
    """Answers how long one machine may still run."""

    def survival(self, horizon_s: float) -> float:
        """Returns the probability of running ``horizon_s`` longer."""
        ...

    def expected_uptime(self, horizon_s: float) -> Seconds:
        """Returns E[min(time to eviction, ``horizon_s``)]."""
        ...


@dataclass(frozen=True, slots=True)
class _Until:
    """Cuts ``lives`` off at ``left_s`` seconds from now, when the provider ends the machine."""

    lives: Survival
    left_s: float

    def survival(self, horizon_s: float) -> float:
        # The provider ends every machine at this age, so none survives beyond it.
        return self.lives.survival(horizon_s) if horizon_s <= self.left_s else 0.0

    def expected_uptime(self, horizon_s: float) -> Seconds:
        return self.lives.expected_uptime(min(horizon_s, self.left_s))


def expected_charge(
    rules: MarketRules, price: UsdPerHour, age_s: float, horizon_s: float, survival: Survival
) -> Usd:
    """Returns C, the expected dollars for one instance from now to the horizon, net of refunds.

    We release the instance at the horizon, unless the provider ends it before, by an eviction or at its
    maximum lifetime. An hour counts up to the horizon only (the paper's accounting), a minimum charge in
    full. Under the rules aws-2016, up to the end of the hour, this is equation 4.1 for k = 1:

        C = (1 - beta) P t_r

    Args:
        rules: how the market bills.
        price: dollars per hour that the instance pays: its bid, where bids are charged.
        age_s: seconds that it has run.
        horizon_s: seconds ahead.
        survival: how long it may still run.
    """
    lives = _memoize_survival(_within_lifetime(rules, age_s, survival))
    age, horizon = np.asarray(float(age_s)), np.asarray(float(horizon_s))
    billed = billed_seconds(rules, age, horizon, lives(horizon, np.asarray(True))[0], lives)
    return Usd(price * float(billed) / HOUR_S)


def expected_refund(
    rules: MarketRules, price: UsdPerHour, age_s: float, horizon_s: float, survival: Survival
) -> Usd:
    """Returns expected dollars, of those charged before now, that the provider gives back by the horizon.

    This is the expected gain of waiting out a paid hour. ``price``: dollars per hour that was charged.
    """
    lives = _within_lifetime(rules, age_s, survival)
    if rules.refund is Refund.EVICTED_HOUR:
        free_s, paid_s = HOUR_S - age_s % HOUR_S, age_s % HOUR_S
    else:
        free_s, paid_s = max(rules.refund.free_until_s - age_s, 0.0), age_s
    return Usd(price * (1.0 - lives.survival(min(free_s, horizon_s))) * paid_s / HOUR_S)


def _within_lifetime(rules: MarketRules, age_s: float, survival: Survival) -> Survival:
    if rules.max_lifetime_s is None:
        return survival
    return _Until(survival, max(rules.max_lifetime_s - age_s, 0.0))


def _memoize_survival(lives: Survival) -> SurviveUntil:
    """Adapts one machine's ``lives`` to the arrays that ``billed_seconds`` passes."""

    # Billing asks for survival and uptime apart, and for the same horizon more than once.
    @cache
    def look_up(horizon_s: float) -> tuple[float, float]:
        return lives.survival(horizon_s), lives.expected_uptime(horizon_s)

    def answer_array(horizon_s: Floats, _: Flags) -> tuple[Floats, Floats]:
        survival, uptime_s = look_up(float(horizon_s))
        return np.asarray(survival), np.asarray(uptime_s)

    return answer_array


def footprint_charge(footprint: AllocationColumns) -> Floats:
    """Returns C_A in dollars, shape (...): the sum of the allocations' expected charges."""
    charge: Floats = footprint.charge.sum(axis=-1)
    return charge


def cost_per_work(
    footprint: AllocationColumns,
    scaling: ScalingModel,
    *,
    changes: bool,
    work_left: float | Floats = math.inf,
) -> Floats:
    """Returns E_A in dollars per core-second, shape (...) (equation 4.4): C_A / W_A, infinite without work.

    Work beyond ``work_left`` core-seconds does not count: the job has no use for it.
    """
    work = np.minimum(expected_work(footprint, scaling, changes=changes), work_left)
    # The inner divisor 1 only avoids a warning where there is no work.
    works = work > 0
    return np.where(works, footprint_charge(footprint) / np.where(works, work, 1.0), np.inf)
