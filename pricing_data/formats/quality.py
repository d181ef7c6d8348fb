"""Judges which rows of a price file can be believed, and reports what is wrong with the others.

Pure: arrays in, arrays and findings out. Knows no files, formats or clouds, and repairs nothing: a row is
used as it is or it is quarantined, never altered. The one exception is order: rows that are out of order
within their market are sorted in, and that is a finding too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from pricing_data.model.market import Prices, Series, Times

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

EXAMPLES_KEPT: Final = 5
NO_FIRST: Final = int(np.iinfo(np.int64).max)
NO_LAST: Final = int(np.iinfo(np.int64).min)
ABSURD_USD_HOUR: Final = 1000.0
"""Several times the list price of the dearest instance of any cloud so far."""


class Flaw(StrEnum):
    """Names what was noticed about a row."""

    FIELDS = "wrong number of fields"
    TIME = "unreadable time"
    PRICE = "unreadable price"
    NOT_FINITE = "price is not finite"
    NEGATIVE = "negative price"
    ZERO = "price of zero"
    ABSURD = "absurdly high price"
    ABOVE_CAP = "above what the market allowed"
    SLIP = "hundreds of times its neighbours, as a slip of unit makes it"
    NAME = "unusable market name"
    PREHISTORIC = "time before there were clouds"
    FUTURE = "time after it was observed"
    RATE = "no rate of evictions"
    SIZE = "no size of a machine"
    NOT_UNDERSTOOD = "not what the source promises"
    CONFLICT = "second price for the same moment"
    COUNT = "not a whole number of instances, 0 or more"
    LOST = "lost is neither 0 nor 1"
    BACKWARDS = "ends before it begins"
    OTHER_COUNT = "other number of instances for the same moment"
    UNORDERED = "out of order"
    APPROXIMATE = "approximate time"
    SILENCE = "first row after a long silence"
    UNRECORDED = "first row after a time that nobody recorded"
    RELISTED = "first row after it was not listed"

    @property
    def is_quarantining(self) -> bool:
        """Returns whether such a row is kept out of the series."""
        return self not in _KEPT


_KEPT: Final = (Flaw.UNORDERED, Flaw.APPROXIMATE, Flaw.SILENCE, Flaw.UNRECORDED, Flaw.RELISTED)


@dataclass(frozen=True, slots=True)
class Example:
    line: int
    """Counted from 1; the header is line 1."""
    text: str


@dataclass(frozen=True, slots=True)
class FlawFinding:
    """Reports that ``count`` rows share this flaw; the first few of them are shown."""

    kind: Flaw
    count: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """Holds parsed rows in file order, column by column, all of shape (n,).

    ``codes`` number the markets from 0. ``listed`` is False where the source said that the market had no
    price at that moment; the price of such a row is 0.
    """

    lines: Ints
    codes: Ints
    times: Times
    prices: Prices
    listed: Mask


@dataclass(frozen=True, slots=True)
class MarketSteps:
    """Holds the believed rows of one market: its price steps, and when it was seen to be gone again."""

    series: Series
    delisted: Times


@dataclass(frozen=True, slots=True, eq=False)
class SortedRows:
    """Accounts for all rows: each is used, counted here, or on a line with a quarantining flaw.

    Arrays are by market code, (m,): m is above the highest code.
    """

    steps: Mapping[int, MarketSteps]
    """Keys are market codes."""
    flaws: Mapping[Flaw, Ints]
    """The lines that have each flaw."""
    used: Ints
    heartbeats: Ints
    duplicates: Ints
    unlisted: Ints
    first: Ints
    """Time of the first believed row, in seconds; the highest number for a market without one."""
    last: Ints
    """Time of the last one; the lowest number for a market without one."""


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """Holds a row of an answer, or a line of a file, that could not be understood."""

    reason: Flaw
    text: str
    """The row as it came, after what is wrong with it where ``reason`` alone does not say."""
    line: int = 0
    """Counted from 1; 0 where it is no line of a file."""


def make_finding(kind: Flaw, lines: Iterable[int], text_of: Callable[[int], str]) -> FlawFinding:
    """Counts ``lines`` and quotes the first of them."""
    ordered = sorted(lines)
    return FlawFinding(kind, len(ordered), tuple(Example(n, text_of(n)) for n in ordered[:EXAMPLES_KEPT]))


def sort_rows(rows: ParsedRows, silence_s: int | None = None) -> SortedRows:
    """Quarantines what cannot be believed, orders the rest, and keeps the rows that change a price.

    A market without a row for more than ``silence_s`` gets a finding; None where rows are not due. What
    becomes of a row depends on rows of its own market alone.
    """
    size = int(rows.codes.max(initial=-1)) + 1
    # Bad rows go first: they must not decide what is out of order or a second price.
    flaws, bad = _find_unbelievable(rows)
    rows = _drop_rows(rows, bad)
    by_market = np.argsort(rows.codes.astype(np.int16) if size < 2**15 else rows.codes, kind="stable")
    late = _out_of_order(rows, by_market)
    flaws[Flaw.UNORDERED] = rows.lines[late]
    if late.any():
        by_market = np.lexsort((rows.times, rows.codes))  # stable: the file's order breaks ties
    rows = _take_rows(rows, by_market)
    first_of_moment = _first_of_moment(rows)
    repeated = first_of_moment != np.arange(len(rows.lines))
    same = _same_price(rows, first_of_moment)
    flaws[Flaw.CONFLICT] = rows.lines[repeated & ~same]
    # Repetitions go, whether their price agrees (a duplicate) or not (a conflict).
    kept = _drop_rows(rows, repeated)
    if silence_s is not None:
        flaws[Flaw.SILENCE] = kept.lines[1:][(np.diff(kept.codes) == 0) & (np.diff(kept.times) > silence_s)]
    changed = _price_changes(kept)

    def count_by_market(codes: Ints) -> Ints:
        return np.bincount(codes, minlength=size).astype(np.int64)

    first, last = np.full(size, NO_FIRST, np.int64), np.full(size, NO_LAST, np.int64)
    first[kept.codes[::-1]] = kept.times[::-1]  # rows are ordered by time, and what is written last stays
    last[kept.codes] = kept.times
    return SortedRows(
        steps=_per_market(kept, changed),
        flaws={flaw: lines for flaw, lines in flaws.items() if len(lines)},
        used=count_by_market(kept.codes[changed & kept.listed]),
        heartbeats=count_by_market(kept.codes[~changed & kept.listed]),
        duplicates=count_by_market(rows.codes[repeated & same]),
        unlisted=count_by_market(kept.codes[~kept.listed]),
        first=first,
        last=last,
    )


def _find_unbelievable(rows: ParsedRows) -> tuple[dict[Flaw, Ints], Mask]:
    not_finite = ~np.isfinite(rows.prices)
    # Comparisons with NaN are false, as they should be here, but numpy warns of them.
    with np.errstate(invalid="ignore"):
        negative = rows.prices < 0
        absurd = rows.prices > ABSURD_USD_HOUR
    masks = {
        Flaw.NOT_FINITE: not_finite,
        Flaw.NEGATIVE: negative & ~not_finite,
        # Unlisted rows carry a price of 0 by convention.
        Flaw.ZERO: (rows.prices == 0) & rows.listed,
        Flaw.ABSURD: absurd & ~not_finite,
    }
    bad = np.logical_or.reduce(list(masks.values()))
    return {flaw: rows.lines[mask] for flaw, mask in masks.items()}, bad


def _take_rows(rows: ParsedRows, index: npt.NDArray[np.intp]) -> ParsedRows:
    return ParsedRows(
        lines=rows.lines[index],
        codes=rows.codes[index],
        times=rows.times[index],
        prices=rows.prices[index],
        listed=rows.listed[index],
    )


def _drop_rows(rows: ParsedRows, some: Mask) -> ParsedRows:
    return _take_rows(rows, np.flatnonzero(~some)) if some.any() else rows


def _out_of_order(rows: ParsedRows, by_market: npt.NDArray[np.intp]) -> Mask:
    """Returns rows with an earlier time than some row of their market before them in the file.

    ``by_market``: the rows' positions, by market and then as in the file.
    """
    late = np.zeros(len(rows.times), dtype=np.bool_)
    if len(late) == 0:
        return late
    times, codes = rows.times[by_market], rows.codes[by_market]
    # Lifting each market above all times of the one before makes one running maximum serve them all.
    lifted = times - times.min() + codes * (times.max() - times.min() + 1)
    late[by_market] = lifted < np.maximum.accumulate(lifted)
    return late


def _first_of_moment(rows: ParsedRows) -> Ints:
    """Returns, for each row, the index of the first row of the same market and moment. Rows are ordered."""
    index = np.arange(len(rows.lines))
    repeats = np.zeros(len(index), dtype=np.bool_)
    # A running maximum then carries each first index over its repetitions.
    repeats[1:] = (np.diff(rows.codes) == 0) & (np.diff(rows.times) == 0)
    return np.asarray(np.maximum.accumulate(np.where(repeats, 0, index)), dtype=np.int64)


def _same_price(rows: ParsedRows, other: Ints) -> Mask:
    return np.asarray((rows.prices == rows.prices[other]) & (rows.listed == rows.listed[other]))


def _price_changes(rows: ParsedRows) -> Mask:
    """Returns False for heartbeats: the market's row before says the same."""
    changed = np.ones(len(rows.lines), dtype=np.bool_)
    before = np.maximum(np.arange(len(changed)) - 1, 0)
    # The first row of each market always counts as a change.
    changed[1:] = ((rows.codes != rows.codes[before]) | ~_same_price(rows, before))[1:]
    return changed


def _per_market(rows: ParsedRows, changed: Mask) -> dict[int, MarketSteps]:
    steps: dict[int, MarketSteps] = {}
    rows = _take_rows(rows, np.flatnonzero(changed))
    if len(rows.codes) == 0:
        return steps
    borders = np.flatnonzero(np.diff(rows.codes)) + 1
    for begin, end in zip((0, *borders), (*borders, len(rows.codes)), strict=True):
        times, listed = rows.times[begin:end], rows.listed[begin:end]
        if listed.any():
            series = Series(times[listed], rows.prices[begin:end][listed])
            # Before its first price a market is not gone, only not there yet.
            gone = times[~listed & (times > series.times[0])]
            steps[int(rows.codes[begin])] = MarketSteps(series, gone)
    return steps
