"""Computes beta for every bid delta at once, exactly, at the speed of a few passes over the prices.

    [t_i, t_{i+1})   step i, at price p_i; a start s in it bids p_i + delta
    j(s)             first step that begins after s + h: the window of s holds the steps i + 1 .. j(s) - 1
    M(s)             highest price in the window, less p_i; s is evicted within h when M(s) > delta
    b(s)             how many deltas lie below M(s): the start's bin

Within step i the window only moves forward past t_{i+1}, so M and b never fall along a step. Where b is the
same for the first and the last start of a step, the whole step falls into that bin: two window maxima decide
it. In the few other steps M rises where t_j - h passes, and each piece between two such moments has one bin.
The measure of the bins gives beta for every delta, without sampling. Knows no bids and no machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from bidbrain.arrays import Floats, Indices
from bidbrain.eviction.price.first_passage import DUST_USD
from pricing_data.model.market import Series
from pricing_data.model.units import Instant

_BLOCK: Final = 1 << 15
"""Steps in a block: its arrays, of some hundred kilobytes each, fit a core's cache."""


def beta_table(
    series: Series, now: Instant, deltas: Sequence[float], horizon_s: int, watched_s: int | None = None
) -> Floats:
    """Returns beta of ``horizon_s`` seconds for each of ``deltas``, shape (deltas,).

    Averages over the starts whose next ``watched_s`` seconds lie before ``now``; 1 where there is none.
    Equals ``PriceCrossing``, which answers one delta at a time, and more than beta.

    Args:
        series: prices of one market.
        now: later rows are ignored.
        deltas: bid deltas in dollars per hour, increasing, none negative.
        horizon_s: seconds.
        watched_s: seconds, at least the horizon; None: the horizon.

    Raises ValueError where an argument breaks these conditions.
    """
    levels = np.asarray(deltas, np.float64)
    if not len(levels) or levels[0] < 0 or not bool(np.all(np.diff(levels) > 0)):
        raise ValueError("deltas must be at least one number, increasing, none negative")
    watched = horizon_s if watched_s is None else watched_s
    if not 0 < horizon_s <= watched:
        raise ValueError(
            f"a horizon of {horizon_s} s needs starts watched for as long or longer, not {watched} s"
        )
    # Starts after this moment were not watched for the whole horizon.
    until = int(now) - watched
    size = int(np.searchsorted(series.times, until, side="left"))
    if size == 0:
        return np.ones(len(levels))
    # A price that equals the bid does not evict.
    levels = levels + DUST_USD
    measure = np.zeros(len(levels) + 1)
    for begin in range(0, size, _BLOCK):
        block = _Block.cut_steps(series, begin, min(begin + _BLOCK, size), until, horizon_s)
        measure += block.measure_bins(levels)
    # A start in bin b is evicted at the b lowest deltas, so delta d collects the bins above it.
    evicted = measure[::-1].cumsum()[::-1][1:]
    return np.asarray(evicted / float(until - int(series.times[0])))


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Holds n steps to start in, and all steps that their windows reach, m >= n in all."""

    times: Indices
    """(m,): instants; the steps to start in come first."""
    prices: Floats
    """(m,)."""
    borders: Indices
    """(n + 1,): begins of the steps to start in, and the end of the last."""
    reach: Indices
    """(n + 1,): j at ``borders``, as a position in ``times``."""
    horizon_s: int

    @classmethod
    def cut_steps(cls, series: Series, begin: int, end: int, until: int, horizon_s: int) -> Self:
        """Cuts out steps ``begin`` to ``end``; starts end at ``until``."""
        borders = np.append(series.times[begin:end], min([until, *series.times[end : end + 1].tolist()]))
        last = int(np.searchsorted(series.times, int(borders[-1]) + horizon_s, side="right"))
        times = series.times[begin:last]
        reach = np.searchsorted(times, borders + horizon_s, side="right")
        return cls(times, series.prices[begin:last], borders, reach, horizon_s)

    def measure_bins(self, levels: Floats) -> Floats:
        """Returns seconds of starts in each bin, shape (levels + 1,)."""
        after = np.arange(1, len(self.borders))
        own = self.prices[: len(after)]
        low = _bin_rises(_window_maxima(self.prices, after, self.reach[:-1]) - own, levels)
        high = _bin_rises(_window_maxima(self.prices, after, self.reach[1:]) - own, levels)
        lengths = np.diff(self.borders).astype(np.float64)
        mixed = np.flatnonzero(low != high)
        # These steps are cut into pieces below and must not count twice.
        lengths[mixed] = 0.0
        whole = _sum_by_bin(low, lengths, levels)
        return whole + self._measure_pieces(mixed, low, levels) if len(mixed) else whole

    def _measure_pieces(self, mixed: Indices, low: Indices, levels: Floats) -> Floats:
        """Returns seconds of starts by bin, of the ``mixed`` steps alone.

        Each step is cut into pieces: one from its begin, and one from t_j - h for every step j that enters
        the window.
        """
        size = self.reach[mixed + 1] - self.reach[mixed] + 1
        head = np.cumsum(size) - size
        step = np.repeat(mixed, size)
        entered = np.repeat(self.reach[mixed] - 1, size) + np.arange(len(step)) - np.repeat(head, size)
        begins = self.times[entered] - self.horizon_s
        bins = _bin_rises(self.prices[entered] - self.prices[step], levels)
        begins[head], bins[head] = self.borders[mixed], low[mixed]
        apart = np.repeat(np.arange(len(mixed)), size) * (len(levels) + 1)
        # Bins never fall along a step, so a running maximum gives them. Offsets larger than any bin keep the
        # steps apart, so that one pass serves all.
        bins = np.maximum.accumulate(bins + apart) - apart
        ends = np.append(begins[1:], 0)
        ends[head + size - 1] = self.borders[mixed + 1]
        return _sum_by_bin(bins, (ends - begins).astype(np.float64), levels)


def _bin_rises(rises: Floats, levels: Floats) -> Indices:
    """Returns how many of ``levels`` each rise exceeds."""
    return np.asarray(np.searchsorted(levels, rises, side="left"), np.int64)


def _sum_by_bin(bins: Indices, lengths: Floats, levels: Floats) -> Floats:
    return np.bincount(bins, weights=lengths, minlength=len(levels) + 1).astype(np.float64)


def _window_maxima(prices: Floats, first: Indices, stop: Indices) -> Floats:
    """Returns the highest of ``prices[first:stop]`` for each pair; minus infinity where it is empty."""
    # Two windows of 2^k <= w prices cover one of w: level k of a sparse table. One level is held at a time,
    # because all of them would not fit the cache.
    found = np.full(len(first), -np.inf)
    _, exponents = np.frexp((stop - first).astype(np.float64))
    level, width = prices, 1
    for power in range(1, int(exponents.max()) + 1):
        here = np.flatnonzero(exponents == power)
        found[here] = np.maximum(level[first[here]], level[stop[here] - width])
        if len(level) > width:
            level = np.maximum(level[:-width], level[width:])
        width *= 2
    return found
