"""Fetches every part of every feed at once, into the store.

It retries what is worth retrying, skips what is not, and reports for each part how much came of it or why
nothing did. Batches are stored as they come, each whole, so an interrupt or a kill loses at most what was not
handed out yet; the next fetch asks for what is newer than the newest stored row.

Feeds work in threads. Progress is reported in the thread that called. Knows no clouds, and reads no time of
day: only how long things took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from pricing_data.errors import (
    FeedCredentialsRejected,
    FeedError,
    FeedThrottled,
    FeedUnavailable,
    FeedUnreachable,
)
from pricing_data.feeds.base import AnyBatch, Feed, FeedPart, PartKind
from pricing_data.feeds.worker_pool import WorkerPool
from pricing_data.formats.batches import Batch, OnDemandBatch, RateBatch, TypeBatch, UnreadableBatch
from pricing_data.model.units import Instant

_GRACE_S: Final = 5.0
"""Seconds after an interrupt in which a thread may finish what it is storing."""


class StoreResult(Protocol):
    """Counts what became of a batch's rows."""

    @property
    def new(self) -> int: ...
    @property
    def known(self) -> int: ...
    @property
    def quarantined(self) -> int: ...


class Store(Protocol):
    """Names what fetching needs of the price store; ``pricing_data.store.store.PriceStore`` is one."""

    def add_prices(self, batch: Batch) -> StoreResult: ...
    def add_rates(self, batch: RateBatch) -> StoreResult: ...
    def add_types(self, batch: TypeBatch) -> StoreResult: ...
    def add_on_demand(self, batch: OnDemandBatch) -> StoreResult: ...
    def add_unreadable(self, batch: UnreadableBatch) -> StoreResult: ...
    def newest_time(self, source: str, cloud: str, region: str) -> Instant | None: ...


@dataclass(frozen=True, slots=True)
class FetchPatience:
    """Sets how often to ask again after a throttled or broken call, beyond what an SDK does by itself.

    A row stored between two failures resets the count.
    """

    attempts: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0

    def wait_s(self, failures: int, error: FeedError) -> float | None:
        """Returns seconds to wait before asking again; None when that is enough, or no use."""
        if failures >= self.attempts or not isinstance(error, FeedThrottled | FeedUnreachable):
            return None
        if isinstance(error, FeedThrottled) and error.retry_after_s is not None:
            return min(error.retry_after_s, self.longest_wait_s)
        return min(self.first_wait_s * 2.0 ** (failures - 1), self.longest_wait_s)


@dataclass(frozen=True, slots=True)
class PartReport:
    """Reports what came of one part, so far or in the end. Each stored row is new, known or quarantined."""

    part: FeedPart
    rows: int = 0
    """Rows in answers: ahead of what is stored; a row that was requested again counts again."""
    new: int = 0
    known: int = 0
    quarantined: int = 0
    retries: int = 0
    seconds: float = 0.0
    cursor: str = ""
    """Its progress, in the feed's words."""
    left_out: str = ""
    """Rows that are missing although the part is whole, and why, in the feed's words."""
    waiting: FeedError | None = None
    """The error that it waits out right now."""
    failure: FeedError | None = None
    """Why it is incomplete."""
    done: bool = False
    """Everything there is was stored."""


@dataclass(frozen=True, slots=True)
class FetchReport:
    """Reports what became of each part of a fetch, and how long the whole took, in seconds."""

    parts: tuple[PartReport, ...]
    unavailable: tuple[tuple[str, FeedError], ...]
    """Feeds that could not even list their parts, and why."""
    interrupted: bool
    seconds: float

    @property
    def is_complete(self) -> bool:
        return not self.interrupted and not self.unavailable and all(part.done for part in self.parts)


Progress = Callable[[PartReport], None]


