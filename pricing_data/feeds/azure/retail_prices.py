"""Reads Azure's public price list: spot and pay-as-you-go prices of Linux VMs, without an account.

The list has current prices only, so a fetch is a poll: everything was seen at one moment, and is handed out
when the last page has come. Where several meters price one size in one region, the lowest counts, as it does
for buyers.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import numpy as np

from pricing_data.errors import FeedBroken, FeedError, FeedThrottled, FeedUnreachable, RegionRefused
from pricing_data.feeds.azure.rows import RetailMeter, parse_retail
from pricing_data.feeds.base import AnyBatch, FeedPart, Page, PartKind, narrowed_source
from pricing_data.feeds.quarantine import PartReading, short_text
from pricing_data.feeds.retry import PageTokens, Retries
from pricing_data.formats.batches import Batch, ListPrice, OnDemandBatch
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from pricing_data.model.units import Instant

SOURCE: Final = "azure Retail Prices"

_EVERYWHERE: Final = "all regions"
_LINUX_BY_THE_HOUR: Final = "serviceName eq 'Virtual Machines' and priceType eq 'Consumption'"
_TIMEOUT_S: Final = 60.0
_LATER: Final = "Fetch again later"


@dataclass(frozen=True, slots=True)
class RetailSettings:
    endpoint: str = "https://prices.azure.com/api/retail/prices"
    regions: tuple[str, ...] = ()
    """One part for each; all of Azure in one listing where empty."""
    sizes: tuple[str, ...] = ()
    """Sizes to fetch; empty: all."""
    retries: Retries | None = None


class AzureRetailFeed:
    """Fetches without an account. ``now``: the moment of the poll."""

    name = "azure retail"
    cloud = "azure"

    def __init__(self, now: Callable[[], Instant], settings: RetailSettings | None = None) -> None:
        self._now = now
        self._settings = settings or RetailSettings()
        self._retries = self._settings.retries or Retries()

    def list_parts(self) -> tuple[FeedPart, ...]:
        regions = self._settings.regions or (_EVERYWHERE,)
        source = narrowed_source(SOURCE, self._settings.sizes)
        return tuple(
            FeedPart("azure", kind, region, source)
            for kind in (PartKind.PRICES, PartKind.ON_DEMAND)
            for region in regions
        )

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        """Yields all prices in force: the list has no others, so ``since`` changes nothing."""
        observed, best, reading = self._now(), dict[Market, RetailMeter](), PartReading(part)
        for items in self._item_pages(part):
            for item in items:
                found = reading.read_row(item, partial(parse_retail, now=observed))
                if found is not None and found.spot == (part.kind is PartKind.PRICES):
                    # Several meters may price one size in one region; buyers pay the lowest.
                    known = best.setdefault(found.market, found)
                    best[found.market] = found if found.price < known.price else known
            yield Page(len(items), reading.take_batches(observed))
        reading.understood = len(best)
        yield Page(0, _as_batches(part, best, observed), f"{len(best)} sizes' prices", reading.left_out)
        reading.check_understood()

    def _item_pages(self, part: FeedPart) -> Iterator[list[dict[str, Any]]]:
        """Yields the items of every page: of one listing, or of one for each requested size."""
        links = PageTokens(str(part))
        for size in self._settings.sizes or ("",):
            link = self._first_link(part, size)
            while link:
                answer = self._retries.call_with_retries(partial(_get_json, str(part), links.check_new(link)))
                items, link = _parse_page(str(part), answer, self._settings.endpoint)
                yield items

    def _first_link(self, part: FeedPart, size: str) -> str:
        wanted = _LINUX_BY_THE_HOUR
        if part.kind is PartKind.PRICES:
            wanted += " and contains(meterName, 'Spot')"
        if part.name != _EVERYWHERE:
            wanted += f" and armRegionName eq '{part.name}'"
        if size:
            wanted += f" and armSkuName eq '{size}'"
        query = {
            "api-version": "2023-01-01-preview",
            "currencyCode": "USD",
            "meterRegion": "primary",
            "$filter": wanted,
        }
        return f"{self._settings.endpoint}?{urlencode(query)}"


def _as_batches(part: FeedPart, best: dict[Market, RetailMeter], observed: Instant) -> tuple[AnyBatch, ...]:
    found = [best[market] for market in sorted(best)]
    if not found:
        return ()
    if part.kind is PartKind.ON_DEMAND:
        listed = (
            ListPrice("azure", one.market.region, one.market.instance_type, one.price, one.effective)
            for one in found
        )
        return (OnDemandBatch(part.source, tuple(listed), observed),)
    seen = np.full(len(found), observed, np.int64)
    prices = np.array([one.price for one in found], np.float64)
    markets = tuple(one.market for one in found)
    return (Batch(part.source, Semantics.POLLED, markets, np.arange(len(found)), seen, prices, seen),)


def _parse_page(where: str, answer: Any, endpoint: str) -> tuple[list[dict[str, Any]], str]:
    """Returns the items of an answer, and the link to the next ("" at the end)."""
    items = answer.get("Items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise FeedBroken(where, f"an answer without a list of items: {short_text(answer)}", _LATER)
    link = answer.get("NextPageLink") or ""
    # A link to another host must not be followed.
    if not isinstance(link, str) or (link and urlsplit(link).hostname != urlsplit(endpoint).hostname):
        raise FeedBroken(where, f"a next page that is not of the price list: {short_text(link)}", _LATER)
    return items, link


def _get_json(where: str, url: str) -> Any:
    """Returns the JSON behind ``url``."""
    request = urllib.request.Request(url, headers={"Accept": "application/json", "User-Agent": "spotctl"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise _http_error(where, error) from error
    except (OSError, http.client.HTTPException) as error:
        found = f"no whole answer ({type(error).__name__}: {str(error)[:100]})"
        raise FeedUnreachable(where, found, "Check the connection and fetch again") from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FeedBroken(where, f"an answer that is not JSON ({str(error)[:100]})", _LATER) from error


def _http_error(where: str, error: urllib.error.HTTPError) -> FeedError:
    said = f"HTTP {error.code} {error.reason}"
    if error.code == 429:
        asked = error.headers.get("Retry-After", "")
        return FeedThrottled(where, said, _LATER, float(asked) if asked.isdigit() else None)
    if error.code in (401, 403):
        return RegionRefused(where, said, "The list is public: see whether a proxy stands in between")
    if error.code >= 500 or error.code == 408:
        return FeedUnreachable(where, said, _LATER)
    return FeedBroken(where, said, "Update spotctl, or report it")
