"""Defines what a price feed is: the contract between the clouds' APIs and ``pricing_data.feeds.fetch``.

Knows no SDKs, stores, retries or clocks. A feed lists its parts, turns one part's answers into batches, and
translates its SDK's errors into those of ``pricing_data.errors``, chained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pricing_data.formats.batches import Batch, OnDemandBatch, RateBatch, TypeBatch, UnreadableBatch
from pricing_data.model.units import Instant

AnyBatch = Batch | RateBatch | TypeBatch | OnDemandBatch | UnreadableBatch


class PartKind(StrEnum):
    """Says what kind of data a part has about markets."""

    PRICES = "prices"
    RATES = "eviction rates"
    TYPES = "instance types"
    ON_DEMAND = "on-demand prices"


@dataclass(frozen=True, slots=True)
class FeedPart:
    """Describes what can be fetched, and can fail, on its own: mostly one kind of data of one region."""

    cloud: str
    kind: PartKind
    name: str
    """The name shown to users ("us-east-1"); unique within its feed and kind."""
    source: str
    """The ``source`` of the part's batches, such as "aws DescribeSpotPriceHistory"."""
    region: str | None = None
    """The region whose newest stored row an incremental fetch continues from; None: always fetched whole."""

    def __str__(self) -> str:
        return f"{self.cloud} {self.name} {self.kind}"


@dataclass(frozen=True, slots=True)
class Page:
    """Holds one answer, or what a number of answers add up to.

    ``batches`` are stored before the next page is requested, each all or nothing. ``rows`` counts the rows of
    the answer, for progress: the batches may come later, gathered from many answers.
    """

    rows: int
    batches: tuple[AnyBatch, ...] = ()
    cursor: str = ""
    """The part's progress, in words ("up to 2026-11-02")."""
    left_out: str = ""
    """Rows that the part lacks so far and why, in words ("no price for 3 types (...)"); "" if none."""


def narrowed_source(source: str, *narrowing: object) -> str:
    """Returns the source of prices where only some zones or types are fetched, as ``narrowing`` says.

    It is a source of its own, because a market that it does not mention may still be offered.
    """
    return f"{source} of some" if any(narrowing) else source


class Feed(Protocol):
    """Provides the prices of one cloud.

    Its methods raise FeedError and nothing else; parts are fetched in threads.
    """

    @property
    def name(self) -> str: ...

    @property
    def cloud(self) -> str: ...

    def list_parts(self) -> tuple[FeedPart, ...]:
        """Lists what there is to fetch. May ask the cloud which regions are open to these credentials."""
        ...

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        """Yields all of ``part``, or what changed at or after ``since``, the time of its newest stored row.

        This promise makes a fetch resumable: when a batch is handed out, every row that is older than the
        batch's newest has been handed out before, or is in it. Where a cloud answers newest first, the feed
        asks for one span of time after the other.
        """
        ...
