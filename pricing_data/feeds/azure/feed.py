"""Fetches Azure prices with an account: 90 days of spot prices, eviction-rate bands and VM sizes.

Any login that may read something will do. Resource Graph's spot tables are about Azure, not about a
subscription, so the whole tenant is queried unless subscriptions are named. VM sizes are those of one
subscription, the first that is found unless some are named. Today's prices need no account
(``retail_prices.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from pricing_data.errors import FeedBroken, FeedCredentialsRejected, RegionRefused
from pricing_data.feeds.azure import rows as azure_rows
from pricing_data.feeds.azure.client import AzureClient, GraphPage
from pricing_data.feeds.azure.rows import Size
from pricing_data.feeds.base import AnyBatch, FeedPart, Page, PartKind, narrowed_source
from pricing_data.feeds.quarantine import PartReading
from pricing_data.feeds.retry import PageTokens, Retries
from pricing_data.formats.batches import Batch, Rate, RateBatch, TypeBatch, TypeRow
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, UsdPerHour

HISTORY: Final = "azure Resource Graph price history"
RATES: Final = "azure Resource Graph eviction rates"
SIZES: Final = "azure VM sizes"

_PRICE_TABLE: Final = "microsoft.compute/skuspotpricehistory/ostype/location"
_RATE_TABLE: Final = "microsoft.compute/skuspotevictionrate/location"


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Says who asks, and for what. Empty fields: the environment's login, or everything."""

    subscriptions: tuple[str, ...] = ()
    credentials: Any = None
    endpoint: str | None = None
    policy: Any = None
    """Replaces the SDK's authentication; see ``AzureClient``."""
    regions: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    retries: Retries | None = None


