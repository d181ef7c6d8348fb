"""Fetches AWS spot prices by zone, types and on-demand prices, of every region the account may use.

Wires boto3's clients to what reads their answers (``spot_prices.py``, ``catalogue.py``). The advisor's file
needs no account and is a feed of its own (``advisor.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from pricing_data.errors import FeedBroken, FeedCredentialsRejected, RegionRefused
from pricing_data.feeds.aws import catalogue, spot_prices
from pricing_data.feeds.aws.client import AwsSession, AwsSettings, translating_errors
from pricing_data.feeds.base import FeedPart, Page, PartKind, narrowed_source
from pricing_data.model.units import Instant

_SOURCES: Final = {
    PartKind.TYPES: catalogue.TYPES_SOURCE,
    PartKind.ON_DEMAND: catalogue.ON_DEMAND_SOURCE,
}
_PRICE_LIST_REGION: Final = "us-east-1"
"""The Price List covers all regions and is served from a few."""


class AwsFeed:
    """Fetches with an account.

    ``now``: the observation time of what is fetched, and the end of every history.
    """

    name = "aws"
    cloud = "aws"

    def __init__(self, now: Callable[[], Instant], settings: AwsSettings | None = None) -> None:
        self._now = now
        self._settings = settings or AwsSettings()
        self._made: AwsSession | None = None
        self._making = threading.Lock()

    def list_parts(self) -> tuple[FeedPart, ...]:
        """Lists prices first: a fetch that is cut short then has what changes most.

        Prices of some types or zones are a source of their own, and fetched whole: continuing from the newest
        of them would leave holes in all the others.
        """
        wanted = self._settings
        regions = wanted.regions or self._enabled_regions()
        source = narrowed_source(spot_prices.SOURCE, wanted.zones, wanted.types)
        whole = source == spot_prices.SOURCE
        prices = (FeedPart("aws", PartKind.PRICES, name, source, name if whole else None) for name in regions)
        others = (
            FeedPart("aws", kind, region, source) for kind, source in _SOURCES.items() for region in regions
        )
        return (*prices, *others)

    def _enabled_regions(self) -> tuple[str, ...]:
        home = self._settings.home_region
        where = f"aws {home} DescribeRegions"
        client = self._open_session().make_client("ec2", home)
        try:
            with translating_errors(where):
                answer = client.describe_regions(AllRegions=False)
        except RegionRefused as error:
            advice = "Allow ec2:DescribeRegions, or name the regions to fetch, or log in as somebody else"
            raise FeedCredentialsRejected(where, error.found, advice) from error
        names = sorted(region.get("RegionName", "") for region in answer.get("Regions", ()))
        if not names or not all(names):
            raise FeedBroken(where, f"the regions {names}", "Name the regions to fetch")
        return tuple(names)

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        """Yields one region's prices, types or on-demand prices; only prices continue from ``since``."""
        if part.kind is PartKind.ON_DEMAND:
            client = self._open_session().make_client("pricing", _PRICE_LIST_REGION)
            return catalogue.on_demand_pages(client.get_products, part, self._now)
        client = self._open_session().make_client("ec2", part.name)
        if part.kind is PartKind.TYPES:
            return catalogue.type_pages(client.describe_instance_types, part, self._now)
        ask = partial(client.describe_spot_price_history, **self._price_filters())
        return spot_prices.price_pages(ask, part, since, self._now)

    def _price_filters(self) -> dict[str, object]:
        """Returns the filters of the price history beyond its region and time."""
        zones, types = self._settings.zones, self._settings.types
        asked: dict[str, object] = {"InstanceTypes": list(types)} if types else {}
        if zones:
            asked["Filters"] = [{"Name": "availability-zone", "Values": list(zones)}]
        return asked

    def _open_session(self) -> AwsSession:
        # Parts are fetched in threads; the session is made once.
        with self._making:
            if self._made is None:
                self._made = AwsSession(self._settings)
            return self._made
