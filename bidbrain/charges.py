"""Expected charges of many machines at once: the arithmetic of ``cost.expected_charge`` in arrays.

A machine is given by its age and by ``lives``, which answers for any horizon how likely it lives that long
and how long it is expected to run until then. A property test holds the two modules together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from pricing_data.market import MarketRules, Refund
from pricing_data.units import HOUR_S

Lives: TypeAlias = Callable[[Floats, Flags], tuple[Floats, Floats]]
"""From horizons in seconds, and where they are asked for, to survival and expected uptime there."""


def billed_seconds(
    rules: MarketRules, age_s: Floats, horizon_s: Floats, survival: Floats, lives: Lives
) -> Floats:
    """Seconds that each instance is expected to be charged for within ``horizon_s``, refunds deducted.

    See ``cost.expected_charge``. ``horizon_s`` must lie within the maximum lifetime, and ``survival`` is the
    probability of living through it; arrays broadcast.
    """
    if rules.quantum_s == HOUR_S:
        return _by_the_hour(rules, age_s, horizon_s, survival, lives)
    return _by_the_second(rules, age_s, horizon_s, lives)


def _by_the_hour(
    rules: MarketRules, age_s: Floats, horizon_s: Floats, survival: Floats, lives: Lives
) -> Floats:
    """Of an hour that ends at the horizon the chance is known already, and most machines have but that."""
    free_s = np.minimum(rules.refund.free_until_s - age_s, horizon_s)
    begins, charged = np.zeros_like(horizon_s), np.zeros_like(horizon_s)
    while (open_ := begins < horizon_s).any():
        ends = np.minimum(horizon_s, begins + HOUR_S - (age_s + begins) % HOUR_S)
        needed = ends if rules.refund is Refund.EVICTED_HOUR else np.maximum(begins, free_s)
        whole = needed == horizon_s
        unknown = open_ & ~whole
        lived = np.where(whole, survival, lives(needed, unknown)[0] if unknown.any() else 0.0)
        charged = charged + (ends - begins) * lived
        begins = ends
    return charged


def _by_the_second(rules: MarketRules, age_s: Floats, horizon_s: Floats, lives: Lives) -> Floats:
    least_s = np.maximum(rules.minimum_s - age_s, 0.0)
    free_s = np.minimum(np.maximum(rules.refund.free_until_s - age_s, 0.0), horizon_s)
    everywhere = np.ones(horizon_s.shape, np.bool_)

    def billed(until_s: Floats) -> Floats:
        """E[max(min(T, until), m)]."""
        at_least = lives(np.minimum(least_s, until_s), everywhere)[1]
        return least_s + (lives(until_s, everywhere)[1] - at_least)

    free_of_charge = billed(free_s) - lives(free_s, everywhere)[0] * np.maximum(free_s, least_s)
    return billed(horizon_s) - np.where(free_s > 0, free_of_charge, 0.0)
