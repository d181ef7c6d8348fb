"""Fetches GCP prices: list prices of VMs, and the history of prices and preemptions.

The catalogue is per region, now and month by month; a type's price is the sum of its SKUs' (``skus.py``).
capacityHistory is per zone and type: 30 days of daily preemption rates and of list prices. Today's rate still
moves, so a day is taken once it is over. GCP keeps no history for N1 with GPUs, custom types and TPUs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pricing_data.errors import FeedBroken, FeedCredentialsRejected, FeedUnavailable, RegionRefused
from pricing_data.feeds.base import FeedPart, Page, PartKind, narrowed_source
from pricing_data.feeds.gcp.answers import History
from pricing_data.feeds.gcp.client import Endpoints, GcpClient, Listing, Month, month_of
from pricing_data.feeds.gcp.rows import (
    CATALOGUE,
    CATALOGUE_MONTHS,
    HISTORY,
    TYPES,
    OfferedTypes,
    catalogue_batches,
    has_price,
    history_batches,
    types_batch,
)
from pricing_data.feeds.gcp.skus import Sku, Timelines, component_timelines
from pricing_data.feeds.quarantine import PartReading
from pricing_data.feeds.retry import PageTokens, Retries
from pricing_data.model.market import Market
from pricing_data.model.units import Instant

_HISTORIES_A_PAGE: Final = 20
_TYPES_NAMED: Final = 5
_TODAY: Final = "billing catalogue"


@dataclass(frozen=True, slots=True)
class GcpSettings:
    """Says which project is asked as whom, and for what. Empty fields: the environment's, or everything."""

    project: str | None = None
    credentials: Any = None
    endpoints: Endpoints | None = None
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    machine_types: tuple[str, ...] = ()
    """Types to fetch; empty: all.

    Capacity history takes one question per zone and type: some tens of thousands for all of GCP.
    """
    past_months: int = 3
    """Number of past months of the catalogue to read besides today's."""
    retries: Retries | None = None


