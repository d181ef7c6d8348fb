"""Turns DescribeSpotPriceHistory into batches of price events, one per span of time, oldest span first.

AWS answers newest first. A batch is therefore handed out only when its whole span is there, so that what is
stored never has a hole behind its newest row. Each answer also holds, for every market, the price that was in
force when the span began; its time lies before the span, and it is kept as the event it is.

A row that is no price row goes to the quarantine as it came, with its span, and keeps no other back. Does not
judge prices that are numbers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from pricing_data.feeds.aws.client import Answer, all_pages
from pricing_data.feeds.base import AnyBatch, FeedPart, Page
from pricing_data.feeds.quarantine import PartReading, reading_a_row
from pricing_data.formats.batches import Batch
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market, Prices, Times
from pricing_data.model.units import HOUR_S, Instant, format_instant, parse_instant

SOURCE: Final = "aws DescribeSpotPriceHistory"
PAGE_ROWS: Final = 1000
PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_DAY_S: Final = 24 * HOUR_S
RETENTION_S: Final = 90 * _DAY_S
"""AWS keeps no older prices."""
SPAN_S: Final = 7 * _DAY_S
"""A busy region has some 100 000 rows a week: an interrupt loses minutes of fetching at most."""
OVERLAP_S: Final = HOUR_S
"""Rows may be published late: this much of what is stored is requested again."""
_SECONDS: Final = len("2016-06-05T08:18:57")
_Name = tuple[str, str]
"""A zone and an instance type."""


def price_pages(
    describe: Callable[..., Answer], part: FeedPart, since: Instant | None, now: Callable[[], Instant]
) -> Iterator[Page]:
    """Yields all of the region ``part`` is named after, from ``since`` to now.

    Without ``since`` it yields all that AWS keeps. Raises FeedBroken at the end where there were rows and
    none of them is a price row.
    """
    until, reading = now(), PartReading(part)
    oldest = until - RETENTION_S
    # Never before what AWS keeps, and never after now, even with a clock that went back.
    begin = oldest if since is None else min(max(since - OVERLAP_S, oldest), until)
    while True:
        end = min(begin + SPAN_S, until)
        yield from _span_pages(describe, _SpanRows(part, reading), Instant(begin), Instant(end), now)
        if end >= until:
            reading.check_understood()
            return
        begin = end


def _span_pages(
    describe: Callable[..., Answer],
    gathered: _SpanRows,
    begin: Instant,
    end: Instant,
    now: Callable[[], Instant],
) -> Iterator[Page]:
    for answer in all_pages(
        f"aws {gathered.region} DescribeSpotPriceHistory",
        describe,
        StartTime=dt.datetime.fromtimestamp(begin, dt.UTC),
        EndTime=dt.datetime.fromtimestamp(end, dt.UTC),
        ProductDescriptions=list(PRODUCTS),
        MaxResults=PAGE_ROWS,
    ):
        yield Page(rows=gathered.add_answer(answer, now()))
    batches: tuple[AnyBatch, ...] = (*gathered.as_batches(), *gathered.reading.take_batches(now()))
    yield Page(0, batches, f"up to {format_instant(end)}", gathered.reading.left_out)


class _SpanRows:
    """Collects the rows of one span, column by column."""

    def __init__(self, part: FeedPart, reading: PartReading) -> None:
        self.region = part.name
        self._source = part.source
        self.reading = reading
        self._codes_of: dict[_Name, int] = {}
        self._codes: list[int] = []
        self._times: list[Times] = []
        self._prices: list[Prices] = []
        self._observed: list[Times] = []

    def add_answer(self, answer: Answer, observed: Instant) -> int:
        """Adds the rows of one answer; returns how many it had."""
        rows = answer.get("SpotPriceHistory") or ()
        try:
            names, times, prices = _parse_columns(rows)
        except (KeyError, ValueError, OverflowError):  # at least one is none: find out which
            # Row by row is slow, so it is done only where a whole page failed.
            sound = [row for row in rows if self.reading.read_row(row, _is_price_row)]
            names, times, prices = _parse_columns(sound)
        self.reading.understood += len(names)
        code_of = self._codes_of
        # A name's code is the order in which it first came.
        self._codes += [code_of.setdefault(name, len(code_of)) for name in names]
        self._times.append(times)
        self._prices.append(prices)
        self._observed.append(np.full(len(names), observed, np.int64))
        return len(rows)

    def as_batches(self) -> tuple[Batch, ...]:
        """Returns all rows as one batch; none where there was no row."""
        if not self._codes:
            return ()
        region = self.region
        return (
            Batch(
                source=self._source,
                semantics=Semantics.EVENT_STREAM,
                markets=tuple(Market("aws", region, zone, name) for zone, name in self._codes_of),
                codes=np.array(self._codes, np.int64),
                times=np.concatenate(self._times),
                prices=np.concatenate(self._prices),
                observed=np.concatenate(self._observed),
            ),
        )


def _parse_columns(rows: Sequence[Answer]) -> tuple[list[_Name], Times, Prices]:
    """Parses ``rows``; raises KeyError, ValueError or OverflowError where one of them is no price row."""
    names = [(row["AvailabilityZone"], row["InstanceType"]) for row in rows]
    times = _parse_times([row["Timestamp"] for row in rows])
    prices = np.array([float(row["SpotPrice"]) for row in rows], np.float64)
    # float("NaN") parses, but NaN means "no longer listed" in a batch.
    if np.isnan(prices).any():
        raise ValueError("its SpotPrice is not a number")
    return names, times, prices


def _is_price_row(row: Answer) -> bool:
    with reading_a_row():
        _parse_columns([row])
    return True


def _parse_times(texts: Sequence[str]) -> Times:
    """Returns whole seconds; AWS writes milliseconds, which are always 0."""
    if all(len(text) > _SECONDS and text[-1] == "Z" for text in texts):
        try:
            # Numpy parses a page of times many times faster than one by one.
            return np.array([text[:_SECONDS] for text in texts], "datetime64[s]").astype(np.int64)
        except ValueError:
            pass  # at least one is written in another way
    return np.array([parse_instant(text) for text in texts], np.int64)
