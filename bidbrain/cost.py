"""Expected charges under any market's rules, and cost per work (Harlap 4.3, equations 4.1 and 4.4).

    P     price       dollars per instance-hour
    k     count       instances
    t_r   horizon_s   time left in the billing hour
    beta  1 - survival
    C     charge      expected dollars
    E     cost per work, dollars per core-second

How a cloud bills is data (``MarketRules``): equation 4.1 is what ``expected_charge`` gives where evicted
hours are free. What was charged before now is sunk and stays out; so does its refund, as in the paper.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import numpy as np

from bidbrain.model import Scaling
from bidbrain.work import Allocations, Floats, expected_work
from pricing_data.market import MarketRules, Refund
from pricing_data.units import HOUR_S, Seconds, Usd, UsdPerHour

_FREE_UNTIL_AGE_S: Final = {
    Refund.NOTHING: 0,
    Refund.EVICTED_HOUR: 0,
    Refund.FIRST_HOUR: HOUR_S,
    Refund.FIRST_MINUTE: 60,
}


class Survival(Protocol):
    """How long a machine may still run, from now."""

    def survival(self, horizon_s: float) -> float:
        """Probability of running ``horizon_s`` longer."""
        ...

    def expected_uptime(self, horizon_s: float) -> Seconds:
        """E[min(time to eviction, ``horizon_s``)]."""
        ...


def expected_charge(
    rules: MarketRules, price: UsdPerHour, age_s: float, horizon_s: float, survival: Survival
) -> Usd:
    """Dollars that one instance is expected to be charged for the next ``horizon_s`` seconds.

    The instance is ``age_s`` old, costs ``price`` throughout, and is ended by us at the horizon (no sooner
    than the minimum charge) unless evicted before. Under aws-2016, up to the end of its hour, this is
    equation 4.1 for k = 1:

        C = (1 - beta) P t_r
    """
    hourly = rules.quantum_s == HOUR_S or rules.refund is Refund.EVICTED_HOUR
    billed = _by_the_hour if hourly else _by_the_second
    return Usd(price * billed(rules, age_s, horizon_s, survival) / HOUR_S)


def _by_the_hour(rules: MarketRules, age_s: float, horizon_s: float, survival: Survival) -> float:
    """Seconds charged. An hour is paid by the machines that enter it or, where evicted hours are free, by
    those that leave it; of the last one only the part up to the horizon counts (the paper's accounting).
    """
    free_until_s = _FREE_UNTIL_AGE_S[rules.refund]
    charged, begins = 0.0, 0.0
    while begins < horizon_s:
        ends = min(horizon_s, begins + HOUR_S - (age_s + begins) % HOUR_S)
        refunded = rules.refund is Refund.EVICTED_HOUR or age_s + ends <= free_until_s
        charged += (ends - begins) * survival.survival(ends if refunded else begins)
        begins = ends
    return charged


def _by_the_second(rules: MarketRules, age_s: float, horizon_s: float, survival: Survival) -> float:
    """Seconds charged: the expected uptime, less that of machines evicted while it is still free.

    Of T, the time to eviction, and c, the time that is still free: E[T; T < c] = E[min(T, c)] - c P(T >= c).
    """
    free_s = min(max(_FREE_UNTIL_AGE_S[rules.refund] - age_s, 0.0), horizon_s)
    refunded = survival.expected_uptime(free_s) - free_s * survival.survival(free_s) if free_s else 0.0
    least_s = 0.0 if rules.refund is not Refund.NOTHING else max(rules.minimum_s - age_s, 0.0)
    topped_up = least_s - survival.expected_uptime(min(least_s, horizon_s)) if least_s else 0.0
    return survival.expected_uptime(horizon_s) - refunded + topped_up


def footprint_charge(footprint: Allocations) -> Floats:
    """C_A in dollars, shape (...): the sum of the allocations' expected charges."""
    charge: Floats = footprint.charge.sum(axis=-1)
    return charge


def cost_per_work(
    footprint: Allocations, scaling: Scaling, *, changes: bool, work_left: float = math.inf
) -> Floats:
    """E_A in dollars per core-second, shape (...) (equation 4.4): C_A / W_A, infinite without work.

    Work beyond ``work_left`` is of no use to the job and does not count.
    """
    work = np.minimum(expected_work(footprint, scaling, changes=changes), work_left)
    works = work > 0
    return np.where(works, footprint_charge(footprint) / np.where(works, work, 1.0), np.inf)