class GcpFeed:
    """Fetches with a project. ``now``: the observation time of what is fetched."""

    name = "gcp"
    cloud = "gcp"

    def __init__(self, now: Callable[[], Instant], settings: GcpSettings | None = None) -> None:
        self._now = now
        self._settings = settings or GcpSettings()
        self._retries = self._settings.retries or Retries()
        self._known: OfferedTypes | None = None
        self._asking = threading.Lock()
        self._ways: dict[str, _RegionProgress] = {}

    def list_parts(self) -> tuple[FeedPart, ...]:
        """Lists today's prices first: a fetch that is cut short then has what changes most."""
        try:
            offered = self._offered_types()
        except RegionRefused as error:
            raise FeedCredentialsRejected(error.where, error.found, error.advice) from error
        month, past, some = month_of(self._now()), [], self._settings.zones or self._settings.machine_types
        for _ in range(self._settings.past_months):
            # Backwards from last month: today's catalogue covers the current one.
            month = month.previous_month
            past.append(FeedPart("gcp", PartKind.PRICES, str(month), narrowed_source(CATALOGUE_MONTHS, some)))
        return (
            FeedPart("gcp", PartKind.PRICES, _TODAY, narrowed_source(CATALOGUE, some)),
            FeedPart("gcp", PartKind.TYPES, "machine types", TYPES),
            *(
                FeedPart("gcp", PartKind.RATES, region, narrowed_source(HISTORY, some))
                for region in offered.regions
            ),
            *past,
        )

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        """Fetches every part whole: GCP has no question for what came after ``since``."""
        observed = self._now()
        if part.source == TYPES:
            yield from self._fetch_types(observed)
        elif part.kind is PartKind.RATES:
            yield from self._fetch_histories(part, observed)
        else:
            yield from self._fetch_catalogue(part, observed)

    def _open_client(self) -> closing[GcpClient]:
        wanted = self._settings
        return closing(GcpClient(wanted.project, wanted.credentials, wanted.endpoints or Endpoints()))

    def _offered_types(self) -> OfferedTypes:
        """Returns which types there are in which zones. Asked once: every part needs it."""
        with self._asking:
            if self._known is None:
                with self._open_client() as client:
                    pages = list(self._list_pages(TYPES, client.list_machine_types))
                rows = [row for page in pages for row in page.rows]
                missing = tuple(what for page in pages for what in page.left_out)
                self._known = self._narrow_offer(
                    OfferedTypes.from_rows(rows, self._settings.regions, missing)
                )
            return self._known

    def _narrow_offer(self, offered: OfferedTypes) -> OfferedTypes:
        zones, types = self._settings.zones, self._settings.machine_types
        found = offered.select(zones, types)
        if offered.shapes and not found.shapes:
            named = ", ".join((*types, *zones))
            raise FeedUnavailable(TYPES, f"nothing there is called {named}", "Check --type and --zone")
        return found

    def _list_pages(self, where: str, ask: Callable[[str], Listing]) -> Iterator[Listing]:
        """Yields all pages of a listing."""
        tokens, token = PageTokens(where), ""
        while True:
            page = self._retries.call_with_retries(partial(ask, token))
            yield page
            if not page.token:
                return
            token = tokens.check_new(page.token)

    def _fetch_types(self, observed: Instant) -> Iterator[Page]:
        offered = self._offered_types()
        count = len(offered.shapes)
        yield Page(count, (types_batch(offered, observed),), f"{count} types")
        if offered.missing:
            found = f"{len(offered.missing)} zones did not answer ({', '.join(offered.missing[:5])})"
            raise FeedBroken(TYPES, found, "Their machine types and prices are missing. Fetch again later")

    def _fetch_catalogue(self, part: FeedPart, observed: Instant) -> Iterator[Page]:
        """Fetches the catalogue. Prices come at the end: the SKUs of one type may be on different pages."""
        month = None if part.name == _TODAY else Month.parse(part.name)
        offered, skus, reading = self._offered_types(), list[Sku](), PartReading(part)
        with self._open_client() as client:
            for page in self._list_pages(CATALOGUE, partial(client.list_skus, month)):
                skus.extend(page.rows)
                reading.add_unread(*page.unread)
                yield Page(page.answered, reading.take_batches(observed))
        # SKUs of one type may be on different pages, so prices need all of them.
        reading.understood, known = len(skus), component_timelines(skus)
        without = _without_price(offered, known)
        left_out = "; ".join(filter(None, (_no_price_for(without), reading.left_out)))
        cursor = f"spot prices of {len(offered.shapes) - len(without)} types"
        yield Page(0, catalogue_batches(part.source, offered, known, month, observed), cursor, left_out)
        reading.check_understood()

    def _fetch_histories(self, part: FeedPart, observed: Instant) -> Iterator[Page]:
        """Fetches a region's histories.

        An unreadable answer keeps no other type back: it is reported last.

        Continues where it was when the part is requested again after a failure: there are too many questions
        to begin anew.
        """
        region = part.name
        # Kept on the feed, not in this call: a retried part calls again and goes on.
        way = self._ways.setdefault(region, _RegionProgress(PartReading(part)))
        pairs = self._offered_types().zone_types(region)
        with self._open_client() as client:
            while way.done < len(pairs):
                some = pairs[way.done : way.done + _HISTORIES_A_PAGE]
                answers = [self._fetch_history(client, way, region, zone, name) for zone, name in some]
                found = [
                    (Market("gcp", region, zone, name), history)
                    for (zone, name), history in zip(some, answers, strict=True)
                    if history is not None
                ]
                done = way.done + len(some)
                rows = way.count_rows(found)
                batches = (
                    *history_batches(part.source, found, observed),
                    *way.reading.take_batches(observed),
                )
                yield Page(rows, batches, f"{done} of {len(pairs)} zones' types", way.left_out)
                # Only after the page was handed out: an interrupted page is asked for again.
                way.done = done
        del self._ways[region]
        way.reading.check_understood()
        if way.broken:
            first, count = way.broken[0], len(way.broken)
            raise FeedBroken(first.where, f"{first.found} ({count} such answers)", first.advice)

    def _fetch_history(
        self, client: GcpClient, way: _RegionProgress, region: str, zone: str, name: str
    ) -> History | None:
        try:
            history = self._retries.call_with_retries(
                partial(client.read_capacity_history, region, zone, name)
            )
        except FeedBroken as error:
            way.broken.append(error)
            return None
        way.without += history is None
        return history


@dataclass(slots=True)
class _RegionProgress:
    """Tracks how far one region's histories have come. Its part is fetched by one thread at a time."""

    reading: PartReading
    done: int = 0
    without: int = 0
    broken: list[FeedBroken] = field(default_factory=list)

    def count_rows(self, found: list[tuple[Market, History]]) -> int:
        """Counts what was understood of these, keeps what was not; returns how many rows they had."""
        for market, history in found:
            self.reading.understood += len(history.prices) + len(history.rates)
            self.reading.add_unread(*(f"{market}: {text}" for text in history.unread))
        return sum(len(each.prices) + len(each.rates) + len(each.unread) for _, each in found)

    @property
    def left_out(self) -> str:
        """Says in words what was left out; "" if nothing."""
        without = f"no history of {self.without} zones' types" if self.without else ""
        return "; ".join(filter(None, (without, self.reading.left_out)))


def _without_price(offered: OfferedTypes, known: Timelines) -> list[str]:
    return sorted(shape.name for shape in offered.shapes.values() if not has_price(shape, offered, known))


def _no_price_for(types: list[str]) -> str:
    """Says in words which types have no price; "" if all have one."""
    if not types:
        return ""
    more = ", ..." if len(types) > _TYPES_NAMED else ""
    return f"no spot price for {len(types)} types ({', '.join(types[:_TYPES_NAMED])}{more})"
