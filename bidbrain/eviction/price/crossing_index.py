"""Indexes price crossings of one market, once for all horizons up to a day and all nows of a replay.

    h        horizon
    r        reach: the next of a few horizons that is not below h
    total    measure of the starts known at a now: those that were watched for h or longer before it
    M_i      highest price that any start of step i meets within r, less p_i

An answer of ``PriceCrossing`` as of a now averages over starts all of whose windows lie before that now. The
fate of those starts does not depend on what comes later. So it is computed once, for all nows: which steps
can be evicted at all (M_i > delta), and by which step. An answer sums over those of them that begin before
the last start, in the order and by the lines of ``first_passage``: it is the same to the last bit. Says
nothing of the time after a now.
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
"""An hour as it is requested, that and the next as it is renewed, and a day to judge a market by."""

_MOST_STEPS: Final = 500_000
"""Steps cached of one series, at 8 bytes each. The prices of a job's bids are few: most deltas come again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Reach:
    """Says how far windows of one reach go, from any step's starts."""

    highest: Floats
    """(n,): p_i + M_i; minus infinity where a window holds no step."""
    powers: int
    """No window extends over 2**powers steps or more."""

    @classmethod
    def from_steps(cls, steps: PriceSteps, reach_s: float) -> Self:
        count = len(steps.prices)
        first = np.arange(1, count + 1)
        after = np.maximum(np.searchsorted(steps.begins_s, steps.ends_s + reach_s, side="right"), first)
        width = after - first
        level = np.frexp(np.maximum(width, 1))[1] - 1  # two leaps of 2**level cover a window
        levels = int(level.max()) + 1
        maxima = np.stack(steps.maxima_table(levels)[:levels])
        highest = np.maximum(maxima[level, first], maxima[level, np.maximum(after - (1 << level), first)])
        return cls(np.where(width > 0, highest, -np.inf), int(width.max()).bit_length())


@dataclass(frozen=True, slots=True, eq=False)
class _Evicted:
    """Holds the steps, in order, of which some start is evicted within a reach at one delta; arrays (k,)."""

    steps: npt.NDArray[np.int32]
    above: npt.NDArray[np.int32]
    """The step that evicts them."""


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
        """Returns whether ``steps`` are what was known of these at some moment."""
        known = len(steps.prices)
        return (
            np.array_equal(steps.begins_s, self.steps.begins_s[:known])
            and np.array_equal(steps.prices, self.steps.prices[:known])
            # The whole series may only add steps after the moment up to which the other is known.
            and bool((self.steps.begins_s[known:] > steps.now_s).all())
        )

    def survival_and_uptime(
        self, delta: float, horizon_s: float, total_s: float
    ) -> tuple[float, float] | None:
        """Returns P(T > horizon) and E[min(T, horizon)] over the first ``total_s`` seconds of starts.

        There must be some. None for horizons that are too long to be asked about often.
        """
        # A window up to a longer reach finds the same crossing, or one beyond the horizon that does not
        # count.
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
        """Returns the evicted steps, cached as far as there is room."""
        if (delta, reach_s) not in self._evicted:
            if sum(len(known.steps) for known in self._evicted.values()) > _MOST_STEPS:
                # Dropping everything is simpler than a priority, and most deltas come again soon.
                self._evicted.clear()
            self._evicted[delta, reach_s] = self._find_evicted(delta, reach_s)
        return self._evicted[delta, reach_s]

    def _find_evicted(self, delta: float, reach_s: int) -> _Evicted:
        prices = self.steps.prices
        if prices.max() <= prices.min() + delta:  # nothing exceeds a bid so high: spare the tables of maxima
            return _Evicted(np.empty(0, np.int32), np.empty(0, np.int32))
        if reach_s not in self._reaches:
            self._reaches[reach_s] = _Reach.from_steps(self.steps, reach_s)
        reach = self._reaches[reach_s]
        where = np.flatnonzero(reach.highest > self.steps.prices + delta + DUST_USD)
        above = self.steps.first_higher(where, delta, reach.powers)
        return _Evicted(where.astype(np.int32), above.astype(np.int32))
