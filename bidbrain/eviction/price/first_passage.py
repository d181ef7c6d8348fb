"""Finds when a price that moves in steps first rises by more than delta.

    p_i, t_i    price and begin of step i; it ends at t_{i+1}, the last one at ``now``
    c_i         crossing: begin of the first later step with p_j > p_i + delta; infinite if none
    T(s)        c_i - s, the time to the crossing from a start s in step i

Within a step T falls linearly in s, so every answer is an exact sum of linear pieces. Times are whole seconds
after the first step, which doubles hold exactly. Knows no markets, bids or machines.
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
"""Dollars per hour below which a price difference is rounding error: quotes have six digits at most.

With it a price that equals the bid does not evict.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PriceSteps:
    """Holds a price series up to ``now``, without rows that repeat the price."""

    begins_s: Floats
    """(n,), increasing from 0."""
    ends_s: Floats
    """(n,): the next begin; for the last one ``now_s``."""
    prices: Floats
    now_s: float
    _maxima: list[Floats] = field(default_factory=list, repr=False)

    @classmethod
    def from_series(cls, series: Series, now: Instant) -> Self:
        """Takes a series whose rows all lie at or before ``now``; an empty one gives an empty history."""
        if not len(series):
            return cls(np.empty(0), np.empty(0), np.empty(0), 0.0)
        # Feeds repeat prices as heartbeats; without them there are fewer steps and the same answers.
        moved = np.concatenate([[True], series.prices[1:] != series.prices[:-1]])
        begins = (series.times[moved] - series.times[0]).astype(np.float64)
        prices = series.prices[moved]
        now_s = float(now - int(series.times[0]))
        return cls(begins, np.append(begins[1:], now_s), prices, now_s)

    def maxima_table(self, powers: int) -> list[Floats]:
        """Returns a sparse table of ``powers`` levels or more, or of all levels there are.

        ``table[k][i]`` is the highest of the 2**k prices from i on. Rows have shape (n + 1,), minus infinity
        at n; windows that reach past the end are cut there.
        """
        # Levels are added when needed: an hour of prices that seldom change needs few.
        if not self._maxima:
            self._maxima.append(np.append(self.prices, -np.inf))
        widen_table(self._maxima, min(1 << max(powers - 1, 0), len(self.prices)))
        return self._maxima

    def starts_s(self, watched_s: float) -> float:
        """Returns seconds of starts whose next ``watched_s`` seconds lie before now."""
        return max(self.now_s - watched_s, 0.0)

    def crossings_s(self, delta: float) -> Floats:
        """Returns c_i, shape (n,)."""
        powers = len(self.prices).bit_length() + 1
        return self.begin_s(
            self.first_higher(np.arange(len(self.prices)), delta, len(self.maxima_table(powers)))
        )

    def begin_s(self, steps: npt.NDArray[np.integer[Any]]) -> Floats:
        """Returns the begins of ``steps`` (k,), in seconds; infinite for n, which stands for no step."""
        begins_s: Floats = np.append(self.begins_s, np.inf)[steps]
        return begins_s

    def first_higher(self, steps: Indices, delta: float, powers: int) -> Indices:
        """Returns the first later step priced more than ``delta`` above each of ``steps`` (k,); n if none.

        Exact for steps less than 2**``powers`` ahead. Beyond that it returns some step at least as far.
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
        """Returns P(T > horizon) and E[min(T, horizon)] over the starts watched for ``watched_s`` seconds.

        Needs at least one such start, and ``horizon_s`` <= ``watched_s``.
        """
        total = self.steps.starts_s(watched_s)
        return survival_and_uptime(*self._cut_starts(total), horizon_s, total)

    def median(self, watched_s: float) -> float:
        """Returns the seconds by which half of the starts watched for ``watched_s`` are evicted.

        Needs at least half of them evicted within ``watched_s``.
        """
        total = self.steps.starts_s(watched_s)
        begins, ends, crossings = self._cut_starts(total)
        # Starts that no later price evicts never join the evicted.
        met = np.isfinite(crossings)
        # Step i adds evicted starts at rate 1 between the times c_i - e and c_i - t_i; the evicted measure is
        # the integral of the sum of these rates.
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
    """Returns P(T > horizon) and E[min(T, horizon)] over ``total_s`` seconds of starts.

    The starts lie in these steps and in others that no price evicts. In step i the starts in [x, e) are
    evicted within the horizon h: e is the end of the step, or the last start if sooner, and x = max(t_i, c_i
    - h). A start s loses h - T = h - c_i + s of the horizon; the mean over [x, e) is h - c_i + (x + e) / 2.
    """
    # Starts earlier than this outlive the horizon.
    first = np.maximum(begins_s, crossings_s - horizon_s)
    evicted = first < ends_s
    first, ends_s, crossings_s = first[evicted], ends_s[evicted], crossings_s[evicted]
    measure = ends_s - first
    lost = measure * (horizon_s - crossings_s + (first + ends_s) / 2)
    survival = 1.0 - float(measure.sum()) / total_s
    return min(max(survival, 0.0), 1.0), horizon_s - float(lost.sum()) / total_s
