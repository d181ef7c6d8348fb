"""Computes the seconds that machines should be charged for, in expectation, under any market's rules.

A machine is described by its age and by ``lives``, which maps a horizon to the probability of living that
long and the expected running time until then. Knows no prices; ``expected_cost.py`` and ``footprint.py``
multiply by them. A property test compares this with the mean of many bills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from pricing_data.model.market import MarketRules, Refund
from pricing_data.model.units import HOUR_S

SurviveUntil: TypeAlias = Callable[[Floats, Flags], tuple[Floats, Floats]]
"""Maps horizons in seconds, and a mask of those whose answers are used, to survival and expected uptime."""


def billed_seconds(
    rules: MarketRules, age_s: Floats, horizon_s: Floats, survival: Floats, lives: SurviveUntil
) -> Floats:
    """Returns the expected seconds that each instance is charged for within ``horizon_s``, net of refunds.

    We release an instance at the horizon unless the provider evicts it before. Arrays broadcast.

    Args:
        rules: how the market bills.
        age_s: seconds that each instance has run.
        horizon_s: seconds ahead, within the maximum lifetime unless ``lives`` accounts for that.
        survival: probability of surviving ``horizon_s``.
        lives: survival and expected uptime at other horizons.
    """
    if rules.quantum_s == HOUR_S:
        return _by_the_hour(rules, age_s, horizon_s, survival, lives)
    return _by_the_second(rules, age_s, horizon_s, lives)


def _by_the_hour(
    rules: MarketRules, age_s: Floats, horizon_s: Floats, survival: Floats, lives: SurviveUntil
) -> Floats:
    """Returns the expected seconds of the billing hours that begin within the horizon."""
    free_s = np.minimum(rules.refund.free_until_s - age_s, horizon_s)
    begins, charged = np.zeros_like(horizon_s), np.zeros_like(horizon_s)
    # One pass per billing hour; horizons are a few hours, so there are few.
    while (open_ := begins < horizon_s).any():
        # The first hour is only what is left of the current one: hours count from the machine's start.
        ends = np.minimum(horizon_s, begins + HOUR_S - (age_s + begins) % HOUR_S)
        # An hour is owed once the machine survives to its end, where evicted hours are free; otherwise to its
        # begin, and to the end of any other free time.
        needed = ends if rules.refund is Refund.EVICTED_HOUR else np.maximum(begins, free_s)
        # Survival to the horizon was passed in. Most machines have one hour, which ends there.
        whole = needed == horizon_s
        unknown = open_ & ~whole
        lived = np.where(whole, survival, lives(needed, unknown)[0] if unknown.any() else 0.0)
        charged = charged + (ends - begins) * lived
        begins = ends
    return charged


def _by_the_second(rules: MarketRules, age_s: Floats, horizon_s: Floats, lives: SurviveUntil) -> Floats:
    """Returns the expected seconds that run, less those of evictions that are still free:

        E[max(min(T, h), m)] - E[max(T, m); T < c]

    T is the time to eviction, h the horizon, m what is left of the minimum charge, and c the time left in
    which an eviction is free. A machine that ends at t is billed for max(t, m) seconds.
    """
    least_s = np.maximum(rules.minimum_s - age_s, 0.0)
    free_s = np.minimum(np.maximum(rules.refund.free_until_s - age_s, 0.0), horizon_s)
    everywhere = np.ones(horizon_s.shape, np.bool_)

    def billed_until(until_s: Floats) -> Floats:
        """Returns E[max(min(T, until), m)]."""
        at_least = lives(np.minimum(least_s, until_s), everywhere)[1]
        return least_s + (lives(until_s, everywhere)[1] - at_least)

    free_of_charge = billed_until(free_s) - lives(free_s, everywhere)[0] * np.maximum(free_s, least_s)
    return billed_until(horizon_s) - np.where(free_s > 0, free_of_charge, 0.0)
