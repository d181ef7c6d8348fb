"""Expected charges under any market's rules, and cost per work (Harlap 4.3, equations 4.1 and 4.4).

    P     price       dollars per instance-hour
    k     count       instances
    a     age_s       how long an instance has run
    t_r   horizon_s   how long it is to run yet: in the paper, the time left in its billing hour
    T                 time to its eviction, from now; survival(t) = P(T >= t)
    beta  1 - survival
    C     charge      expected dollars
    E     cost per work, dollars per core-second

How a cloud bills is data (``MarketRules``): equation 4.1 is what ``expected_charge`` gives where evicted
hours are free. Refuses to know prices to come: an instance costs ``price`` throughout.

A bill, as ``pricing_data.billing.settle`` draws it up, has three parts: what the seconds before now cost,
which is spent whatever is decided; what the seconds from now on cost (``expected_charge``); and what of
the first is given back if the provider ends the instance (``expected_refund``). The paper decides by the
second alone, and so does ``cost_per_work``. All three add up to the expected bill, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.model import Scaling
from bidbrain.work import Allocations, expected_work
from pricing_data.market import MarketRules, Refund
from pricing_data.units import HOUR_S, Seconds, Usd, UsdPerHour


class Survival(Protocol):
    """How long a machine may still run, from now."""

    def survival(self, horizon_s: float) -> float:
        """Probability of running ``horizon_s`` longer."""
        ...

    def expected_uptime(self, horizon_s: float) -> Seconds:
        """E[min(time to eviction, ``horizon_s``)]."""
        ...


@dataclass(frozen=True, slots=True)
class _Until:
    """``lives``, ended by the provider ``left_s`` from now at the latest."""

    lives: Survival
    left_s: float

    def survival(self, horizon_s: float) -> float:
        return self.lives.survival(horizon_s) if horizon_s <= self.left_s else 0.0

    def expected_uptime(self, horizon_s: float) -> Seconds:
        return self.lives.expected_uptime(min(horizon_s, self.left_s))


def expected_charge(
    rules: MarketRules, price: UsdPerHour, age_s: float, horizon_s: float, survival: Survival
) -> Usd:
    """Dollars that one instance is expected to be charged for the seconds after now, net of refunds.

    The instance is ``age_s`` old and ends at the horizon by our doing, unless the provider ends it before:
    by an eviction, or at the maximum lifetime. ``price`` is what it pays, its bid where bids are paid. Of
    an hour only the part up to the horizon counts (the paper's accounting); a minimum charge counts whole.
    Under aws-2016, up to the end of its hour, this is equation 4.1 for k = 1:

        C = (1 - beta) P t_r
    """
    lives = _within_lifetime(rules, age_s, survival)
    billed = _by_the_hour if rules.quantum_s == HOUR_S else _by_the_second
    return Usd(price * billed(rules, age_s, horizon_s, lives) / HOUR_S)


def expected_refund(
    rules: MarketRules, price: UsdPerHour, age_s: float, horizon_s: float, survival: Survival
) -> Usd:
    """Dollars charged for the seconds before now that are expected to be given back by the horizon.

    What waiting out a paid hour may bring. ``price`` is the one those seconds were charged at.
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


def _by_the_hour(rules: MarketRules, age_s: float, horizon_s: float, lives: Survival) -> float:
    """Seconds charged, of the hours that are begun. What must be lived through for one to be owed depends:
    itself, where evicted hours are free; else its beginning, and what else is free.
    """
    free_s = min(rules.refund.free_until_s - age_s, horizon_s)
    charged = 0.0
    for begins, ends in _hours(age_s, horizon_s):
        needed = ends if rules.refund is Refund.EVICTED_HOUR else max(begins, free_s)
        charged += (ends - begins) * lives.survival(needed)
    return charged


def _hours(age_s: float, horizon_s: float) -> Iterator[tuple[float, float]]:
    """The parts of billing hours between now and the horizon, in seconds from now."""
    begins = 0.0
    while begins < horizon_s:
        ends = min(horizon_s, begins + HOUR_S - (age_s + begins) % HOUR_S)
        yield begins, ends
        begins = ends


def _by_the_second(rules: MarketRules, age_s: float, horizon_s: float, lives: Survival) -> float:
    """Seconds charged: those of all machines, less those of machines evicted while that is still free.

    A machine that ends at t is billed max(t, m), where m is what is left of the minimum charge; with c,
    the time in which an eviction is still free:

        E[max(min(T, h), m)] - E[max(T, m); T < c]
    """
    least_s = max(rules.minimum_s - age_s, 0.0)
    free_s = min(max(rules.refund.free_until_s - age_s, 0.0), horizon_s)

    def billed(until_s: float) -> float:
        """E[max(min(T, until), m)]."""
        above = lives.expected_uptime(until_s) - lives.expected_uptime(min(least_s, until_s))
        return least_s + above

    free_of_charge = billed(free_s) - lives.survival(free_s) * max(free_s, least_s)
    return billed(horizon_s) - (free_of_charge if free_s else 0.0)


def footprint_charge(footprint: Allocations) -> Floats:
    """C_A in dollars, shape (...): the sum of the allocations' expected charges."""
    charge: Floats = footprint.charge.sum(axis=-1)
    return charge


def cost_per_work(
    footprint: Allocations, scaling: Scaling, *, changes: bool, work_left: float | Floats = math.inf
) -> Floats:
    """E_A in dollars per core-second, shape (...) (equation 4.4): C_A / W_A, infinite without work.

    Work beyond ``work_left`` is of no use to the job and does not count.
    """
    work = np.minimum(expected_work(footprint, scaling, changes=changes), work_left)
    works = work > 0
    return np.where(works, footprint_charge(footprint) / np.where(works, work, 1.0), np.inf)
