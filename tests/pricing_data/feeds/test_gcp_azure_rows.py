"""Tests the parsing of GCP's and Azure's answers: against recorded prices, and against nonsense."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import math
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.feeds.azure import rows
from pricing_data.feeds.base import Feed
from pricing_data.feeds.fetch import FetchPatience, fetch_all
from pricing_data.feeds.gcp.client import Month
from pricing_data.feeds.gcp.skus import (
    Component,
    MachineShape,
    Resource,
    Sku,
    Usage,
    component_of,
    component_timelines,
    gpu_model,
    price_steps,
)
from pricing_data.feeds.quarantine import NotUnderstood
from pricing_data.model.units import Instant, parse_instant
from tests.fakes.azure import AzureCloud
from tests.fakes.gcp import GcpCloud
from tests.fakes.servers import FakeServer, Fault, Reply, Request
from tests.pricing_data.feeds.memory import MemoryStore
from tests.pricing_data.feeds.populated import (
    NOW,
    Expected,
    Naps,
    azure,
    azure_feed,
    gcp,
    gcp_feed,
    item,
    machine_type,
    retail_feed,
    sku,
)

_SUMMED = ("c2", "c2d", "c3", "c3d", "e2", "h3", "m1", "m3", "n1", "n2", "n2d", "n4", "n4a", "n4d", "t2a")
"""Families whose recorded prices are the sums of cores and memory alone; others bundle GPUs or disks."""
_WORDS = {
    "c2": "Compute optimized",
    "c2d": "C2D AMD",
    "m1": "Memory-optimized",
    "m3": "M3 Memory-optimized",
    "n1": "N1 Predefined",
    "n2d": "N2D AMD",
    "t2a": "T2A Arm",
    "t2d": "T2D AMD",
}


def _read_recorded(path: Path) -> Iterator[Mapping[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def test_recorded_spot_prices_are_the_sums_of_their_components(recorded_data: Path) -> None:
    """Core and memory prices are solved for from two types of a family; they must price all others too."""
    folder = recorded_data / "gcp-spot-2022-2026"
    shapes = {row["machine_type"]: row for row in _read_recorded(folder / "machine_types.csv.gz")}
    prices: dict[str, float] = {}
    for row in _read_recorded(folder / "price_changes.csv.gz"):
        if row["region"] == "us-central1" and row["spot_usd_hour"]:
            prices[row["machine_type"]] = float(row["spot_usd_hour"])
    families = defaultdict(list)
    for name in sorted(prices.keys() & shapes.keys()):
        families[name.split("-")[0]].append(name)
    known, wanted = [], {}
    for family in _SUMMED:
        names = families[family]
        amounts = np.array([[float(shapes[name][what]) for what in ("cpu", "ram")] for name in names])
        fit, *_ = np.linalg.lstsq(amounts, np.array([prices[name] for name in names]), rcond=None)
        for what, unit, dollars in zip(("Core", "Ram"), ("h", "GiBy.h"), fit, strict=True):
            name = f"Spot Preemptible {_WORDS.get(family, family.upper())} Instance {what} running in Iowa"
            known.append(Sku(name, name, Usage.SPOT, unit, ("us-central1",), ((NOW, round(dollars * 1e9)),)))
        wanted.update({name: shapes[name] for name in names})
    components, checked = component_timelines(known), 0
    for name, row in wanted.items():
        shape = MachineShape(name, max(1, round(float(row["cpu"]))), round(float(row["ram"]) * 1024))
        ((_, price),) = price_steps(shape, "us-central1", Usage.SPOT, components)
        assert price == pytest.approx(prices[name], rel=2e-4), name
        checked += 1
    assert checked > 200


def test_every_recorded_azure_size_survives_the_loss_of_its_capitals(recorded_data: Path) -> None:
    names = [row["Name"] for row in _read_recorded(recorded_data / "azure-spot-2022-2024" / "vm_skus.csv.gz")]
    assert len(names) > 700
    assert [rows.size_name(name.lower()) for name in names] == names


def test_a_recorded_poll_of_azure_comes_back_row_by_row(recorded_data: Path) -> None:
    seen: dict[tuple[str, str], float] = {}
    for row in _read_recorded(recorded_data / "azure-spot-2022-2024" / "spot_price_changes.csv.gz"):
        if row["spot_usd_hour"] and row["observed_utc"] < "2022-07":
            seen[row["region"], row["sku"]] = float(row["spot_usd_hour"])
    cloud = AzureCloud(retail=[item(s, r, p, spot=True) for (r, s), p in seen.items()], page_size=1000)
    store = MemoryStore()
    with cloud.server().running() as address:
        assert fetch_all([retail_feed(address, Naps())], store).is_complete
    found = {(market.region, market.instance_type): price for (_, market, _), price in store.prices.items()}
    assert found == seen
    assert len(found) > 3000


@pytest.mark.parametrize(
    ("description", "component"),
    [
        ("N2 Instance Core running in Americas", Component(Resource.CORE, "n2")),
        ("Preemptible E2 Instance Core running in Virginia", Component(Resource.CORE, "e2")),
        ("Spot Preemptible N1 Predefined Instance Ram running in Iowa", Component(Resource.RAM, "n1")),
        ("Compute optimized Core running in Iowa", Component(Resource.CORE, "c2")),
        ("Spot Preemptible C4A Arm Instance Ram running in Iowa", Component(Resource.RAM, "c4a")),
        ("RTX 6000 96GB running in Iowa", Component(Resource.GPU, gpu_model("nvidia-rtx-6000-96gb"))),
        ("H200 141GB GPU running in Netherlands", Component(Resource.GPU, gpu_model("nvidia-h200-141gb"))),
        ("N2D AMD Custom Instance Core running in Americas", None),
        ("Sole Tenancy Instance Ram running in Americas", None),
        ("Commitment v1: A2 Core in Americas for 1 Year", None),
        ("Reserved A2 Instance Core in Americas", None),
        ("DWS Defined Duration A2 Core running in Americas", None),
        ("Memory Optimized Upgrade Premium for Memory-optimized Instance Core running in Iowa", None),
        ("M4Ultramem224 Instance Core running in Iowa", None),
        ("SSD backed Local Storage attached to Spot Preemptible VMs running in Iowa", None),
        ("", None),
    ],
)
def test_descriptions_are_read_narrowly(description: str, component: Component | None) -> None:
    assert component_of(description) == component


def test_a_gpu_that_comes_with_a_reservation_is_no_gpu_of_ours() -> None:
    reserved = component_of("Nvidia Tesla A100 GPU attached to DWS Defined Duration VMs running in Americas")
    assert reserved is None or reserved.of != gpu_model("nvidia-tesla-a100")


def test_a_past_month_tells_when_a_price_changed() -> None:
    """Core changes on the 5th, memory on the 9th; what is known of both begins on the 2nd."""
    days = [parse_instant(f"2026-10-{day:02d}T08:00:00Z") for day in (1, 2, 5, 9)]
    units = {
        "Core": ("h", [(days[0], 10**7), (days[2], 2 * 10**7)]),
        "Ram": ("GiBy.h", [(days[1], 10**6), (days[3], 2 * 10**6)]),
    }
    skus = [
        sku(f"{words}N2 Instance {what} running in x", usage, unit, timeline, ["r1"])
        for words, usage in (("", "OnDemand"), ("Spot Preemptible ", "Preemptible"))
        for what, (unit, timeline) in units.items()
    ]
    cloud = GcpCloud(types={"r1-a": [machine_type("n2-standard-2", 2, 8192, None)]})
    cloud.months = {"2026-10": skus}
    store = MemoryStore()
    with cloud.server().running() as address:
        assert fetch_all([gcp_feed(address, Naps(), past_months=1)], store).is_complete
    steps = {at: price for (source, _, at), price in store.prices.items() if "month" in source}
    assert steps == {days[1]: 0.028, days[2]: 0.048, days[3]: 0.056}
    assert {row.valid_from: row.price for row in store.on_demand.values()} == steps


def test_a_price_in_another_currency_is_refused() -> None:
    cloud = GcpCloud(types={"r1-a": [machine_type("n2-standard-2", 2, 8192, None)]})
    cloud.skus = [sku("N2 Instance Core running in x", "OnDemand", "h", 1, ["r1"], currency="EUR")]
    with cloud.server().running() as address:
        report = fetch_all([gcp_feed(address, Naps())], MemoryStore())
    (error,) = (part.failure for part in report.parts if part.failure is not None)
    assert "EUR" in str(error)


def test_months_stay_inside_the_pacific_month() -> None:
    month = Month(2026, 12)
    assert (str(month.begin), str(month.end)) == ("2026-12-01 08:00:00+00:00", "2027-01-01 07:00:00+00:00")
    assert str(Month(2026, 1).previous_month) == "2025-12"
    assert Month.parse("2026-03") == Month(2026, 3)


@pytest.mark.parametrize("name", ["effectiveDate", "EffectiveStartDate", "timestamp", "startTime", "date"])
def test_the_time_of_a_price_may_have_several_names(name: str) -> None:
    row = {
        "skuName": "standard_d2s_v5",
        "location": "East US",
        "spotPrices": [{"priceUSD": 0.5, name: "2026-11-01"}],
    }
    market, steps, unread = rows.parse_price_history(row)
    assert (market.region, market.instance_type) == ("eastus", "Standard_D2s_v5")
    assert (steps, unread) == ([(parse_instant("2026-11-01"), 0.5)], [])


def test_rows_that_nobody_understands_are_kept_as_they_came() -> None:
    point = {"priceUSD": 0.5, "aNewName": "2026-11-01"}
    row = {"skuName": "standard_d2s_v5", "location": "eastus", "spotPrices": [point]}
    cloud = AzureCloud(prices=[row])
    with cloud.server().running() as address:
        report = fetch_all([azure_feed(address, Naps(), subscriptions=("none",))], MemoryStore())
    (error,) = (part.failure for part in report.parts if part.part.name == "history")
    assert json.dumps(point, sort_keys=True) in str(error)


def test_some_rows_that_nobody_understands_are_told_and_do_not_keep_the_others_back() -> None:
    points = [{"priceUSD": 0.5, "effectiveDate": "2026-11-01"}, {"priceUSD": 0.5}]
    cloud = AzureCloud(prices=[{"skuName": "standard_d2s_v5", "location": "eastus", "spotPrices": points}])
    store = MemoryStore()
    with cloud.server().running() as address:
        report = fetch_all([azure_feed(address, Naps(), subscriptions=("none",))], store)
    (part,) = (part for part in report.parts if part.part.name == "history")
    assert len(store.prices) == 1
    assert (part.done, part.new, part.quarantined) == (True, 1, 1)
    assert "1 rows were not understood and are in quarantine, such as Standard_D2s_v5@" in part.left_out


def test_an_odd_item_of_the_price_list_is_told_and_does_not_keep_the_others_back() -> None:
    odd = item("Standard_D4s_v5", "eastus", "many dollars", spot=True)
    cloud = AzureCloud(retail=[item("Standard_D2s_v5", "eastus", 0.1, spot=True), odd])
    store = MemoryStore()
    with cloud.server().running() as address:
        report = fetch_all([retail_feed(address, Naps())], store)
    assert [market.instance_type for _, market, _ in store.prices] == ["Standard_D2s_v5"]
    prices, on_demand = report.parts
    assert prices.done
    assert prices.quarantined + on_demand.quarantined == 1, "both lists have it"
    assert "many dollars" in prices.left_out
    assert "many dollars" in str(on_demand.failure), "all it was answered was odd"


def test_a_zone_that_does_not_answer_is_told() -> None:
    google, _ = gcp(zones=("us-central1-a",))
    google.unreachable = ("zones/us-central1-b",)
    store = MemoryStore()
    with google.server().running() as address:
        report = fetch_all([gcp_feed(address, Naps())], store)
    (failure,) = (part.failure for part in report.parts if part.failure is not None)
    assert "zones/us-central1-b" in str(failure)
    assert store.types


@pytest.mark.parametrize(
    ("band", "low", "high"),
    [("0-5", 0, 0.05), ("5-10", 0.05, 0.1), ("20+", 0.2, 1), (" 15 - 20 % ", 0.15, 0.2)],
)
def test_bands_are_shares_an_hour(band: str, low: float, high: float) -> None:
    row = {"skuName": "standard_d2s_v5", "location": "eastus", "spotEvictionRate": band}
    rate = rows.parse_eviction_rate(row, NOW)
    assert (rate.low, rate.high, float(rate.per_s)) == (low, high, 3600.0)
    assert rate.end - rate.begin == 28 * 86_400


@pytest.mark.parametrize("band", ["", "often", "5", "10-5", "90-110", "-5-10"])
def test_a_band_that_is_none_is_not_understood(band: str) -> None:
    row = {"skuName": "standard_d2s_v5", "location": "eastus", "spotEvictionRate": band}
    with pytest.raises(NotUnderstood):
        rows.parse_eviction_rate(row, NOW)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("Standard_NC24ads_A100_v4", "A100"),
        ("Standard_NC6s_v3", "V100"),
        ("Standard_NC4as_T4_v3", "T4"),
        ("Standard_ND96isr_H100_v5", "H100"),
        ("Standard_NV6", "M60"),
        ("Standard_NP10s", ""),
    ],
)
def test_the_gpu_of_a_size(name: str, gpu: str) -> None:
    assert rows.gpu_name(name) == gpu


_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_sound = item("Standard_D2s_v5", "eastus", 0.1, spot=True)
_odd_items = st.dictionaries(st.sampled_from(sorted([*_sound, "effectiveEndDate"])), _json, max_size=4).map(
    lambda odd: {**_sound, **odd}
)
_points = st.dictionaries(st.sampled_from(["priceUSD", "effectiveDate", "timestamp", "x"]), _json, max_size=4)
_odd_rows = st.fixed_dictionaries(
    {},
    optional={
        "skuName": st.just("standard_d2s_v5") | _json,
        "location": st.just("eastus") | _json,
        "spotPrices": st.lists(_points | _json, max_size=3) | _json,
        "spotEvictionRate": st.sampled_from(["0-5", "20+", "NaN-1"]) | _json,
    },
)


@settings(max_examples=150, deadline=None)
@given(_odd_items)
def test_any_item_of_the_price_list_is_understood_left_out_or_refused(odd: dict[str, Any]) -> None:
    with contextlib.suppress(NotUnderstood):
        found = rows.parse_retail(odd, NOW)
        assert found is None or not math.isnan(found.price)


@settings(max_examples=150, deadline=None)
@given(_odd_rows)
def test_any_row_of_resource_graph_is_understood_or_refused(odd: dict[str, Any]) -> None:
    for reader in (rows.parse_price_history, lambda row: rows.parse_eviction_rate(row, NOW)):
        with contextlib.suppress(NotUnderstood):
            reader(odd)


def _broken_bodies(seed: int, sound: bytes) -> Iterator[bytes]:
    """A sound answer with bytes changed, missing or doubled, again and again."""
    draw = random.Random(seed)
    while True:
        body = bytearray(sound)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(body))
            match draw.randrange(3):
                case 0:
                    body[at : at + 1] = bytes([draw.randrange(256)])
                case 1:
                    del body[at : at + draw.randrange(1, 20)]
                case _:
                    body[at:at] = body[at : at + draw.randrange(1, 20)]
        yield bytes(body)


@pytest.mark.parametrize("name", ["gcp", "azure", "azure retail"])
def test_broken_bytes_on_the_wire_raise_nothing_and_lose_nothing(name: str, campaign: bool) -> None:
    """Each round breaks one answer of every kind; a fetch after it completes what is missing."""
    rounds = 300 if campaign else 12
    google, in_google = gcp(zones=("us-central1-a",))
    microsoft, in_azure = azure()
    google.page_size = microsoft.page_size = 1000
    made: Mapping[str, tuple[Callable[..., Feed], FakeServer, Expected]] = {
        "gcp": (gcp_feed, google.server(), in_google),
        "azure": (azure_feed, microsoft.server(), in_azure),
        "azure retail": (retail_feed, microsoft.server(), in_azure),
    }
    feed, server, expected = made[name]
    sound: dict[str, bytes] = {}
    whole = server.answer

    def recorded(request: Request) -> Reply:
        reply = whole(request)
        sound[request.path.split("?")[0]] = reply.body
        return reply

    at_once = FetchPatience(first_wait_s=0.0, longest_wait_s=0.0)
    with server.running() as address:
        server.answer = recorded
        fetch_all([feed(address, Naps())], complete := MemoryStore())
        server.answer = whole
        bodies = {path: _broken_bodies(place, body) for place, (path, body) in enumerate(sound.items())}
        for _ in range(rounds):
            server.faults = [Fault(path, Reply(body=next(broken))) for path, broken in bodies.items()]
            store = MemoryStore()
            fetch_all([feed(address, Naps())], store, patience=at_once)
            server.faults = []
            assert fetch_all([feed(address, Naps())], store, patience=at_once).is_complete
            assert complete.prices.keys() <= store.prices.keys()
    assert len(complete.prices) > 0
    assert {key[0] for key in expected.prices} >= {source for source, _, _ in complete.prices}


def test_the_feeds_load_without_any_sdk() -> None:
    script = (
        "import sys, pricing_data.feeds.gcp.feed, pricing_data.feeds.azure.feed;"
        "import pricing_data.feeds.azure.retail_prices;"
        "found = {name.split('.')[0] for name in sys.modules};"
        "assert not found & {'google', 'azure', 'requests', 'duckdb', 'pandas', 'boto3'}, found"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize(
    ("module", "extra"), [("google.api_core.client_options", "gcp"), ("azure.mgmt.resourcegraph", "azure")]
)
def test_a_missing_sdk_is_said_and_keeps_nobody_else(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    cloud = AzureCloud(retail=[item("Standard_D2s_v5", "eastus", 0.1, spot=True)])
    store = MemoryStore()
    with cloud.server().running() as address:
        feed = (gcp_feed if extra == "gcp" else azure_feed)(address, Naps())
        report = fetch_all([feed, retail_feed(address, Naps())], store)
    ((name, error),) = report.unavailable
    assert name == extra
    assert f"pip install 'spotctl[{extra}]'" in str(error)
    assert [market.instance_type for _, market, _ in store.prices] == ["Standard_D2s_v5"]


def test_an_instant_before_all_components_has_no_price() -> None:
    core = Sku("a", "N2 Instance Core running in x", Usage.SPOT, "h", ("r1",), ((Instant(5), 10),))
    assert (
        price_steps(MachineShape("n2-standard-2", 2, 8192), "r1", Usage.SPOT, component_timelines([core]))
        == ()
    )
