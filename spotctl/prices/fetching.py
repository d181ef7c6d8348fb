"""Which feeds a fetch asks, and for what of each.

Feeds are made here and nowhere else; their SDKs are loaded when they are first asked something. Addresses
come from the environment where they are not the clouds' own: AWS_ENDPOINT_URL is boto3's, the others are
ours, and name private endpoints, proxies, or mirrors of what is published for everybody.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pricing_data.errors import CredentialsRejected, RegionRefused
from pricing_data.feeds.aws import AwsFeed
from pricing_data.feeds.aws_advisor import ADDRESS, AwsAdvisorFeed
from pricing_data.feeds.aws_sdk import AwsSettings
from pricing_data.feeds.azure import AzureFeed, AzureSettings
from pricing_data.feeds.azure_retail import AzureRetailFeed, RetailSettings
from pricing_data.feeds.base import Feed, Page, Part
from pricing_data.feeds.gcp import GcpFeed, GcpSettings
from pricing_data.feeds.gcp_client import Endpoints
from pricing_data.fetch import FetchReport, Progress, fetch
from pricing_data.store import PriceStore
from pricing_data.units import Instant
from spotctl.errors import UsageError
from spotctl.timesource import wall_clock

RETAIL: Final = RetailSettings().endpoint
Told = Callable[[Sequence[Part]], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a fetch is for. Empty tuples: everything. ``since`` None: what is newer than the store."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    """Of the one cloud that is asked for: each cloud names its regions in its own way."""
    since: Instant | None = None


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A feed, asked from ``since`` on. ``told`` hears which parts are going to be fetched."""

    feed: Feed
    since: Instant | None
    told: Told

    @property
    def name(self) -> str:
        return self.feed.name

    @property
    def cloud(self) -> str:
        return self.feed.cloud

    def parts(self) -> tuple[Part, ...]:
        parts = self.feed.parts()
        self.told(parts)
        return parts

    def fetch(self, part: Part, since: Instant | None) -> Iterator[Page]:
        """From the start asked for, but never leaving a hole behind what is stored."""
        if part.region is not None and self.since is not None:
            since = self.since if since is None else min(self.since, since)
        return self.feed.fetch(part, since)


def feeds(asked: Asked, told: Told) -> tuple[Feed, ...]:
    """Those of each cloud asked for. Raises UsageError for regions without their cloud."""
    if asked.regions and len(asked.clouds) != 1:
        raise UsageError("--region: name the cloud too, with --cloud; each names its regions in its own way")
    made: tuple[Feed, ...] = (
        AwsFeed(_now, AwsSettings(regions=asked.regions)),
        AwsAdvisorFeed(_now, _address("SPOTCTL_AWS_ADVISOR", ADDRESS)),
        AzureRetailFeed(_now, RetailSettings(_address("SPOTCTL_AZURE_RETAIL", RETAIL), asked.regions)),
        AzureFeed(
            _now,
            AzureSettings(endpoint=os.environ.get("SPOTCTL_AZURE_RESOURCES") or None, regions=asked.regions),
        ),
        GcpFeed(_now, GcpSettings(endpoints=_google(), regions=asked.regions)),
    )
    wanted = (feed for feed in made if not asked.clouds or feed.cloud in asked.clouds)
    return tuple(_Chosen(feed, asked.since, told) for feed in wanted)


def run(asked: Asked, store: PriceStore, told: Told, progress: Progress) -> FetchReport:
    """Fetch what is asked for into ``store``. What cannot be got is in the report, never raised."""
    for sdk in ("azure", "botocore", "google"):  # what matters of their logs comes back as an error
        logging.getLogger(sdk).addHandler(logging.NullHandler())
    return fetch(feeds(asked, told), store, progress=progress)


def exit_code(report: FetchReport) -> int:
    """0 as soon as anything was got; 4 where credentials were refused and nothing else went wrong."""
    if any(part.done or part.new or part.known for part in report.parts):
        return 0
    failures = [part.failure for part in report.parts] + [error for _, error in report.unavailable]
    refused = (isinstance(error, CredentialsRejected | RegionRefused) for error in failures)
    return 4 if failures and all(refused) else 1


def _google() -> Endpoints:
    usual = Endpoints()
    return Endpoints(
        compute=_address("SPOTCTL_GCP_COMPUTE", usual.compute),
        billing=_address("SPOTCTL_GCP_BILLING", usual.billing),
    )


def _address(variable: str, otherwise: str) -> str:
    return os.environ.get(variable) or otherwise


def _now() -> Instant:
    return Instant(int(wall_clock()))
