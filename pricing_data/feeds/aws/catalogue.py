"""Turns DescribeInstanceTypes and the Price List's GetProducts into batches: what AWS offers, at what price.

Linux, shared tenancy, on demand, list price. A row that is not what AWS promises goes to the quarantine and
keeps no other back. Does not judge prices: one of zero is passed on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from pricing_data.feeds.aws.client import Answer, all_pages
from pricing_data.feeds.base import FeedPart, Page
from pricing_data.feeds.quarantine import PartReading, reading_a_row
from pricing_data.formats.batches import ListPrice, OnDemandBatch, TypeBatch, TypeRow
from pricing_data.model.market import InstanceType
from pricing_data.model.units import Instant, UsdPerHour, parse_instant

TYPES_SOURCE: Final = "aws DescribeInstanceTypes"
ON_DEMAND_SOURCE: Final = "aws GetProducts"
_PAGE_ROWS: Final = 100
_MIB_PER_GIB: Final = 1024
_WANTED: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


def type_pages(describe: Callable[..., Answer], part: FeedPart, now: Callable[[], Instant]) -> Iterator[Page]:
    """Yields the instance types of the region ``part`` is named after."""
    reading, rows = PartReading(part), list[TypeRow]()
    for answer in all_pages(f"aws {part.name} DescribeInstanceTypes", describe, MaxResults=_PAGE_ROWS):
        offered = answer.get("InstanceTypes") or ()
        found = (reading.read_row(one, _type_row) for one in offered)
        rows += [row for row in found if row is not None]
        yield Page(rows=len(offered))
    reading.understood = len(rows)
    types = (TypeBatch(TYPES_SOURCE, tuple(rows), now()),) if rows else ()
    yield Page(0, (*types, *reading.take_batches(now())), f"{len(rows)} types", reading.left_out)
    reading.check_understood()


def _type_row(described: Answer) -> TypeRow:
    with reading_a_row():
        # Types without GPUs have no GpuInfo at all.
        gpus = described.get("GpuInfo", {}).get("Gpus", ())
        return TypeRow(
            InstanceType(
                cloud="aws",
                name=described["InstanceType"],
                vcpus=described["VCpuInfo"]["DefaultVCpus"],
                memory_gib=described["MemoryInfo"]["SizeInMiB"] / _MIB_PER_GIB,
                gpus=sum(gpu.get("Count", 0) for gpu in gpus),
            ),
            gpu_name=gpus[0].get("Name", "") if gpus else "",
        )


def on_demand_pages(
    products: Callable[..., Answer], part: FeedPart, now: Callable[[], Instant]
) -> Iterator[Page]:
    """Yields the on-demand list prices of the region ``part`` is named after."""
    reading, prices, region = PartReading(part), list[ListPrice](), part.name
    filters = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value}
        for name, value in {**_WANTED, "regionCode": region}.items()
    ]
    for answer in all_pages(
        f"aws {region} GetProducts",
        products,
        ServiceCode="AmazonEC2",
        Filters=filters,
        FormatVersion="aws_v1",
        MaxResults=_PAGE_ROWS,
    ):
        listed = answer.get("PriceList") or ()
        for text in listed:
            found = reading.read_row(text, partial(_list_prices, region))
            if found is not None:
                reading.understood += 1
                prices += found
        yield Page(rows=len(listed))
    stored = (OnDemandBatch(ON_DEMAND_SOURCE, tuple(prices), now()),) if prices else ()
    yield Page(0, (*stored, *reading.take_batches(now())), f"{len(prices)} prices", reading.left_out)
    reading.check_understood()


def _list_prices(region: str, text: str) -> tuple[ListPrice, ...]:
    """Returns the hourly prices of one product, which may also have a one-time dimension."""
    with reading_a_row():
        product: dict[str, Any] = json.loads(text)
        name = product["product"]["attributes"]["instanceType"]
        if not isinstance(name, str):
            raise TypeError(f"the instance type {name!r} is no text")
        return tuple(
            ListPrice(
                "aws",
                region,
                name,
                UsdPerHour(float(dimension["pricePerUnit"]["USD"])),
                parse_instant(term["effectiveDate"]),
            )
            for term in product["terms"].get("OnDemand", {}).values()
            for dimension in term["priceDimensions"].values()
            # Other dimensions are one-time fees.
            if dimension["unit"] == "Hrs"
        )
