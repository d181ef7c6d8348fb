"""Chooses which feeds a fetch asks, and for what.

Feeds are made here and nowhere else; their SDKs are loaded at the first request. Addresses come from the
environment where they are not the clouds' own: AWS_ENDPOINT_URL is boto3's, the others are ours, and name
private endpoints, proxies, or mirrors of what is published for everybody.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pricing_data.errors import FeedCredentialsRejected, RegionRefused
from pricing_data.feeds.aws.advisor import ADDRESS, AwsAdvisorFeed
from pricing_data.feeds.aws.client import AwsSettings
from pricing_data.feeds.aws.feed import AwsFeed
from pricing_data.feeds.azure.feed import AzureFeed, AzureSettings
from pricing_data.feeds.azure.retail_prices import AzureRetailFeed, RetailSettings
from pricing_data.feeds.base import Feed, FeedPart, Page
from pricing_data.feeds.fetch import FetchReport, Progress, fetch_all
from pricing_data.feeds.gcp.client import Endpoints
from pricing_data.feeds.gcp.feed import GcpFeed, GcpSettings
from pricing_data.model.units import Instant
from pricing_data.store.store import PriceStore
from spotctl.errors import UsageError
from spotctl.timesource import wall_clock

RETAIL: Final = RetailSettings().endpoint
_REGION: Final = re.compile(r"[a-z]+(-[a-z]+)+-?\d+")
"""The beginning of a zone's name: us-east-1 in us-east-1a and us-east-1-bos-1a, us-central1 in
us-central1-a.
"""
PartsListener = Callable[[Sequence[FeedPart]], None]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Selects what to fetch. Empty tuples: everything. ``since`` None: what is newer than the store."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    """Regions, zones and types belong to the one cloud requested: each cloud names its own in its own way."""
    zones: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: Instant | None = None


@dataclass(frozen=True, slots=True)
class _FeedFrom:
    """Asks a feed from ``since`` on. ``told`` receives the parts that will be fetched."""

    feed: Feed
    since: Instant | None
    told: PartsListener

    @property
    def name(self) -> str:
        return self.feed.name

    @property
    def cloud(self) -> str:
        return self.feed.cloud

    def list_parts(self) -> tuple[FeedPart, ...]:
        parts = self.feed.list_parts()
        self.told(parts)
        return parts

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        """Fetches from the requested start, but never leaves a hole behind what is stored."""
        # A start after the newest stored row would leave days that no later fetch fills.
        if self.since is not None:
            since = self.since if since is None else min(self.since, since)
        return self.feed.fetch(part, since)


def select_feeds(asked: FetchRequest, told: PartsListener) -> tuple[Feed, ...]:
    """Returns the feeds of each requested cloud. Raises UsageError for names that fit no single cloud."""
    regions, zones, types = _checked_regions(asked), asked.zones, asked.types
    resources = os.environ.get("SPOTCTL_AZURE_RESOURCES") or None
    retail = RetailSettings(_address_from("SPOTCTL_AZURE_RETAIL", RETAIL), regions, types)
    made: tuple[Feed, ...] = (
        AwsFeed(_wall_instant, AwsSettings(regions=regions, zones=zones, types=types)),
        AwsAdvisorFeed(_wall_instant, _address_from("SPOTCTL_AWS_ADVISOR", ADDRESS)),
        AzureRetailFeed(_wall_instant, retail),
        AzureFeed(_wall_instant, AzureSettings(endpoint=resources, regions=regions, sizes=types)),
        GcpFeed(
            _wall_instant,
            GcpSettings(endpoints=_google_endpoints(), regions=regions, zones=zones, machine_types=types),
        ),
    )
    # Made even if not wanted: a feed loads its SDK at the first request, not here.
    wanted = (feed for feed in made if not asked.clouds or feed.cloud in asked.clouds)
    return tuple(_FeedFrom(feed, asked.since, told) for feed in wanted)


def _checked_regions(asked: FetchRequest) -> tuple[str, ...]:
    """Returns the requested regions, or those of the zones; empty: all."""
    for option, named in (("--region", asked.regions), ("--zone", asked.zones), ("--type", asked.types)):
        if named and len(asked.clouds) != 1:
            raise UsageError(f"{option}: name the cloud too, with --cloud; each has names of its own")
    if not asked.zones:
        return asked.regions
    if asked.regions:
        raise UsageError("--zone: a zone names its region; leave --region out")
    # Refused: ignored, it would fetch and show more than was asked for.
    if asked.clouds == ("azure",):
        raise UsageError("--zone: Azure's prices are those of regions; use --region")
    regions = {zone: _REGION.match(zone) for zone in asked.zones}
    strange = [zone for zone, match in regions.items() if match is None]
    if strange:
        raise UsageError(f"--zone: found {strange[0]!r}; expected a zone like us-east-1a or us-central1-a")
    return tuple(dict.fromkeys(match[0] for match in regions.values() if match is not None))


def run_fetch(asked: FetchRequest, store: PriceStore, told: PartsListener, progress: Progress) -> FetchReport:
    """Fetches into ``store``. Failures are in the report, never raised."""
    for sdk in ("azure", "botocore", "google"):  # what matters of their logs comes back as an error
        logging.getLogger(sdk).addHandler(logging.NullHandler())
    return fetch_all(select_feeds(asked, told), store, progress=progress)


def exit_code(report: FetchReport) -> int:
    """Returns 0 if anything was fetched; 4 where credentials were refused and nothing else went wrong."""
    # Part of the prices is better than none for a nightly job; the report names what failed.
    if any(part.done or part.new or part.known for part in report.parts):
        return 0
    failures = [part.failure for part in report.parts] + [error for _, error in report.unavailable]
    # Exit code 4 tells cron that only a person can mend it.
    refused = (isinstance(error, FeedCredentialsRejected | RegionRefused) for error in failures)
    return 4 if failures and all(refused) else 1


def _google_endpoints() -> Endpoints:
    usual = Endpoints()
    return Endpoints(
        compute=_address_from("SPOTCTL_GCP_COMPUTE", usual.compute),
        billing=_address_from("SPOTCTL_GCP_BILLING", usual.billing),
    )


def _address_from(variable: str, otherwise: str) -> str:
    return os.environ.get(variable) or otherwise


def _wall_instant() -> Instant:
    return Instant(int(wall_clock()))
