"""Parses Azure's answers, row by row: understood rows become values, others stay the text they were.

Pure. Rule 1: a row is left out (it is about Windows, a dedicated host, the older low-priority meters), or
understood, or kept as text with the others that could not be read; never dropped in silence. Rule 2: SKU
names are spelled as the price list spells them ("Standard_D2s_v4"), also where Resource Graph has them in
lower case, so that one market has one name. Azure prices regions: the zone is the region.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pricing_data.feeds.quarantine import NotUnderstood, raw_text
from pricing_data.formats.batches import Rate, TypeRow
from pricing_data.model.market import InstanceType, Market
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour, parse_instant

Json = Mapping[str, Any]

_HOURLY: Final = "1 Hour"
_NO_VIRTUAL_MACHINE: Final = ("Windows", "Cloud Services", "CloudServices", "Dedicated Host")
_OTHER_METERS: Final = ("Low Priority", "Expired")
_SIZE: Final = re.compile(r"(?:Standard|Basic)_\w[\w-]*")
_TIME_NAMES: Final = (
    "effectiveDate",
    "effectiveStartDate",
    "timestamp",
    "startDate",
    "startTime",
    "date",
    "time",
    "lastUpdated",
)
"""Names of the time field in the price history, which is undocumented; the first one present counts."""
_PRICE_NAMES: Final = ("priceUSD", "unitPrice", "price")
_BAND: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:-\s*(\d+(?:\.\d+)?)|(\+))\s*%?\s*")
_TRAILING_S: Final = 28 * 24 * HOUR_S
"""Eviction rates cover the last 28 days."""
_GPU_IN_NAME: Final = re.compile(r"_(A\d+|H\d+|T4|V\d{3}|L\d+S?|GB\d+|MI\d+X?)(?:_|$)", re.IGNORECASE)
_GPU_OF_OLD_SERIES: Final = (
    (re.compile(r"Standard_NC\d+r?"), "K80"),
    (re.compile(r"Standard_NC\d+r?s_v2"), "P100"),
    (re.compile(r"Standard_NC\d+r?s_v3"), "V100"),
    (re.compile(r"Standard_ND\d+r?s"), "P40"),
    (re.compile(r"Standard_ND40rs_v2"), "V100"),
    (re.compile(r"Standard_ND96asr_v4"), "A100"),
    (re.compile(r"Standard_NV\d+(?:s_v[23])?"), "M60"),
    (re.compile(r"Standard_NV\d+as_v4"), "MI25"),
)


@dataclass(frozen=True, slots=True)
class RetailMeter:
    """Describes one meter of the price list: Linux, by the hour."""

    market: Market
    price: UsdPerHour
    spot: bool
    effective: Instant


@dataclass(frozen=True, slots=True)
class Size:
    """Describes a VM size as one subscription sees it."""

    name: str
    capabilities: Mapping[str, str]


def azure_market(sku: str, location: str) -> Market:
    region = location.lower().replace(" ", "")
    return Market("azure", region, region, size_name(sku))


def size_name(sku: str) -> str:
    """Returns the price list's spelling of a name that may have lost its capitals.

    >>> size_name("standard_nv12ads_a10_v5")
    'Standard_NV12ads_A10_v5'
    """
    # A name with capitals is spelled by Azure itself.
    if sku != sku.lower():
        return sku
    words = sku.split("_")
    spelled = [words[0].capitalize()]
    for place, word in enumerate(words[1:], start=1):
        if place == 1:
            letters = len(word) - len(word.lstrip("abcdefghijklmnopqrstuvwxyz"))
            spelled.append(word[:letters].upper() + word[letters:])
        elif word == "promo":
            spelled.append("Promo")
        else:
            spelled.append(word.upper() if re.fullmatch(r"(?!v\d\d?$)[a-z]+\d.*", word) else word)
    return "_".join(spelled)


def parse_retail(item: Json, now: Instant) -> RetailMeter | None:
    """Parses one item of the price list; None where it is not the price in force of a Linux VM."""
    product, meter = _read_text(item, "productName"), _read_text(item, "meterName")
    words = f"{meter} {_read_text(item, 'skuName')}"
    if _read_text(item, "type") != "Consumption" or _read_text(item, "unitOfMeasure") != _HOURLY:
        return None
    if any(word in product for word in _NO_VIRTUAL_MACHINE) or any(word in words for word in _OTHER_METERS):
        return None
    sku, region = item.get("armSkuName") or "", item.get("armRegionName") or ""
    if not isinstance(sku, str) or not isinstance(region, str):
        raise NotUnderstood("armSkuName or armRegionName is no text")
    if not region or _SIZE.fullmatch(sku) is None:
        return None
    if _read_text(item, "currencyCode") != "USD":
        raise NotUnderstood("the price is not in dollars")
    begin, end = _read_time(item.get("effectiveStartDate")), item.get("effectiveEndDate")
    # The list also announces future prices and keeps past ones.
    if begin > now or (end is not None and _read_time(end) <= now):
        return None
    return RetailMeter(
        azure_market(sku, region), _read_price(item.get("retailPrice")), "Spot" in words, begin
    )


def parse_price_history(row: Json) -> tuple[Market, list[tuple[Instant, UsdPerHour]], list[str]]:
    """Parses a row of the price history: its market, its prices, and those that could not be read."""
    where = azure_market(_read_text(row, "skuName"), _read_text(row, "location"))
    listed = row.get("spotPrices")
    if not isinstance(listed, list):
        raise NotUnderstood("spotPrices is no list")
    steps, unread = [], []
    for point in listed:
        try:
            steps.append(_parse_point(point))
        except NotUnderstood as error:
            unread.append(f"{where}: {error}: {raw_text(point)}")
    return where, steps, unread


def parse_eviction_rate(row: Json, now: Instant) -> Rate:
    """Parses the band of one size in one region: percent per hour, over the last 28 days."""
    where = azure_market(_read_text(row, "skuName"), _read_text(row, "location"))
    band = _read_text(row, "spotEvictionRate")
    match = _BAND.fullmatch(band)
    if match is None:
        raise NotUnderstood(f"{band[:40]!r} is no band such as 5-10 or 20+")
    low, high = float(match[1]) / 100, 1.0 if match[3] else float(match[2]) / 100
    if not low <= high <= 1:
        raise NotUnderstood(f"the band {band[:40]!r} is not between 0 and 100 percent")
    return Rate(where, Instant(now - _TRAILING_S), now, low, high, Seconds(HOUR_S), now)


def parse_size(listed: Size) -> TypeRow:
    """Makes a VM size from its capabilities."""
    capabilities = listed.capabilities
    try:
        vcpus = int(capabilities.get("vCPUsAvailable") or capabilities["vCPUs"])
        memory_gib = float(capabilities["MemoryGB"])
        gpus = int(capabilities.get("GPUs", "0"))
    except (KeyError, TypeError, ValueError) as error:
        raise NotUnderstood(f"no vCPUs, memory or GPUs to read ({error})") from error
    found = InstanceType("azure", size_name(listed.name), vcpus, memory_gib, gpus)
    return TypeRow(found, gpu_name(found.name) if gpus else "")


def gpu_name(name: str) -> str:
    """Returns the GPU's model, which Azure states only in the size's name; "" for an unknown series."""
    match = _GPU_IN_NAME.search(name)
    if match is not None:
        return match[1].upper()
    return next((gpu for series, gpu in _GPU_OF_OLD_SERIES if series.fullmatch(name)), "")


def _parse_point(point: object) -> tuple[Instant, UsdPerHour]:
    if not isinstance(point, Mapping):
        raise NotUnderstood("a price is no object")
    # Resource Graph may not keep the case of field names.
    by_name = {str(name).lower(): value for name, value in point.items()}
    times = [by_name[name.lower()] for name in _TIME_NAMES if name.lower() in by_name]
    prices = [by_name[name.lower()] for name in _PRICE_NAMES if name.lower() in by_name]
    if not times or not prices:
        raise NotUnderstood("no field that is known to hold the " + ("price" if times else "time"))
    return _read_time(times[0]), _read_price(prices[0])


def _read_text(row: Json, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise NotUnderstood(f"{name} is no text")
    return value


def _read_time(value: object) -> Instant:
    try:
        if isinstance(value, str):
            return parse_instant(value)
    except (ValueError, OverflowError) as error:
        raise NotUnderstood(str(error)) from error
    raise NotUnderstood(f"{str(value)[:40]!r} is no time")


def _read_price(value: object) -> UsdPerHour:
    """Reads a price.

    Leaves infinity and the like for the store to judge, except NaN, which has a meaning there.
    """
    number = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)
    if math.isnan(number):
        raise NotUnderstood(f"{str(value)[:40]!r} is no price")
    return UsdPerHour(number)
