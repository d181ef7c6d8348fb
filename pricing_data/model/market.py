"""Defines markets, the rules they bill by, and the history of their prices.

A decision receives ``history.as_of(now)`` and nothing else. The history is an append-only column store per
market; ``as_of`` and ``with_step`` give cheap views of it, never copies of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pricing_data.model.units import HOUR_S, Instant, UsdPerHour

Times = npt.NDArray[np.int64]
Prices = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, order=True)
class Market:
    """Names where one price holds: a zone's capacity of one instance type."""

    cloud: str
    region: str
    zone: str
    instance_type: str

    def __str__(self) -> str:
        return f"{self.instance_type}@{self.zone}"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """Describes what one instance offers. ``vcpus`` is the papers' nu unless a job measured better."""

    cloud: str
    name: str
    vcpus: int
    memory_gib: float
    gpus: int = 0


class Refund(StrEnum):
    """Says what the provider gives back when *it* ends an instance."""

    NOTHING = "nothing"
    EVICTED_HOUR = "evicted hour"
    """The billing hour that contains the end is free (AWS until November 2017)."""
    FIRST_HOUR = "first hour"
    """Nothing is charged when the end falls within the first hour (AWS today)."""
    FIRST_MINUTE = "first minute"
    """Nothing is charged when the end falls within the first minute (GCP)."""

    @property
    def free_until_s(self) -> int:
        """Returns the age in seconds before which an eviction leaves nothing to pay; 0 if there is none."""
        return {Refund.FIRST_HOUR: HOUR_S, Refund.FIRST_MINUTE: 60}.get(self, 0)


class ChargedPrice(StrEnum):
    """Says which price an instance is charged."""

    MARKET = "market price"
    """The price in force, whatever was bid."""
    BID = "bid"
    """The bid, whatever the price: the market of TierML's section 4.7, which no cloud has run."""


@dataclass(frozen=True, slots=True)
class MarketRules:
    """Describes how a market bills and evicts: data, so that no decision asks which cloud it is on.

    Raises ValueError for rules that ``billing.settle`` could not follow.
    """

    name: str
    quantum_s: int
    """Billing step: 3600 under hourly billing at the price of the hour's start, else 1."""
    minimum_s: int
    """Seconds billed at least, where seconds are billed; a started hour is whole anyway."""
    refund: Refund
    notice_s: int
    """Seconds from the warning to the end of the instance."""
    cleared_by_bid: bool
    """Whether a price above the bid evicts. Elsewhere only an optional maximum price does."""
    max_lifetime_s: int | None = None
    """Age at which the provider ends every instance, as it ends those it evicts; None: never."""
    charge: ChargedPrice = ChargedPrice.MARKET
    source: str = ""
    """Where the rule is documented, or what in it could not be confirmed."""

    def __post_init__(self) -> None:
        if self.quantum_s not in (1, HOUR_S):
            raise ValueError(f"{self.name}: quantum_s is 1 or {HOUR_S} seconds, not {self.quantum_s}")
        if self.refund is Refund.EVICTED_HOUR and self.quantum_s != HOUR_S:
            raise ValueError(f"{self.name}: free evicted hours need hourly billing: set quantum_s={HOUR_S}")


@dataclass(frozen=True, slots=True)
class Series:
    """Holds one market's price steps up to some instant.

    ``prices[i]`` holds from ``times[i]`` until the next. ``times`` is strictly increasing, shape (n,), int64
    seconds; ``prices`` is (n,), dollars per hour.
    """

    times: Times
    prices: Prices

    def __len__(self) -> int:
        return len(self.times)

    def price_at(self, moment: Instant) -> UsdPerHour | None:
        """Returns the price in force at ``moment``; None before the first step."""
        index = int(np.searchsorted(self.times, moment, side="right")) - 1
        return None if index < 0 else UsdPerHour(float(self.prices[index]))


_EMPTY: Final = Series(np.empty(0, np.int64), np.empty(0, np.float64))


