"""Indexes price crossings of one market, once for all horizons up to a day and all moments of a replay.

    h        horizon, seconds
    r        reach: the smallest of a few fixed horizons that is at least h
    total    measure of the starts known at a moment: those watched for h or longer before it
    M_i      highest price that any start of step i meets within r, less p_i

As of a moment, ``PriceCrossing`` averages over starts whose windows lie before it, so later prices cannot
change their outcome. The index therefore computes once, for all moments, which steps can be evicted at all
(M_i > delta), and by which step. An answer sums over those that begin before the last start, in the order and
by the code of ``first_passage``, so that it is the same to the last bit. No answer uses a price after its
moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats
from bidbrain.eviction.price.first_passage import DUST_USD, PriceSteps, survival_and_uptime
from pricing_data.model.market import Series
from pricing_data.model.units import HOUR_S, Instant

_REACHES_S: Final = (HOUR_S, 2 * HOUR_S, 24 * HOUR_S)
"""An hour for requests, the rest of an hour and the next for renewals, and a day to compare markets."""

_MOST_STEPS: Final = 500_000
"""Most steps to cache of one series, at 8 bytes each."""


@dataclass(frozen=True, slots=True, eq=False)
class _Reach:
    """Holds the window maxima of one reach, for every step's starts."""

    highest: Floats
    """(n,): p_i + M_i; minus infinity where a window holds no step."""
    powers: int
    """Every window spans fewer than 2**powers steps."""

    @classmethod
    def from_steps(cls, steps: PriceSteps, reach_s: float) -> Self:
        count = len(steps.prices)
        first = np.arange(1, count + 1)
        after = np.maximum(np.searchsorted(steps.begins_s, steps.ends_s + reach_s, side="right"), first)
        width = after - first
        # Two windows of 2**level prices, from either end, cover one of any width up to twice that.
        level = np.frexp(np.maximum(width, 1))[1] - 1
        levels = int(level.max()) + 1
        maxima = np.stack(steps.maxima_table(levels)[:levels])
        highest = np.maximum(maxima[level, first], maxima[level, np.maximum(after - (1 << level), first)])
        return cls(np.where(width > 0, highest, -np.inf), int(width.max()).bit_length())


@dataclass(frozen=True, slots=True, eq=False)
class _Evicted:
    """Holds the steps, in order, with a start that is evicted within a reach at one delta; arrays (k,)."""

    steps: npt.NDArray[np.int32]
    above: npt.NDArray[np.int32]
    """The later step that evicts each."""


@dataclass(frozen=True, slots=True, eq=False)
class CrossingIndex:
    """Indexes one market's crossings; see the module. Made by ``from_steps`` or ``from_series``."""

    steps: PriceSteps
    _reaches: dict[int, _Reach] = field(default_factory=dict, repr=False)
    _evicted: dict[tuple[float, int], _Evicted] = field(default_factory=dict, repr=False)

    @classmethod
    def from_steps(cls, steps: PriceSteps) -> Self:
        """Indexes ``steps`` of at least one price. The last one counts as without end."""
        return cls(replace(steps, ends_s=np.append(steps.ends_s[:-1], np.inf)))

    @classmethod
    def from_series(cls, series: Series) -> Self:
        """Indexes a whole series. Raises ValueError for one without a row."""
        if not len(series):
            raise ValueError("a recorded series needs at least one price")
        return cls.from_steps(PriceSteps.from_series(series, Instant(int(series.times[-1]))))

    def begins_with(self, steps: PriceSteps) -> bool:
        """Returns whether ``steps`` are what was known of this series at some moment."""
        known = len(steps.prices)
        return (
            np.array_equal(steps.begins_s, self.steps.begins_s[:known])
            and np.array_equal(steps.prices, self.steps.prices[:known])
            # This series may only add steps after the moment up to which the other is known.
            and bool((self.steps.begins_s[known:] > steps.now_s).all())
        )

    def survival_and_uptime(
        self, delta: float, horizon_s: float, total_s: float
    ) -> tuple[float, float] | None:
        """Returns P(T > horizon) and E[min(T, horizon)] over the first ``total_s`` > 0 seconds of starts.

        None for horizons beyond the longest reach, which are too rare to index.
        """
        # A longer reach finds the same crossing, or one beyond the horizon, which does not count.
        reach_s = next((reach for reach in _REACHES_S if horizon_s <= reach), None)
        if reach_s is None:
            return None
        evicted = self._evicted_steps(delta, reach_s)
        size = int(np.searchsorted(self.steps.begins_s, total_s, side="left"))
        some = int(np.searchsorted(evicted.steps, size, side="left"))
        steps, crossings_s = evicted.steps[:some], self.steps.begin_s(evicted.above[:some])
        ends_s = np.minimum(self.steps.ends_s[steps], total_s)
        return survival_and_uptime(self.steps.begins_s[steps], ends_s, crossings_s, horizon_s, total_s)

    def _evicted_steps(self, delta: float, reach_s: int) -> _Evicted:
        """Returns the evicted steps, from the cache where possible."""
        if (delta, reach_s) not in self._evicted:
            if sum(len(known.steps) for known in self._evicted.values()) > _MOST_STEPS:
                # Dropping everything is simpler than a priority, and the few deltas in use return soon.
                self._evicted.clear()
            self._evicted[delta, reach_s] = self._find_evicted(delta, reach_s)
        return self._evicted[delta, reach_s]

    def _find_evicted(self, delta: float, reach_s: int) -> _Evicted:
        prices = self.steps.prices
        # No price exceeds a bid this high, so the tables of maxima are not needed.
        if prices.max() <= prices.min() + delta:
            return _Evicted(np.empty(0, np.int32), np.empty(0, np.int32))
        if reach_s not in self._reaches:
            self._reaches[reach_s] = _Reach.from_steps(self.steps, reach_s)
        reach = self._reaches[reach_s]
        where = np.flatnonzero(reach.highest > self.steps.prices + delta + DUST_USD)
        above = self.steps.first_higher(where, delta, reach.powers)
        return _Evicted(where.astype(np.int32), above.astype(np.int32))