class AzureFeed:
    """Fetches with an account. ``now``: the observation time of what is fetched."""

    name = "azure"
    cloud = "azure"

    def __init__(self, now: Callable[[], Instant], settings: AzureSettings | None = None) -> None:
        self._now = now
        self._settings = settings or AzureSettings()
        self._retries = self._settings.retries or Retries()

    def list_parts(self) -> tuple[FeedPart, ...]:
        subscriptions = self._settings.subscriptions or self._found_subscriptions()
        return (
            FeedPart("azure", PartKind.PRICES, "history", narrowed_source(HISTORY, self._settings.sizes)),
            FeedPart("azure", PartKind.RATES, "all regions", RATES),
            *(FeedPart("azure", PartKind.TYPES, subscription, SIZES) for subscription in subscriptions),
        )

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        """Fetches every part whole: 90 days of a market are one row, old and new prices together."""
        observed = self._now()
        if part.source == SIZES:
            yield from self._fetch_sizes(part, observed)
        elif part.source == RATES:
            yield from self._fetch_rates(part, observed)
        else:
            yield from self._fetch_prices(part, observed)

    def _open_client(self) -> closing[AzureClient]:
        wanted = self._settings
        return closing(AzureClient(wanted.credentials, wanted.endpoint, wanted.policy))

    def _found_subscriptions(self) -> tuple[str, ...]:
        where = "azure subscriptions"
        query = (
            "ResourceContainers | where type =~ 'microsoft.resources/subscriptions'"
            " | project subscriptionId | order by subscriptionId asc | limit 1"
        )
        try:
            pages = list(self._query_pages(where, query))
        except RegionRefused as error:
            raise FeedCredentialsRejected(where, error.found, error.advice) from error
        found = (row.get("subscriptionId") for page in pages for row in page.rows)
        return tuple(name for name in found if isinstance(name, str) and name)

    def _query_pages(self, where: str, query: str) -> Iterator[GraphPage]:
        """Yields all answers to a query; raises FeedBroken at the end where rows are missing."""
        tokens, token, count = PageTokens(where), "", 0
        with self._open_client() as client:
            while True:
                ask = partial(client.query_graph, where, query, self._settings.subscriptions, token)
                page = self._retries.call_with_retries(ask)
                count += len(page.rows)
                yield page
                if not page.token:
                    break
                token = tokens.check_new(page.token)
                if page.wait_s:
                    self._retries.pause_for(page.wait_s)
        # After the loop, so that the rows that did come are stored first.
        if page.truncated or count < page.total:
            found = f"{count} rows came of {page.total}"
            raise FeedBroken(where, found, "They are kept; name regions to ask for less at a time")

    def _table_query(self, table: str) -> str:
        query = f"SpotResources | where type =~ '{table}'"
        if self._settings.regions:
            regions = ", ".join(f"'{region}'" for region in self._settings.regions)
            query += f" | where location in~ ({regions})"
        if self._settings.sizes:
            sizes = ", ".join(f"'{size}'" for size in self._settings.sizes)
            query += f" | where sku.name in~ ({sizes})"
        return query

    def _fetch_prices(self, part: FeedPart, observed: Instant) -> Iterator[Page]:
        query = (
            f"{self._table_query(_PRICE_TABLE)} | where properties.osType =~ 'linux'"
            " | project skuName = tostring(sku.name), location, spotPrices = properties.spotPrices"
            " | order by skuName asc, location asc"
        )
        reading = PartReading(part)
        for page in self._query_pages(str(part), query):
            steps: dict[Market, list[tuple[Instant, UsdPerHour]]] = {}
            for row in page.rows:
                found = reading.read_row(row, azure_rows.parse_price_history)
                if found is not None:
                    market, prices, unread = found
                    steps.setdefault(market, []).extend(prices)
                    reading.understood += len(prices)
                    reading.add_unread(*unread)
            batches: tuple[AnyBatch, ...] = (
                *_price_batch(part.source, steps, observed),
                *reading.take_batches(observed),
            )
            yield Page(len(page.rows), batches, f"{reading.understood} prices", reading.left_out)
        reading.check_understood()

    def _fetch_rates(self, part: FeedPart, observed: Instant) -> Iterator[Page]:
        query = (
            f"{self._table_query(_RATE_TABLE)} | project skuName = tostring(sku.name), location,"
            " spotEvictionRate = tostring(properties.evictionRate) | order by skuName asc, location asc"
        )
        reading = PartReading(part)
        for page in self._query_pages(str(part), query):
            found = (
                reading.read_row(row, partial(azure_rows.parse_eviction_rate, now=observed))
                for row in page.rows
            )
            rates: tuple[Rate, ...] = tuple(rate for rate in found if rate is not None)
            reading.understood += len(rates)
            stored = (RateBatch(RATES, rates),) if rates else ()
            batches: tuple[AnyBatch, ...] = (*stored, *reading.take_batches(observed))
            yield Page(len(page.rows), batches, f"{reading.understood} rates", reading.left_out)
        reading.check_understood()

    def _fetch_sizes(self, part: FeedPart, observed: Instant) -> Iterator[Page]:
        reading, found = PartReading(part), dict[str, TypeRow]()
        with self._open_client() as client:
            for region in self._settings.regions or (None,):
                for sizes, listed in self._size_pages(client, part, region):
                    rows = (reading.read_row(size, azure_rows.parse_size) for size in sizes)
                    found.update({row.instance_type.name: row for row in rows if row is not None})
                    yield Page(listed, reading.take_batches(observed))
        reading.understood = len(found)
        batches = (TypeBatch(SIZES, tuple(found.values()), observed),) if found else ()
        yield Page(0, batches, f"{len(found)} sizes", reading.left_out)
        reading.check_understood()

    def _size_pages(
        self, client: AzureClient, part: FeedPart, region: str | None
    ) -> Iterator[tuple[list[Size], int]]:
        """Yields all pages of one region's sizes, and how many SKUs of all kinds each had."""
        links, link = PageTokens(str(part)), ""
        while True:
            sizes, listed, link = self._retries.call_with_retries(
                partial(client.list_sizes, part.name, region, link)
            )
            yield sizes, listed
            if not link:
                return
            # Raises if the listing goes in circles.
            links.check_new(link)


def _price_batch(
    source: str, steps: dict[Market, list[tuple[Instant, UsdPerHour]]], observed: Instant
) -> tuple[Batch, ...]:
    rows = [(code, at, price) for code, listed in enumerate(steps.values()) for at, price in listed]
    if not rows:
        return ()
    codes, times, prices = zip(*rows, strict=True)
    return (
        Batch(
            source,
            Semantics.EVENT_STREAM,
            tuple(steps),
            np.array(codes, np.int64),
            np.array(times, np.int64),
            np.array(prices, np.float64),
            np.full(len(rows), observed, np.int64),
        ),
    )
