"""Tabulates what TierML's protocol asks of two recorded markets, by minute, once for all starts.

    c    machine class, 0 (small machines) or 1 (large ones)
    l    level: one of the bids that are ever made for a class
    t    minute of the window

Every table is exact to the minute. What a decision at t reads, failure rates included, was known at t: rates
are fitted anew every day to the prices before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.strategies.mttf import HORIZON_S, failure_rate
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import Instant

Floats: TypeAlias = npt.NDArray[np.float64]
Minutes: TypeAlias = npt.NDArray[np.int32]
Levels: TypeAlias = npt.NDArray[np.int16]
Flags: TypeAlias = npt.NDArray[np.bool_]

MINUTE_S = 60
DAY_S = 86400
_REFIT_S = DAY_S
_DELTAS = np.geomspace(0.002, 1.0, 24)
"""Bids above the price, as shares of the on-demand price, at which failure rates are worked out."""
_DUST = 1e-9


@dataclass(frozen=True, slots=True)
class MachineClass:
    """A fleet of one type that does a whole job's work: 64 large machines, or as many cores of small ones."""

    market: Market
    machines: float
    on_demand: float
    """Dollars per instance-hour."""
    bid_step: float | None
    """Bids are the price rounded up to a multiple of it; None: bids are the on-demand price."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Two classes over the minutes [0, T) of a window; arrays are (2, T) or (2, L, T)."""

    begins: Instant
    fleet: Floats
    """(2,): machines of a whole fleet."""
    on_demand: float
    """Dollars per hour for a whole fleet of the large class, on demand."""
    prices: Floats
    """(2, T): dollars per instance-hour."""
    bids: Floats
    """(2, L): dollars per instance-hour."""
    level: Levels
    """(2, T): of a bid made at t; -1 where the price exceeds on-demand and nothing is bid."""
    evicted: Minutes
    """(2, L, T): the first minute from t on in which the price exceeds the bid; T where none does."""
    rates: npt.NDArray[np.float32]
    """(2, L, T): failures per second, 1 / MTTF, as estimated at t."""

    @property
    def minutes(self) -> int:
        return int(self.prices.shape[1])


def tabulate(history: PriceHistory, classes: Sequence[MachineClass], first: Instant, last: Instant) -> Tables:
    """The tables of [first, last); rates rest on all of ``history`` before each refit."""
    grid = np.arange(first, last, MINUTE_S)
    prices = np.stack([_at(history.series(c.market), grid) for c in classes])
    bids, level = _bids(prices, classes)
    shape = (2, bids.shape[1], len(grid))
    evicted, rates = np.empty(shape, np.int32), np.empty(shape, np.float32)
    for c, kind in enumerate(classes):
        fitted = _rates_by_delta(history, kind, first, last)
        for lev, bid in enumerate(bids[c]):
            evicted[c, lev] = first_from(prices[c] > bid + _DUST)
            rates[c, lev] = _interpolated(fitted, (bid - prices[c]) / kind.on_demand)
    return Tables(
        begins=first,
        fleet=np.array([c.machines for c in classes]),
        on_demand=classes[1].machines * classes[1].on_demand,
        prices=prices,
        bids=bids,
        level=level,
        evicted=evicted,
        rates=rates,
    )


def first_from(happens: Flags) -> Minutes:
    """For each t the first index from t on at which ``happens``; its length where none is.

    >>> first_from(np.array([False, True, False])).tolist()
    [1, 1, 3]
    """
    size = len(happens)
    marks = np.where(happens, np.arange(size, dtype=np.int32), np.int32(size))
    result: Minutes = np.minimum.accumulate(marks[::-1])[::-1]
    return result


def _at(series: Series, grid: npt.NDArray[np.int64]) -> Floats:
    return series.prices[np.searchsorted(series.times, grid, side="right") - 1]


def _bids(prices: Floats, classes: Sequence[MachineClass]) -> tuple[Floats, Levels]:
    """All bids that are made for each class, padded with the highest, and which one at each minute."""
    made = []
    for price, kind in zip(prices, classes, strict=True):
        if kind.bid_step is None:
            bid = np.full(len(price), kind.on_demand)
        else:
            bid = np.round(np.ceil(price / kind.bid_step - _DUST) * kind.bid_step, 6)
        made.append(np.minimum(bid, kind.on_demand))
    distinct = [np.unique(bid) for bid in made]
    width = max(map(len, distinct))
    bids = np.stack([np.append(d, np.full(width - len(d), d[-1])) for d in distinct])
    level = np.stack([np.searchsorted(d, bid) for d, bid in zip(distinct, made, strict=True)]).astype(
        np.int16
    )
    level[prices > np.array([[kind.on_demand] for kind in classes]) + _DUST] = -1
    return bids, level


def _rates_by_delta(
    history: PriceHistory, kind: MachineClass, first: Instant, last: Instant
) -> npt.NDArray[np.float64]:
    """(T, deltas): failures per second at each minute, for bids ``_DELTAS`` above the price."""
    fits = range(first, last, _REFIT_S)
    rows = []
    for now in fits:
        fitted = PriceCrossing(window_s=HORIZON_S).fit(history, Instant(now))
        rows.append([failure_rate(fitted, kind.market, delta * kind.on_demand) for delta in _DELTAS])
    each = _REFIT_S // MINUTE_S
    return np.repeat(np.array(rows), each, axis=0)[: (last - first + MINUTE_S - 1) // MINUTE_S]


def _interpolated(by_delta: Floats, delta: Floats) -> Floats:
    """The rate at each minute's delta, linear in the logarithm of the delta between those tabulated."""
    place = np.interp(np.log(np.maximum(delta, _DELTAS[0])), np.log(_DELTAS), np.arange(len(_DELTAS)))
    below = np.minimum(place.astype(np.int64), len(_DELTAS) - 2)
    at = np.arange(len(delta))
    low, high = by_delta[at, below], by_delta[at, below + 1]
    result: Floats = low + (high - low) * (place - below)
    return result
