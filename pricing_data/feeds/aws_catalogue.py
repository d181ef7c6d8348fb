"""What AWS offers and asks for it: DescribeInstanceTypes and the Price List's GetProducts -> batches.

Linux, shared tenancy, on demand, list price. Refuses to judge prices: one of zero is handed on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from pricing_data.batch import ListPrice, OnDemandBatch, TypeBatch, TypeRow
from pricing_data.errors import FeedBroken
from pricing_data.feeds.aws_sdk import Answer, answers
from pricing_data.feeds.base import Page
from pricing_data.market import InstanceType
from pricing_data.units import Instant, UsdPerHour, parse_instant

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
_NOT_UNDERSTOOD: Final = (KeyError, TypeError, ValueError, AttributeError)


def type_pages(describe: Callable[..., Answer], region: str, now: Callable[[], Instant]) -> Iterator[Page]:
    """The instance types of ``region``."""
    where = f"aws {region} DescribeInstanceTypes"
    rows: list[TypeRow] = []
    for answer in answers(where, describe, MaxResults=_PAGE_ROWS):
        offered = answer.get("InstanceTypes") or ()
        try:
            rows += [_type_row(one) for one in offered]
        except _NOT_UNDERSTOOD as error:
            raise _broken(where, error) from error
        yield Page(rows=len(offered))
    if rows:
        yield Page(rows=0, batches=(TypeBatch(TYPES_SOURCE, tuple(rows), now()),))


def _type_row(described: Answer) -> TypeRow:
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
    products: Callable[..., Answer], region: str, now: Callable[[], Instant]
) -> Iterator[Page]:
    """The on-demand list prices of ``region``."""
    where = f"aws {region} GetProducts"
    prices: list[ListPrice] = []
    filters = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value}
        for name, value in {**_WANTED, "regionCode": region}.items()
    ]
    for answer in answers(
        where,
        products,
        ServiceCode="AmazonEC2",
        Filters=filters,
        FormatVersion="aws_v1",
        MaxResults=_PAGE_ROWS,
    ):
        listed = answer.get("PriceList") or ()
        try:
            for text in listed:
                prices += _list_prices(json.loads(text), region)
        except _NOT_UNDERSTOOD as error:
            raise _broken(where, error) from error
        yield Page(rows=len(listed))
    if prices:
        yield Page(rows=0, batches=(OnDemandBatch(ON_DEMAND_SOURCE, tuple(prices), now()),))


def _list_prices(product: dict[str, Any], region: str) -> Iterator[ListPrice]:
    """Those per hour: a product may also have a one-time dimension."""
    name = product["product"]["attributes"]["instanceType"]
    if not isinstance(name, str):
        raise TypeError(f"the instance type {name!r} is no text")
    for term in product["terms"].get("OnDemand", {}).values():
        valid_from = parse_instant(term["effectiveDate"])
        for dimension in term["priceDimensions"].values():
            if dimension["unit"] == "Hrs":
                price = UsdPerHour(float(dimension["pricePerUnit"]["USD"]))
                yield ListPrice("aws", region, name, price, valid_from)


def _broken(where: str, error: Exception) -> FeedBroken:
    what = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
    found = f"an answer has a row that is not what AWS promises: {what}"
    return FeedBroken(where, found[:300], "Nothing of it was stored; fetch again later")
