"""DescribeSpotPriceHistory: answers -> batches of price events, one per span of time, oldest span first.

AWS answers newest first. A batch is therefore handed out only when its whole span is there, so that what
is stored never has a hole behind its newest row. Each answer also holds, for every market, the price that
was in force when the span began; its time lies before the span, and it is kept as the event it is.

Refuses to judge prices. One that is not a number is handed on as infinity, which no store believes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from pricing_data.batch import Batch
from pricing_data.errors import FeedBroken
from pricing_data.feeds.aws_sdk import Answer, answers
from pricing_data.feeds.base import Page
from pricing_data.layouts import Semantics
from pricing_data.market import Market, Prices, Times
from pricing_data.units import HOUR_S, Instant, format_instant, parse_instant

SOURCE: Final = "aws DescribeSpotPriceHistory"
PAGE_ROWS: Final = 1000
PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_DAY_S: Final = 24 * HOUR_S
KEPT_S: Final = 90 * _DAY_S
"""AWS forgets what is older."""
SPAN_S: Final = 7 * _DAY_S
"""A busy region has some 100 000 rows a week: minutes of fetching at most are lost with an interrupt."""
OVERLAP_S: Final = HOUR_S
"""Rows may be published late: this much of what is stored is asked for again."""
_SECONDS: Final = len("2016-06-05T08:18:57")


def pages(
    describe: Callable[..., Answer], region: str, since: Instant | None, now: Callable[[], Instant]
) -> Iterator[Page]:
    """Everything of ``region`` from ``since`` to now; without ``since``, all that AWS keeps."""
    until = now()
    oldest = until - KEPT_S
    begin = oldest if since is None else min(max(since - OVERLAP_S, oldest), until)
    while True:
        end = min(begin + SPAN_S, until)
        yield from _span(describe, region, Instant(begin), Instant(end), now)
        if end >= until:
            return
        begin = end


def _span(
    describe: Callable[..., Answer], region: str, begin: Instant, end: Instant, now: Callable[[], Instant]
) -> Iterator[Page]:
    gathered = _Gathered(region)
    for answer in answers(
        f"aws {region} DescribeSpotPriceHistory",
        describe,
        StartTime=dt.datetime.fromtimestamp(begin, dt.UTC),
        EndTime=dt.datetime.fromtimestamp(end, dt.UTC),
        ProductDescriptions=list(PRODUCTS),
        MaxResults=PAGE_ROWS,
    ):
        yield Page(rows=gathered.take(answer, now()))
    yield Page(rows=0, batches=gathered.batches(), cursor=f"up to {format_instant(end)}")


class _Gathered:
    """The rows of one span, column by column."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._codes_of: dict[tuple[str, str], int] = {}
        self._codes: list[int] = []
        self._times: list[Times] = []
        self._prices: list[Prices] = []
        self._observed: list[Times] = []

    def take(self, answer: Answer, observed: Instant) -> int:
        """Add the rows of one answer; returns how many. Raises FeedBroken where they are not price rows."""
        rows = answer.get("SpotPriceHistory") or ()
        code_of = self._codes_of
        try:
            keys = [(row["AvailabilityZone"], row["InstanceType"]) for row in rows]
            times = _times([row["Timestamp"] for row in rows])
            prices = _prices([row["SpotPrice"] for row in rows])
        except (KeyError, ValueError, OverflowError) as error:
            raise self._broken(rows, error) from error
        self._codes += [code_of.setdefault(key, len(code_of)) for key in keys]
        self._times.append(times)
        self._prices.append(prices)
        self._observed.append(np.full(len(rows), observed, np.int64))
        return len(rows)

    def _broken(self, rows: Sequence[Any], error: Exception) -> FeedBroken:
        what = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        where = f"aws {self._region} DescribeSpotPriceHistory"
        found = f"an answer of {len(rows)} rows has one that is no price row: {what}"
        return FeedBroken(where, found, "Nothing of this span was stored; fetch again later")

    def batches(self) -> tuple[Batch, ...]:
        """All rows as one batch; none where there was no row."""
        if not self._codes:
            return ()
        region = self._region
        return (
            Batch(
                source=SOURCE,
                semantics=Semantics.EVENT_STREAM,
                markets=tuple(Market("aws", region, zone, name) for zone, name in self._codes_of),
                codes=np.array(self._codes, np.int64),
                times=np.concatenate(self._times),
                prices=np.concatenate(self._prices),
                observed=np.concatenate(self._observed),
            ),
        )


def _times(texts: Sequence[str]) -> Times:
    """Whole seconds; AWS writes milliseconds and means none."""
    if all(len(text) > _SECONDS and text[-1] == "Z" for text in texts):
        try:
            return np.array([text[:_SECONDS] for text in texts], "datetime64[s]").astype(np.int64)
        except ValueError:
            pass  # at least one is written in another way
    return np.array([parse_instant(text) for text in texts], np.int64)


def _prices(texts: Sequence[str]) -> Prices:
    try:
        prices = np.array(list(map(float, texts)), np.float64)
    except ValueError:
        prices = np.array([_price(text) for text in texts], np.float64)
    return np.where(np.isnan(prices), np.inf, prices)


def _price(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")