class _Column:
    """Buffers one market's rows and grows. Rows are only ever added behind the last one."""

    __slots__ = ("prices", "size", "times")

    def __init__(self, times: Times, prices: Prices) -> None:
        self.size = len(times)
        self.times = times
        self.prices = prices

    def append(self, at: int, price: float) -> None:
        if self.size == len(self.times):
            # Doubling keeps appending cheap on average.
            spare = max(64, self.size)
            self.times = np.concatenate([self.times, np.empty(spare, np.int64)])
            self.prices = np.concatenate([self.prices, np.empty(spare, np.float64)])
        # Views end at their own length, so writing behind it changes none of them.
        self.times[self.size] = at
        self.prices[self.size] = price
        self.size += 1


@dataclass(frozen=True, slots=True)
class _View:
    column: _Column
    length: int


@dataclass(frozen=True, slots=True)
class PriceHistory:
    """Holds price steps of many markets, as they were known at some moment.

    Histories are values: two that were appended to alike read alike, and appending to one never shows in
    another. Where a view is the newest of its column, appending reuses the buffer.
    """

    _views: Mapping[Market, _View] = field(default_factory=dict)

    @classmethod
    def from_series(cls, series: Mapping[Market, Series]) -> Self:
        """Takes over ``series``; raises ValueError where times do not strictly increase."""
        views = {}
        for market, steps in series.items():
            if len(steps.times) != len(steps.prices):
                raise ValueError(f"{market}: {len(steps.times)} times but {len(steps.prices)} prices")
            if len(steps.times) > 1 and not bool(np.all(np.diff(steps.times) > 0)):
                raise ValueError(f"{market}: the times of a series must strictly increase")
            # The caller's arrays become the buffer; the first append copies them into a larger one.
            views[market] = _View(_Column(steps.times, steps.prices), len(steps.times))
        return cls(views)

    @property
    def markets(self) -> tuple[Market, ...]:
        return tuple(sorted(self._views))

    def series(self, market: Market) -> Series:
        """Returns the steps of ``market``, without copying; empty where nothing is known."""
        view = self._views.get(market)
        if view is None:
            return _EMPTY
        return Series(view.column.times[: view.length], view.column.prices[: view.length])

    def price(self, market: Market, at: Instant) -> UsdPerHour | None:
        """Returns the price in force at ``at``; None before the first step."""
        return self.series(market).price_at(at)

    def prices_at(self, markets: Sequence[Market], codes: npt.NDArray[np.int64], moments: Times) -> Prices:
        """Returns the price of ``markets[codes[i]]`` in force at ``moments[i]``.

        NaN before the first step.
        """
        found = np.full(len(codes), np.nan)
        # Short integers: numpy sorts them by radix, in linear time.
        order = np.argsort(codes.astype(np.int16) if len(markets) < 2**15 else codes, kind="stable")
        borders = np.searchsorted(codes[order], np.arange(len(markets) + 1))
        for code, market in enumerate(markets):
            mine = order[borders[code] : borders[code + 1]]
            series = self.series(market)
            if len(mine) and len(series):
                # One search per market instead of one per row.
                index = np.searchsorted(series.times, moments[mine], side="right") - 1
                found[mine] = np.where(index < 0, np.nan, series.prices[index])
        return found

    def as_of(self, now: Instant) -> PriceHistory:
        """Returns what was known at ``now``: every step with time <= now."""
        views = {}
        for market, view in self._views.items():
            length = int(np.searchsorted(view.column.times[: view.length], now, side="right"))
            views[market] = _View(view.column, length)
        return PriceHistory(views)

    def with_step(self, market: Market, at: Instant, price: UsdPerHour) -> PriceHistory:
        """Adds one step. Raises ValueError if it is no later than the last one: history is append-only."""
        view = self._views.get(market)
        if view is None:
            column = _Column(np.empty(0, np.int64), np.empty(0, np.float64))
        else:
            column = view.column
            # Steps that could be inserted later would change what an earlier ``as_of`` had shown.
            if view.length and at <= int(column.times[view.length - 1]):
                last = int(column.times[view.length - 1])
                raise ValueError(f"{market}: a step at {at} is not after the last one at {last}")
            if view.length < column.size:  # rows of another history follow: branch off
                column = _Column(column.times[: view.length].copy(), column.prices[: view.length].copy())
        column.append(at, price)
        return PriceHistory({**self._views, market: _View(column, column.size)})

    def select(self, markets: Iterable[Market]) -> PriceHistory:
        """Restricts the history to ``markets``; those without history are left out."""
        return PriceHistory({market: self._views[market] for market in markets if market in self._views})
