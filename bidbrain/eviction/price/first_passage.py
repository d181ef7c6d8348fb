"""Finds when a price that moves in steps first exceeds where it stood by more than delta.

    p_i, t_i    price and begin of step i; it ends at t_{i+1}, the last one at ``now``
    c_i         crossing: begin of the first later step with p_j > p_i + delta; infinite if none
    T(s)        c_i - s for a start s in step i

Within a step T falls linearly in s, so every answer is an exact sum of straight pieces. Times are seconds
after the first step, where doubles are exact. Knows no markets, bids or machines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats, Indices
from bidbrain.eviction.price.range_maximum import first_above, widen_table
from pricing_data.model.market import Series
from pricing_data.model.units import Instant

DUST_USD: Final = 1e-9
"""Dollars per hour. Prices are quoted in millionths at the finest, so anything less is rounding error.

A price that equals the bid does not evict.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PriceSteps:
    """Holds a price series up to ``now``, without the steps that changed nothing."""

    begins_s: Floats
    """(n,), increasing from 0."""
    ends_s: Floats
    """(n,): the next begin; for the last one ``now_s``."""
    prices: Floats
    now_s: float
    _maxima: list[Floats] = field(default_factory=list, repr=False)

    @classmethod
    def from_series(cls, series: Series, now: Instant) -> Self:
        """Takes the rows with time <= ``now``; none at all is a history of no length."""
        if not len(series):
            return cls(np.empty(0), np.empty(0), np.empty(0), 0.0)
        # Heartbeats repeat a price; without them there are fewer steps and the same answers.
        moved = np.concatenate([[True], series.prices[1:] != series.prices[:-1]])
        begins = (series.times[moved] - series.times[0]).astype(np.float64)
        prices = series.prices[moved]
        now_s = float(now - int(series.times[0]))
        return cls(begins, np.append(begins[1:], now_s), prices, now_s)

    def maxima_table(self, powers: int) -> list[Floats]:
        """Returns a sparse table: ``table[k][i]`` is the highest of the 2**k prices from i on.

        Rows have shape (n + 1,), minus infinity at n; windows that reach past the end are cut there. Has
        ``powers`` levels or more, or all. Levels are made when first needed: of prices that seldom change,
        the windows of an hour need few.
        """
        if not self._maxima:
            self._maxima.append(np.append(self.prices, -np.inf))
        widen_table(self._maxima, min(1 << max(powers - 1, 0), len(self.prices)))
        return self._maxima

    def starts_s(self, watched_s: float) -> float:
        """Returns the measure of the starts whose next ``watched_s`` seconds lie before now."""
        return max(self.now_s - watched_s, 0.0)

    def crossings_s(self, delta: float) -> Floats:
        """Returns c_i, shape (n,)."""
        powers = len(self.prices).bit_length() + 1
        return self.begin_s(
            self.first_higher(np.arange(len(self.prices)), delta, len(self.maxima_table(powers)))
        )

    def begin_s(self, steps: npt.NDArray[np.integer[Any]]) -> Floats:
        """Returns the begins of ``steps`` (k,); infinite for n, which stands for no step."""
        begins_s: Floats = np.append(self.begins_s, np.inf)[steps]
        return begins_s

    def first_higher(self, steps: Indices, delta: float, powers: int) -> Indices:
        """Returns the first later step priced more than ``delta`` above each of ``steps`` (k,).

        n where there is none. Exact where that is less than 2**``powers`` steps ahead; else some step at
        least as far.
        """
        table = self.maxima_table(powers)
        return first_above(table, steps + 1, self.prices[steps] + delta + DUST_USD, min(powers, len(table)))


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """Holds the times to eviction of all starts, for one delta."""

    steps: PriceSteps
    crossings_s: Floats

    @classmethod
    def from_steps(cls, steps: PriceSteps, delta: float) -> Self:
        return cls(steps, steps.crossings_s(delta))

    def survival_and_uptime(self, horizon_s: float, watched_s: float) -> tuple[float, float]:
        """Returns P(T > horizon) and E[min(T, horizon)] over the starts that were watched for ``watched_s``.

        Needs ``horizon_s`` <= ``watched_s`` and some start.
        """
        total = self.steps.starts_s(watched_s)
        return survival_and_uptime(*self._cut_starts(total), horizon_s, total)

    def median(self, watched_s: float) -> float:
        """Returns the time by which half of the starts watched for ``watched_s`` are evicted.

        Step i adds starts to the evicted at rate 1 while the time goes from c_i - e to c_i - t_i; the evicted
        measure is the running sum of those slopes. Needs half of them evicted within ``watched_s``.
        """
        total = self.steps.starts_s(watched_s)
        begins, ends, crossings = self._cut_starts(total)
        # Starts that no later price evicts never join the evicted.
        met = np.isfinite(crossings)
        knots = np.concatenate([(crossings - ends)[met], (crossings - begins)[met]])
        turns = np.repeat([1.0, -1.0], int(met.sum()))
        order = np.argsort(knots, kind="stable")
        knots, slopes = knots[order], np.cumsum(turns[order])
        evicted = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(knots))])
        return float(np.interp(total / 2, evicted, knots))

    def _cut_starts(self, until_s: float) -> tuple[Floats, Floats, Floats]:
        """Returns begins, ends and crossings of the steps, cut to starts before ``until_s``."""
        size = int(np.searchsorted(self.steps.begins_s, until_s, side="left"))
        ends = np.minimum(self.steps.ends_s[:size], until_s)
        return self.steps.begins_s[:size], ends, self.crossings_s[:size]


def survival_and_uptime(
    begins_s: Floats, ends_s: Floats, crossings_s: Floats, horizon_s: float, total_s: float
) -> tuple[float, float]:
    """Returns P(T > horizon) and E[min(T, horizon)] over starts of measure ``total_s``.

    The starts lie in these and other steps. Of step i the starts in [x, e) are evicted in time, where e is
    the step's end or, if sooner, the last start watched, and x = max(t_i, c_i - h). Each loses h - T = h -
    c_i + s of the horizon, on average over them h - c_i + (x + e) / 2.
    """
    # Starts earlier than this outlive the horizon.
    first = np.maximum(begins_s, crossings_s - horizon_s)
    evicted = first < ends_s
    first, ends_s, crossings_s = first[evicted], ends_s[evicted], crossings_s[evicted]
    measure = ends_s - first
    lost = measure * (horizon_s - crossings_s + (first + ends_s) / 2)
    survival = 1.0 - float(measure.sum()) / total_s
    return min(max(survival, 0.0), 1.0), horizon_s - float(lost.sum()) / total_s
