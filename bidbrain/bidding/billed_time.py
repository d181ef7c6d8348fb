"""Computes for how many seconds machines are expected to be charged, under any market's rules.

A machine is given by its age and by ``lives``, which returns for any horizon how likely it lives that long
and how long it is expected to run until then. Knows no prices; ``expected_cost.py`` and ``footprint.py`` have
them. A property test holds this to the mean of many bills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from pricing_data.model.market import MarketRules, Refund
from pricing_data.model.units import HOUR_S

SurviveUntil: TypeAlias = Callable[[Floats, Flags], tuple[Floats, Floats]]
"""Maps horizons in seconds, and a mask of those that are needed, to survival and expected uptime there."""


def billed_seconds(
    rules: MarketRules, age_s: Floats, horizon_s: Floats, survival: Floats, lives: SurviveUntil
) -> Floats:
    """Returns the seconds that each instance should be charged for within ``horizon_s``, net of refunds.

    The instances are ``age_s`` old. We end them at the horizon unless the provider ends them before.
    ``horizon_s`` must lie within the maximum lifetime, unless ``lives`` knows of that; ``survival`` is the
    probability of surviving it. Arrays broadcast.
    """
    if rules.quantum_s == HOUR_S:
        return _by_the_hour(rules, age_s, horizon_s, survival, lives)
    return _by_the_second(rules, age_s, horizon_s, lives)


def _by_the_hour(
    rules: MarketRules, age_s: Floats, horizon_s: Floats, survival: Floats, lives: SurviveUntil
) -> Floats:
    """Returns the seconds of the hours that begin within the horizon.

    An hour is owed if the machine survives long enough. How long depends: to its end, where evicted hours are
    free; else to its beginning, and to the end of any other free time. For an hour that ends at the horizon
    the probability is known already, and most machines have only that one.
    """
    free_s = np.minimum(rules.refund.free_until_s - age_s, horizon_s)
    begins, charged = np.zeros_like(horizon_s), np.zeros_like(horizon_s)
    # One pass per billing hour; horizons are a few hours, so there are few.
    while (open_ := begins < horizon_s).any():
        # The first hour is only what is left of the current one: hours count from the machine's start.
        ends = np.minimum(horizon_s, begins + HOUR_S - (age_s + begins) % HOUR_S)
        needed = ends if rules.refund is Refund.EVICTED_HOUR else np.maximum(begins, free_s)
        # Survival to the horizon was passed in, and most machines need no other answer.
        whole = needed == horizon_s
        unknown = open_ & ~whole
        lived = np.where(whole, survival, lives(needed, unknown)[0] if unknown.any() else 0.0)
        charged = charged + (ends - begins) * lived
        begins = ends
    return charged


def _by_the_second(rules: MarketRules, age_s: Floats, horizon_s: Floats, lives: SurviveUntil) -> Floats:
    """Returns the seconds of all machines, less those of machines evicted while that is still free.

    A machine that ends at t is billed max(t, m), where m is what is left of the minimum charge; with c, the
    time in which an eviction is still free:

        E[max(min(T, h), m)] - E[max(T, m); T < c]
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