def fetch_all(
    feeds: Sequence[Feed],
    store: Store,
    *,
    kinds: Collection[PartKind] = tuple(PartKind),
    patience: FetchPatience | None = None,
    width: int = 16,
    progress: Progress | None = None,
) -> FetchReport:
    """Fetches ``kinds`` of data from all ``feeds``, ``width`` parts at a time.

    A FeedError is reported, never raised. An error of the store, or a bug, stops everything and is raised.
    KeyboardInterrupt stops everything too, and the report says so.
    """
    began = time.monotonic()
    run = _FetchRun(store, patience or FetchPatience())
    reports: dict[FeedPart, PartReport] = {}
    interrupted = False
    try:
        work = _interleave_piles(
            [list(_select_parts(listing, kinds)) for listing in run.list_all_parts(feeds)]
        )
        reports = {part: PartReport(part) for _, part in work}
        for report in run.fetch_parts(work, width):
            reports[report.part] = report
            if progress is not None:
                progress(report)
    except KeyboardInterrupt:
        interrupted = True
        # Batches that are being stored should finish; what they say still counts.
        for said in run.pool.stop_workers(_GRACE_S):
            if isinstance(said, PartReport):
                reports[said.part] = said
    except BaseException:
        # A bug or an error of the store: threads stop at their next page, and the error goes on.
        run.pool.stop.set()
        raise
    refused = tuple((name, error) for name, error in run.unavailable.items())
    return FetchReport(tuple(reports.values()), refused, interrupted, time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _FeedParts:
    """Pairs a feed with the parts that it listed."""

    feed: Feed
    parts: tuple[FeedPart, ...]


def _select_parts(listing: _FeedParts, kinds: Collection[PartKind]) -> Iterator[tuple[Feed, FeedPart]]:
    return ((listing.feed, part) for part in listing.parts if part.kind in kinds)


def _interleave_piles(piles: Iterable[list[tuple[Feed, FeedPart]]]) -> list[tuple[Feed, FeedPart]]:
    """Takes one of each pile in turn, so that no cloud waits until another is done."""
    # Sorted by rank first, then by pile: the first of each, then the second of each.
    ranked = [(rank, turn, task) for turn, pile in enumerate(piles) for rank, task in enumerate(pile)]
    return [task for _, _, task in sorted(ranked, key=lambda entry: entry[:2])]


class _FetchRun:
    """Runs one fetch. Its threads share nothing but the feeds that were given up."""

    def __init__(self, store: Store, patience: FetchPatience) -> None:
        self._store = store
        self._patience = patience
        self._given_up: dict[str, FeedError] = {}
        self.pool: WorkerPool[_FeedParts | PartReport] = WorkerPool()
        self.unavailable: dict[str, FeedError] = {}

    def list_all_parts(self, feeds: Sequence[Feed]) -> list[_FeedParts]:
        """Returns what each feed has, in the order of ``feeds``.

        Those that cannot say are ``unavailable``.
        """
        tasks = [partial(self._list_parts, feed) for feed in feeds]
        said = [one for one in self.pool.run_tasks(tasks, len(feeds)) if isinstance(one, _FeedParts)]
        found = {listing.feed.name: listing for listing in said}
        return [found[feed.name] for feed in feeds if feed.name in found]

    def fetch_parts(self, work: Sequence[tuple[Feed, FeedPart]], width: int) -> Iterator[PartReport]:
        """Yields the reports of all parts as they come; the last one of each part is final."""
        tasks = [partial(self._fetch_part, feed, part) for feed, part in work]
        return (one for one in self.pool.run_tasks(tasks, width) if isinstance(one, PartReport))

    def _list_parts(self, feed: Feed) -> None:
        failures = 0
        while not self.pool.stop.is_set():
            try:
                self.pool.report_back(_FeedParts(feed, feed.list_parts()))
            except FeedError as error:
                failures += 1
                wait_s = self._patience.wait_s(failures, error)
                if wait_s is not None:
                    self.pool.stop.wait(wait_s)
                    continue
                self.unavailable[feed.name] = error
            return

    def _fetch_part(self, feed: Feed, part: FeedPart) -> None:
        """Fetches one part until it is done, or is not worth asking for again."""
        began, failures = time.monotonic(), 0
        report = PartReport(part, failure=self._given_up.get(feed.name))
        while report.failure is None and not report.done and not self.pool.stop.is_set():
            new_before = report.new
            try:
                for report in self._store_pages(feed, report, began):  # noqa: B020 - the report so far, page by page
                    self.pool.report_back(report)
                report = replace(report, done=not self.pool.stop.is_set())
            except FeedError as error:
                # Progress resets the count: a long fetch may fail often and still get on.
                failures = 1 if report.new > new_before else failures + 1
                wait_s = self._patience.wait_s(failures, error)
                if wait_s is None:
                    report = replace(report, failure=error, waiting=None)
                    # No other part of this feed can do better, so they do not even try.
                    if isinstance(error, FeedCredentialsRejected | FeedUnavailable):
                        self._given_up[feed.name] = error
                else:
                    report = replace(report, waiting=error, retries=report.retries + 1)
                    self.pool.report_back(report)
                    self.pool.stop.wait(wait_s)
        self.pool.report_back(replace(report, seconds=time.monotonic() - began))

    def _store_pages(self, feed: Feed, report: PartReport, began: float) -> Iterator[PartReport]:
        """Yields ``report``, grown by one page after the other, from what is stored on.

        Ends early when stopped.
        """
        part = report.part
        # Asked again after each failure: what was stored meanwhile is not fetched twice.
        since = None if part.region is None else self._store.newest_time(part.source, part.cloud, part.region)
        for page in feed.fetch(part, since):
            added = [self._store_batch(batch) for batch in page.batches]
            report = replace(
                report,
                rows=report.rows + page.rows,
                new=report.new + sum(one.new for one in added),
                known=report.known + sum(one.known for one in added),
                quarantined=report.quarantined + sum(one.quarantined for one in added),
                seconds=time.monotonic() - began,
                cursor=page.cursor or report.cursor,
                left_out=page.left_out or report.left_out,
                waiting=None,
            )
            yield report
            if self.pool.stop.is_set():
                return

    def _store_batch(self, batch: AnyBatch) -> StoreResult:
        match batch:
            case Batch():
                return self._store.add_prices(batch)
            case RateBatch():
                return self._store.add_rates(batch)
            case TypeBatch():
                return self._store.add_types(batch)
            case OnDemandBatch():
                return self._store.add_on_demand(batch)
            case UnreadableBatch():
                return self._store.add_unreadable(batch)
