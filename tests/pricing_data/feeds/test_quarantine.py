"""Rows of answers that nobody understands: into the quarantine, once, and the part says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pricing_data.feeds.base import Feed
from pricing_data.feeds.fetch import FetchReport, fetch_all
from pricing_data.formats.quality import Flaw
from pricing_data.store.store import PriceStore
from tests.fakes.servers import FakeServer
from tests.pricing_data.feeds.populated import Naps, azure, azure_feed, gcp, gcp_feed, item, retail_feed, sku


@dataclass(frozen=True, slots=True)
class Odd:
    """A cloud with odd rows: the server, the feed, and what of the rows must stand in the quarantine."""

    server: FakeServer
    feed: Callable[..., Feed]
    texts: tuple[str, ...]


def _google() -> Odd:
    cloud, _ = gcp(zones=("us-central1-a",))
    cloud.skus.append(sku("N2 Instance Core running in x", "OnDemand", "h", 1, ["us-central1"], "EUR"))
    for _, history in zip(range(2), cloud.histories.values(), strict=False):
        history.price_history[0].list_price.currency_code = "GBP"
        history.preemption_history[3].preemption_rate = 7.5
    return Odd(cloud.server(), gcp_feed, ("EUR", "GBP", "GBP", "7.5", "7.5"))


def _microsoft() -> Odd:
    cloud, _ = azure()
    cloud.prices[1]["spotPrices"].append({"priceUSD": 0.5, "aNewName": "2026-11-01"})
    cloud.prices.append({"skuName": "standard_d3_v2", "location": "eastus", "spotPrices": "soon"})
    cloud.rates.append({"skuName": "standard_d3_v2", "location": "eastus", "spotEvictionRate": "often"})
    size = {"resourceType": "virtualMachines", "name": "Standard_D3_v2", "locations": ["eastus"]}
    cloud.sizes["first"].append({**size, "capabilities": []})
    return Odd(cloud.server(), azure_feed, ("aNewName", "soon", "often", "Standard_D3_v2"))


def _price_list() -> Odd:
    cloud, _ = azure()
    cloud.retail.append(item("Standard_D3_v2", "eastus", "many dollars", spot=True))
    cloud.retail.append(item("Standard_D3_v2", "eastus", 1.0, spot=False, currencyCode="EUR"))
    return Odd(cloud.server(), retail_feed, ("many dollars", "EUR"))


_CLOUDS = {"gcp": _google, "azure": _microsoft, "azure retail": _price_list}


@pytest.fixture(params=sorted(_CLOUDS))
def odd(request: pytest.FixtureRequest) -> Odd:
    return _CLOUDS[request.param]()


def fetch_odd(odd: Odd, store: PriceStore, **settings: Any) -> FetchReport:
    with odd.server.running() as address:
        return fetch_all([odd.feed(address, Naps(), **settings)], store)


def not_understood(store: PriceStore) -> list[str]:
    return [row.text for row in store.quality.list_quarantined() if row.reason is Flaw.NOT_UNDERSTOOD]


def test_they_stand_in_the_quarantine_once_however_often_they_are_fetched(odd: Odd, tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    for count in (len(odd.texts), 0):
        report = fetch_odd(odd, store)
        assert report.is_complete, "odd rows keep no part from being whole"
        assert sum(part.quarantined for part in report.parts) >= count
        aside = not_understood(store)
        assert len(aside) == len(odd.texts)
        for text in odd.texts:
            assert any(text in kept for kept in aside), text
        counted = sum(one.count for one in store.quality.findings() if one.kind is Flaw.NOT_UNDERSTOOD)
        assert counted == len(odd.texts)
    assert sum(part.quarantined for part in report.parts) == 0, "the second fetch knew them all"


def test_their_parts_say_so_in_words(odd: Odd, tmp_path: Path) -> None:
    report = fetch_odd(odd, PriceStore(tmp_path))
    said = " ".join(part.left_out for part in report.parts)
    assert "not understood and are in quarantine, such as" in said
    assert any(text in said for text in odd.texts)


def test_a_row_is_not_mistaken_for_another_that_begins_alike(tmp_path: Path) -> None:
    cloud, _ = azure()
    for last in "ab":
        odd = item("Standard_D3_v2", "eastus", "many dollars", spot=True, meterId="x" * 5000, zone=last)
        cloud.retail.append(odd)
    store = PriceStore(tmp_path)
    fetch_odd(Odd(cloud.server(), retail_feed, ()), store)
    first, second = not_understood(store)
    assert first != second
    assert max(len(first), len(second)) < 2500


def test_a_part_of_which_nothing_was_understood_has_failed(tmp_path: Path) -> None:
    cloud, _ = azure()
    cloud.rates = [{"skuName": row["skuName"], "spotEvictionRate": "5-10"} for row in cloud.rates]
    store = PriceStore(tmp_path)
    report = fetch_odd(Odd(cloud.server(), azure_feed, ()), store)
    (failed,) = (part for part in report.parts if part.failure is not None)
    assert "location is no text" in str(failed.failure)
    assert failed.quarantined == len(not_understood(store)) > 0
