"""A GCP and an Azure with something in them, and what a fetch of them must find.

What must be found is worked out here from the same tables that fill the clouds, by other arithmetic than
the feeds'.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from azure.core.pipeline.policies import SansIOHTTPPolicy
from google.oauth2.credentials import Credentials

from pricing_data.feeds.azure.feed import AzureFeed, AzureSettings
from pricing_data.feeds.azure.retail_prices import AzureRetailFeed, RetailSettings
from pricing_data.feeds.gcp.client import Endpoints
from pricing_data.feeds.gcp.feed import GcpFeed, GcpSettings
from pricing_data.feeds.retry import Retries
from pricing_data.model.units import Instant, format_instant, parse_instant
from tests.fakes.azure import RETAIL, AzureCloud
from tests.fakes.gcp import GcpCloud

NOW = parse_instant("2026-11-20T10:00:00Z")
DAY_S = 86_400

_GCP_TYPES = {
    "n2-standard-2": (2, 8192, None),
    "n2-highmem-4": (4, 32768, None),
    "n2d-standard-8": (8, 32768, None),
    "e2-small": (2, 2048, None),
    "a2-highgpu-2g": (24, 174080, ("nvidia-tesla-a100", 2)),
    "c3-standard-4": (4, 16384, None),
    "m2-ultramem-208": (208, 5888 * 1024, None),
}
_GCP_FAMILIES = {"n2": "N2", "n2d": "N2D AMD", "e2": "E2", "a2": "A2", "c3": "C3"}
_GCP_ZONES = ("europe-west4-a", "us-central1-a", "us-central1-b")


@dataclass(slots=True)
class Expected:
    """Rows by what names them."""

    prices: dict[tuple[str, str, str, int], float] = field(default_factory=dict)
    """By (source, zone, type, time)."""
    rates: dict[tuple[str, str, int], tuple[float, float]] = field(default_factory=dict)
    """(low, high) by (zone, type, end)."""
    on_demand: dict[tuple[str, str], float] = field(default_factory=dict)
    """By (region, type)."""
    types: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    """(vCPUs, GiB, GPUs) by name."""


class Naps(list[float]):
    """Counts how long somebody would have slept."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def retries(sleep: Callable[[float], None]) -> Retries:
    return Retries(sleep=sleep)


def machine_type(name: str, vcpus: int, memory_mib: int, gpu: tuple[str, int] | None) -> Any:
    from google.cloud import compute_v1  # takes seconds

    gpus = (
        [compute_v1.Accelerators(guest_accelerator_type=gpu[0], guest_accelerator_count=gpu[1])]
        if gpu
        else []
    )
    return compute_v1.MachineType(name=name, guest_cpus=vcpus, memory_mb=memory_mib, accelerators=gpus)


