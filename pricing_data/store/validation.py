"""Judges which rows of a month are believed, and why the others are not.

Pure, and a function of the *set* of rows: their order and repetitions change nothing. This lets the store
merge batches in any order, twice, or again after a kill. So no rule may look at how rows arrived.

Repairs nothing: a row is believed as it is, or quarantined with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pricing_data.formats.quality import ABSURD_USD_HOUR, Flaw, Ints, Mask
from pricing_data.model.market import Market, Prices, Times
from pricing_data.model.rules import AUCTIONS_ENDED
from pricing_data.model.units import HOUR_S, Instant, UsdPerHour, parse_instant

Caps = Callable[[str, str, str], Sequence[tuple[Instant, UsdPerHour]]]
"""Maps (cloud, region, instance type) to its list prices and since when, ascending."""

EARLIEST: Final = parse_instant("2006-01-01")
LATEST: Final = parse_instant("2200-01-01")
AUCTION_CAP: Final = 10.0
"""Until November 2017 AWS accepted no bid above ten times on-demand, so no price exceeded it."""
SLACK: Final = 1.01
"""List prices are published rounded: a price this close above the cap is at the cap."""
SLIP_FACTOR: Final = 500.0
"""A slip of unit is a thousand; m3.xlarge once cost 365 times its usual price, when bids had no cap."""
_ENOUGH_TO_JUDGE: Final = 3
_AHEAD_S: Final = 24 * HOUR_S
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/:+()-]{0,99}")

FLAWS: Final = tuple(Flaw)
_CODE_OF: Final = {flaw: code for code, flaw in enumerate(FLAWS)}
BELIEVED: Final = -1


class SeriesKey(NamedTuple):
    """Identifies the rows of one source about one market."""

    # A plain tuple of texts: thousands are sorted for every merge, and a dataclass compares far slower.

    cloud: str
    region: str
    zone: str
    instance_type: str
    source: str

    @classmethod
    def from_market(cls, market: Market, source: str) -> SeriesKey:
        return cls(market.cloud, market.region, market.zone, market.instance_type, source)

    @property
    def market(self) -> Market:
        return Market(*self[:4])


@dataclass(frozen=True, slots=True, eq=False)
class RowPool:
    """Holds rows of many series, column by column, shape (n,)."""

    series: tuple[SeriesKey, ...]
    """Sorted; ``codes`` are positions in it."""
    codes: Ints
    times: Times
    prices: Prices
    observed: Times
    polled: Mask
    approximate: Mask

    def __len__(self) -> int:
        return len(self.codes)

    def take_rows(self, index: npt.NDArray[np.intp] | Mask | slice) -> RowPool:
        """Returns the rows at these positions, in this order, of the same series."""
        return replace(
            self,
            codes=self.codes[index],
            times=self.times[index],
            prices=self.prices[index],
            observed=self.observed[index],
            polled=self.polled[index],
            approximate=self.approximate[index],
        )

    def drop_unused_series(self) -> RowPool:
        """Drops the series without rows."""
        used = np.zeros(len(self.series), np.bool_)
        used[self.codes] = True
        # The usual case copies nothing.
        if used.all():
            return self
        series = tuple(self.series[place] for place in np.flatnonzero(used).tolist())
        return replace(self, series=series, codes=(np.cumsum(used) - 1)[self.codes])


@dataclass(frozen=True, slots=True, eq=False)
class JudgedRows:
    """Holds ``pool`` without repetitions, by (series, time, observed, price), and a verdict for each row."""

    pool: RowPool
    verdicts: Ints
    """BELIEVED, or the position of the flaw in ``FLAWS``."""
    copies: Ints
    """For each row that was judged, its position in ``pool``; repetitions share one."""

    @property
    def is_believed(self) -> Mask:
        return np.asarray(self.verdicts == BELIEVED)


def pool_rows(parts: tuple[RowPool, ...]) -> RowPool:
    """Returns all rows of ``parts``, one after the other."""
    names = sorted({name for part in parts for name in part.series})
    place = {name: code for code, name in enumerate(names)}
    codes = [
        np.array([place[name] for name in part.series], np.int64)[part.codes] for part in parts if len(part)
    ]
    parts = tuple(part for part in parts if len(part))
    if not parts:
        nothing, never = np.empty(0, np.int64), np.empty(0, np.bool_)
        return RowPool(tuple(names), nothing, nothing, np.empty(0, np.float64), nothing, never, never)
    return RowPool(
        series=tuple(names),
        codes=np.concatenate(codes),
        times=np.concatenate([part.times for part in parts]),
        prices=np.concatenate([part.prices for part in parts]),
        observed=np.concatenate([part.observed for part in parts]),
        polled=np.concatenate([part.polled for part in parts]),
        approximate=np.concatenate([part.approximate for part in parts]),
    )


def judge_rows(pool: RowPool, caps: Caps) -> JudgedRows:
    """Drops repetitions, keeping the first observation, and judges the other rows."""
    if _in_order(pool):
        copies = np.arange(len(pool))
    else:
        order = np.lexsort(
            (pool.approximate, pool.polled, pool.prices, pool.observed, pool.times, pool.codes)
        )
        # Sorted by series, time, observation: the first of equal rows is the one observed first.
        pool = pool.take_rows(order)
        first = _first_alike(pool)
        kept = first == np.arange(len(pool))
        copies = np.empty(len(pool), np.int64)
        copies[order] = (np.cumsum(kept) - 1)[first]
        pool = pool.take_rows(kept)
    verdicts = _judge_alone(pool, caps)
    _judge_together(pool, verdicts)
    return JudgedRows(pool, verdicts, copies)


def _in_order(pool: RowPool) -> bool:
    """Returns whether rows are sorted by series and time, no moment twice: nearly every new batch is."""
    step = np.diff(pool.codes)
    return bool(np.all((step > 0) | ((step == 0) & (np.diff(pool.times) > 0))))


def _first_alike(pool: RowPool) -> Ints:
    """Returns, for each row of a sorted pool, the first with the same series, time and price."""
    # NaN (no longer listed) differs from itself; as minus infinity it counts as one price.
    prices = np.where(np.isnan(pool.prices), -np.inf, pool.prices)
    order = np.lexsort((np.arange(len(pool)), prices, pool.times, pool.codes))
    codes, times, prices = pool.codes[order], pool.times[order], prices[order]
    new = np.ones(len(pool), np.bool_)
    new[1:] = (np.diff(codes) != 0) | (np.diff(times) != 0) | (prices[1:] != prices[:-1])
    heads = order[np.flatnonzero(new)]
    first = np.empty(len(pool), np.int64)
    first[order] = heads[np.cumsum(new) - 1]
    return first


def _judge_alone(pool: RowPool, caps: Caps) -> Ints:
    """Returns the verdicts that depend on one row alone."""
    prices, times = pool.prices, pool.times
    verdicts = np.full(len(pool), BELIEVED, np.int64)
    strange = {
        part for part in {part for name in pool.series for part in name[:4]} if not is_usable_name(part)
    }
    unusable = np.array([not strange.isdisjoint(name[:4]) for name in pool.series], np.bool_)
    with np.errstate(invalid="ignore"):
        checks: Mapping[Flaw, Mask] = {
            Flaw.NAME: unusable[pool.codes] if unusable.any() else np.zeros(len(pool), np.bool_),
            Flaw.PREHISTORIC: times < EARLIEST,
            Flaw.FUTURE: (times > pool.observed + _AHEAD_S) | (times >= LATEST),
            Flaw.NOT_FINITE: np.isinf(prices),
            Flaw.NEGATIVE: prices < 0,
            Flaw.ZERO: prices == 0,
            Flaw.ABSURD: prices > ABSURD_USD_HOUR,
        }
    for flaw, mask in checks.items():
        # The first flaw that applies stays.
        verdicts[mask & (verdicts == BELIEVED)] = _CODE_OF[flaw]
    for begin, end in _series_runs(pool.codes):
        part = slice(begin, end)
        over = _above_cap(pool.series[pool.codes[begin]], times[part], prices[part], caps)
        if over is not None:
            verdicts[part][over & (verdicts[part] == BELIEVED)] = _CODE_OF[Flaw.ABOVE_CAP]
    return verdicts


def is_usable_name(name: str) -> bool:
    """Returns whether ``name`` can be that of a cloud, region, zone or instance type."""
    return _NAME.fullmatch(name) is not None


def _series_runs(codes: Ints) -> list[tuple[int, int]]:
    """Returns the begin and end of each series among sorted rows."""
    if len(codes) == 0:
        return []
    borders = (np.flatnonzero(np.diff(codes)) + 1).tolist()
    return list(zip([0, *borders], [*borders, len(codes)], strict=True))


def _above_cap(series: SeriesKey, times: Times, prices: Prices, caps: Caps) -> Mask | None:
    """Returns the rows above ten times on-demand during AWS's auctions, or above on-demand since.

    None where there are none. Before the first known list price, nothing is above the cap.
    """
    # Looked up once per series, not once per row.
    known = caps(series.cloud, series.region, series.instance_type)
    if not known:
        return None
    since = np.array([at for at, _ in known], np.int64)
    listed = np.array([price for _, price in known], np.float64)
    place = np.searchsorted(since, times, side="right") - 1
    # Only AWS ever cleared by bid; elsewhere spot prices stay below the list price.
    auction = (times < AUCTIONS_ENDED) & (series.cloud == "aws")
    # The auctions' cap did not follow cuts of the list price: r3.large went from 0.175 to 0.166 in January
    # 2016 and still spiked to 1.75 until August. So the highest list price so far sets it.
    cap = np.where(auction, AUCTION_CAP * np.maximum.accumulate(listed)[place], listed[place]) * SLACK
    with np.errstate(invalid="ignore"):
        over = np.asarray((prices > cap) & (place >= 0))
    return over if over.any() else None


def _judge_together(pool: RowPool, verdicts: Ints) -> None:
    """Marks later observed prices for a moment that has one, then slips of unit, in ``verdicts``."""
    good = np.flatnonzero(verdicts == BELIEVED)
    codes, times = pool.codes[good], pool.times[good]
    # Sorted by observation within a moment, so the first of them is the one that holds.
    again = (np.diff(codes) == 0) & (np.diff(times) == 0)
    verdicts[good[1:][again]] = _CODE_OF[Flaw.CONFLICT]
    good = np.flatnonzero((verdicts == BELIEVED) & ~np.isnan(pool.prices))
    for begin, end in _series_runs(pool.codes[good]):
        prices = pool.prices[good[begin:end]]
        # Nearly every series stops here, without a sort.
        if len(prices) < _ENOUGH_TO_JUDGE or prices.max() < prices.min() * SLIP_FACTOR:
            continue
        # The median: a few slips cannot move it.
        usual = np.sort(prices)[len(prices) // 2]
        slipped = (prices > usual * SLIP_FACTOR) | (prices * SLIP_FACTOR < usual)
        verdicts[good[begin:end][slipped]] = _CODE_OF[Flaw.SLIP]
