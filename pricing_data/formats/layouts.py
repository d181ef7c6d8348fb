"""Defines the layouts of recorded price files: which column means what, and which market a row is about.

Opens no files. A layout is recognised by its header alone; further columns may be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pricing_data.model.market import Market


class Semantics(StrEnum):
    """Says what a row of the file means for the time between rows."""

    EVENT_STREAM = "event stream"
    """The price changed at that instant and holds until the next row."""
    POLLED = "polled change log"
    """The price was *seen* then; it changed somewhere since the poll before."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Describes one kind of file.

    ``identity``: columns that name a market, in the order ``market`` takes them.
    """

    time: str
    identity: tuple[str, ...]
    price: str
    also: tuple[str, ...]
    """Further columns that must be there."""
    semantics: Semantics
    market: Callable[..., Market]
    on_demand: str = ""
    """The column of the on-demand price that the poller saw beside the spot price, if there is one."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.time, *self.identity, *self.also, self.price)


_ZONE_ID: Final = re.compile(r"([a-z]{2})([nsewc]{1,2})(\d+)-az\d+")
_COMPASS: Final = {"n": "north", "s": "south", "e": "east", "w": "west", "c": "central"}


def _aws_market(region: str, zone: str, instance_type: str) -> Market:
    return Market("aws", region, zone, instance_type)


def _aws_by_zone_id(zone_id: str, instance_type: str) -> Market:
    """Spells the region out from the id ("apne1-az4" is in ap-northeast-1)."""
    # An id of another form: what stands before its first dash passes for the region.
    match = _ZONE_ID.fullmatch(zone_id)
    if match is None:
        return Market("aws", zone_id.partition("-")[0], zone_id, instance_type)
    area, direction, number = match.groups()
    return Market("aws", f"{area}-{''.join(_COMPASS[c] for c in direction)}-{number}", zone_id, instance_type)


_AWS_LABELS: Final = {
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
    "eu-ireland": "eu-west-1",
    "us-east": "us-east-1",
    "us-west": "us-west-1",
}
"""Names that AWS's public price page uses for regions older than their names."""


def _aws_by_label(label: str, instance_type: str) -> Market:
    """Names a market by the page's label.

    It has one price for a region (or a local zone, which it calls one).
    """
    region = _AWS_LABELS.get(label, label)
    return Market("aws", region, region, instance_type)


def _gcp_market(region: str, machine_type: str) -> Market:
    return Market("gcp", region, region, machine_type)


def _azure_market(region: str, sku: str) -> Market:
    return Market("azure", region, region, sku)


LAYOUTS: Final = (
    Layout(
        time="timestamp_utc",
        identity=("cloud", "region", "zone", "instance_type"),
        price="price_usd_hour",
        also=(),
        semantics=Semantics.EVENT_STREAM,
        market=Market,
    ),
    Layout(
        time="timestamp_utc",
        identity=("region", "zone", "instance_type"),
        price="price_usd_hour",
        also=("product",),
        semantics=Semantics.EVENT_STREAM,
        market=_aws_market,
    ),
    Layout(
        time="timestamp_utc",
        identity=("zone_id", "instance_type"),
        price="price_usd_hour",
        also=("product",),
        semantics=Semantics.EVENT_STREAM,
        market=_aws_by_zone_id,
    ),
    Layout(
        time="observed_utc",
        identity=("region", "sku"),
        price="spot_usd_hour",
        also=(),
        semantics=Semantics.POLLED,
        market=_azure_market,
    ),
    Layout(
        time="observed_utc",
        identity=("region", "machine_type"),
        price="spot_usd_hour",
        also=("ondemand_usd_hour",),
        semantics=Semantics.POLLED,
        market=_gcp_market,
        on_demand="ondemand_usd_hour",
    ),
    Layout(
        time="snapshot_date",
        identity=("region_label", "instance_type"),
        price="linux_spot_usd_hour",
        also=(),
        semantics=Semantics.POLLED,
        market=_aws_by_label,
    ),
    Layout(
        time="date",
        identity=("region", "sku"),
        price="lowpriority_usd_hour",
        also=(),
        semantics=Semantics.POLLED,
        market=_azure_market,
    ),
)


def recognise_layout(header: Sequence[str]) -> Layout | None:
    """Returns the layout whose columns are all in ``header``; None where there is none."""
    return next((layout for layout in LAYOUTS if set(layout.columns) <= set(header)), None)