def sku(
    description: str,
    usage: str,
    unit: str,
    nanos: int | list[tuple[Instant, int]],
    regions: Iterable[str],
    currency: str = "USD",
) -> Any:
    """A SKU with one price, or with a timeline of them."""
    from google.cloud import billing_v1

    timeline = [(NOW, nanos)] if isinstance(nanos, int) else nanos
    return billing_v1.Sku(
        sku_id=description,
        description=description,
        category=billing_v1.Category(resource_family="Compute", usage_type=usage),
        service_regions=list(regions),
        pricing_info=[
            billing_v1.PricingInfo(
                effective_time={"seconds": at},
                pricing_expression=billing_v1.PricingExpression(
                    usage_unit=unit,
                    tiered_rates=[
                        {"unit_price": {"currency_code": currency, "units": n // 10**9, "nanos": n % 10**9}}
                    ],
                ),
            )
            for at, n in timeline
        ],
    )


def gcp(seed: int = 0, zones: tuple[str, ...] = _GCP_ZONES) -> tuple[GcpCloud, Expected]:
    """Every type in every zone; C3 has no GPUs and M2 no SKUs; E2 keeps no history."""
    draw, expected = random.Random(seed), Expected()
    regions = sorted({zone[:-2] for zone in zones})
    cloud = GcpCloud(types={zone: [machine_type(n, *s) for n, s in _GCP_TYPES.items()] for zone in zones})
    nanos: dict[tuple[str, str, str], int] = {}
    for region in regions:
        for usage, prefix in (("Preemptible", "Spot Preemptible "), ("OnDemand", "")):
            for family, words in _GCP_FAMILIES.items():
                for what, unit in (("Core", "h"), ("Ram", "GiBy.h")):
                    price = nanos[usage, f"{region} {family}", what] = draw.randrange(500_000, 40_000_000)
                    name = f"{prefix}{words} Instance {what} running in {region}"
                    cloud.skus.append(sku(name, usage, unit, price, [region]))
            price = nanos[usage, f"{region} a2", "Gpu"] = draw.randrange(10**9, 4 * 10**9)
            attached = "attached to Spot Preemptible VMs " if prefix else ""
            name = f"Nvidia Tesla A100 GPU {attached}running in {region}"
            cloud.skus.append(sku(name, usage, "h", price, [region]))
    cloud.skus.append(sku("Nvidia Tesla A100 80GB GPU running in x", "OnDemand", "h", 9 * 10**9, regions))
    cloud.skus.append(sku("N2 Custom Instance Core running in x", "Preemptible", "h", 7, regions))
    cloud.skus.append(sku("Commitment v1: N2 Cpu in x for 1 Year", "Commit1Yr", "h", 7, regions))
    draw.shuffle(cloud.skus)
    for region in regions:
        for name, (vcpus, mib, gpu) in _GCP_TYPES.items():
            family = name.split("-")[0]
            if family not in _GCP_FAMILIES:
                continue
            for usage in ("Preemptible", "OnDemand"):
                key = f"{region} {family}"
                cores = Decimal("0.5") if name == "e2-small" else Decimal(vcpus)
                total = nanos[usage, key, "Core"] * cores + nanos[usage, key, "Ram"] * Decimal(mib) / 1024
                total += nanos[usage, key, "Gpu"] * gpu[1] if gpu else 0
                dollars = float(total / 10**9)
                if usage == "OnDemand":
                    expected.on_demand[region, name] = dollars
                else:
                    expected.prices["gcp Cloud Billing Catalog", region, name, NOW] = dollars
    expected.types = {name: (s[0], s[1] / 1024, s[2][1] if s[2] else 0) for name, s in _GCP_TYPES.items()}
    histories = {}
    for zone in zones:
        for name in _GCP_TYPES:
            if not name.startswith("e2"):
                histories[zone, name] = _gcp_history(draw, zone, name, expected)
    cloud.histories = histories
    return cloud, expected


def _gcp_history(draw: random.Random, zone: str, name: str, expected: Expected) -> Any:
    """Thirty days: the last is today's, which is not over; three prices, the second not right after."""
    from google.cloud import compute_v1

    midnight = NOW - NOW % DAY_S + 8 * 3600
    rates, prices = [], []
    for day in range(30, -1, -1):
        begin, end, rate = midnight - day * DAY_S, midnight - (day - 1) * DAY_S, round(draw.random(), 4)
        rates.append({"interval": _interval(begin, end), "preemption_rate": rate})
        if day:
            expected.rates[zone, name, end] = (rate, rate)
    cuts = [midnight - 30 * DAY_S, midnight - 20 * DAY_S, midnight - 7 * DAY_S, midnight]
    for begin, end in itertools.pairwise(cuts):
        nanos = draw.randrange(10**7, 10**9)
        units = draw.randrange(3)
        prices.append(
            {
                "interval": _interval(begin, end - (3600 if begin == cuts[1] else 0)),
                "list_price": {"currency_code": "USD", "units": units, "nanos": nanos},
            }
        )
        expected.prices["gcp capacityHistory", zone, name, begin] = float(units + Decimal(nanos) / 10**9)
    expected.prices["gcp capacityHistory", zone, name, cuts[2] - 3600] = float("nan")
    return compute_v1.CapacityHistoryResponse(price_history=prices, preemption_history=rates)


def _interval(begin: int, end: int) -> dict[str, str]:
    return {"start_time": format_instant(Instant(begin)), "end_time": format_instant(Instant(end))}


def gcp_feed(address: str, sleep: Callable[[float], None], **settings: Any) -> GcpFeed:
    wanted = GcpSettings(
        project="a-project",
        credentials=Credentials("a-token"),  # type: ignore[no-untyped-call]
        endpoints=Endpoints(address, address),
        retries=retries(sleep),
        **{"past_months": 0, **settings},
    )
    return GcpFeed(lambda: NOW, wanted)


def item(sku: str, region: str, price: object, spot: bool, **more: Any) -> dict[str, Any]:
    """One meter of the price list."""
    name = sku.removeprefix("Standard_").replace("_", " ") + (" Spot" if spot else "")
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": region,
        "effectiveStartDate": "2026-11-01T00:00:00Z",
        "meterName": name,
        "productName": "Virtual Machines Series",
        "skuName": name,
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": sku,
        **more,
    }


def azure(seed: int = 0) -> tuple[AzureCloud, Expected]:
    """Seven sizes in three regions, and everything in the price list that is no Linux VM of today."""
    draw, expected = random.Random(seed), Expected()
    cloud = AzureCloud()
    names = [f"Standard_D{n}s_v5" for n in (2, 4, 8, 16)] + [
        f"Standard_NC{n}ads_A100_v4" for n in (24, 48, 96)
    ]
    bands = {"0-5": (0.0, 0.05), "5-10": (0.05, 0.1), "15-20": (0.15, 0.2), "20+": (0.2, 1.0)}
    listed: list[dict[str, Any]] = []
    for name in names:
        gpus = int(name.split("NC")[1].split("ads")[0]) // 24 if "NC" in name else 0
        vcpus = int("".join(c for c in name.split("_")[1] if c.isdigit()))
        expected.types[name] = (vcpus, vcpus * 4.0, gpus)
        listed.append(_azure_size(name, vcpus, gpus))
        for region in ("eastus", "westeurope", "japaneast"):
            spot, full = round(draw.uniform(0.01, 1), 6), round(draw.uniform(1, 9), 6)
            expected.prices["azure Retail Prices", region, name, NOW] = spot
            expected.on_demand[region, name] = full
            cloud.retail += _meters(name, region, spot, full)
            row = _azure_row(draw, name, region, expected)
            cloud.prices.append(row)
            band = draw.choice(sorted(bands))
            expected.rates[region, name, NOW] = bands[band]
            cloud.rates.append({"skuName": name.lower(), "location": region, "spotEvictionRate": band})
    draw.shuffle(cloud.retail)
    listed.append({"resourceType": "disks", "name": "Premium_LRS", "locations": ["eastus"]})
    cloud.sizes = {"first": listed, "second": listed}
    cloud.quota = {"x-ms-user-quota-remaining": "9", "x-ms-user-quota-resets-after": "00:00:05"}
    return cloud, expected


def _meters(name: str, region: str, spot: float, full: float) -> list[dict[str, Any]]:
    windows = {"productName": "Virtual Machines Series Windows"}
    return [
        item(name, region, spot, spot=True),
        item(name, region, spot * 2, spot=True, skuName=f"{name} dearer Spot"),
        item(name, region, full, spot=False),
        item(name, region, 0.001, spot=True, **windows),
        item(name, region, 0.001, spot=False, **windows),
        item(name, region, 0.001, spot=False, meterName=f"{name} Low Priority"),
        item(name, region, 0.001, spot=True, effectiveStartDate="2026-12-01T00:00:00Z"),
        item(name, region, 0.001, spot=True, effectiveEndDate="2026-10-31T00:00:00Z"),
        item(name, region, 0.001, spot=False, unitOfMeasure="1/Month"),
        item("", region, 0.001, spot=False),
    ]


def _azure_row(draw: random.Random, name: str, region: str, expected: Expected) -> dict[str, Any]:
    points = []
    for months in range(3):
        at = parse_instant(f"2026-{11 - months:02d}-01T00:00:00Z")
        price = round(draw.uniform(0.01, 1), 6)
        points.append({"priceUSD": price, "effectiveDate": format_instant(at)})
        expected.prices["azure Resource Graph price history", region, name, at] = price
    return {"skuName": name.lower(), "osType": "linux", "location": region, "spotPrices": points}


def _azure_size(name: str, vcpus: int, gpus: int) -> dict[str, Any]:
    told = {"vCPUs": str(vcpus), "MemoryGB": str(vcpus * 4), "GPUs": str(gpus)}
    capabilities = [{"name": key, "value": value} for key, value in told.items()]
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "locations": ["eastus"],
        "capabilities": capabilities if gpus else capabilities[:2],
    }


class NoCredentials:
    """Never asked: the fakes' clients do not authenticate."""

    def get_token(self, *scopes: str, **_: Any) -> Any:
        raise AssertionError("a fake's client wanted a token")


def azure_feed(address: str, sleep: Callable[[float], None], **settings: Any) -> AzureFeed:
    wanted = AzureSettings(
        credentials=NoCredentials(),
        endpoint=address,
        policy=SansIOHTTPPolicy(),
        retries=retries(sleep),
        **settings,
    )
    return AzureFeed(lambda: NOW, wanted)


def retail_feed(address: str, sleep: Callable[[float], None], **settings: Any) -> AzureRetailFeed:
    wanted = RetailSettings(endpoint=f"{address}{RETAIL}", retries=retries(sleep), **settings)
    return AzureRetailFeed(lambda: NOW, wanted)


def of_source(expected: Expected, *sources: str) -> Mapping[tuple[str, str, str, int], float]:
    return {key: price for key, price in expected.prices.items() if key[0] in sources}
