"""GCP and Azure through their own SDKs, against fakes made of the SDKs' models: row by row, and at odds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError

from pricing_data.errors import (
    FeedBroken,
    FeedCredentialsExpired,
    FeedCredentialsRejected,
    FeedError,
    FeedUnavailable,
    FeedUnreachable,
    RegionRefused,
)
from pricing_data.feeds.azure.feed import AzureFeed, AzureSettings
from pricing_data.feeds.azure.retail_prices import SOURCE as RETAIL_PRICES
from pricing_data.feeds.base import Feed, PartKind, narrowed_source
from pricing_data.feeds.fetch import FetchPatience, FetchReport, fetch_all
from tests.fakes import azure as azure_fake
from tests.fakes import gcp as gcp_fake
from tests.fakes.servers import FakeServer, Fault, Reply
from tests.pricing_data.feeds.memory import MemoryStore
from tests.pricing_data.feeds.populated import (
    NOW,
    Expected,
    Naps,
    azure,
    azure_feed,
    gcp,
    gcp_feed,
    of_source,
    retail_feed,
)

_AT_ONCE = FetchPatience(attempts=3, first_wait_s=0.0, longest_wait_s=0.0)


class Cloud:
    """One feed, the server it speaks to, and what it must find."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.naps = Naps()
        self.server, self.expected, self._feed = _clouds()[name]
        self.paths = _PATHS[name]
        """A path for each kind of data."""

    def fetch_all(self, store: MemoryStore | None = None, **settings: Any) -> tuple[FetchReport, MemoryStore]:
        store = store or MemoryStore()
        with self.server.running() as address:
            feed = self._feed(address, self.naps, **settings)
            return fetch_all([feed], store, patience=_AT_ONCE), store

    def refuse_with(self, status: int, **more: Any) -> Reply:
        if self.name == "gcp":
            return gcp_fake.refused(status, "no", **more)
        return azure_fake.refused(status, "No", "no", **more)

    def fail(self, kind: PartKind, reply: Reply | None, times: int = 1, skip: int = 0) -> None:
        self.server.faults += [Fault(self.paths[kind], reply, skip) for _ in range(times)]


_Made = tuple[FakeServer, Expected, Callable[..., Feed]]


def _clouds() -> Mapping[str, _Made]:
    google, in_google = gcp()
    microsoft, in_azure = azure()
    listed = Expected(prices=dict(of_source(in_azure, RETAIL_PRICES)), on_demand=in_azure.on_demand)
    history = {key: price for key, price in in_azure.prices.items() if key[0] != RETAIL_PRICES}
    graph = Expected(prices=history, rates=in_azure.rates, types=in_azure.types)
    return {
        "gcp": (google.server(), in_google, gcp_feed),
        "azure": (microsoft.server(), graph, azure_feed),
        "azure retail": (microsoft.server(), listed, retail_feed),
    }


_PATHS = {
    "gcp": {
        PartKind.PRICES: "/skus",
        PartKind.TYPES: "/aggregated/machineTypes",
        PartKind.RATES: "/capacityHistory",
    },
    "azure": {PartKind.PRICES: "ResourceGraph", PartKind.TYPES: "Microsoft.Compute/skus"},
    "azure retail": {PartKind.PRICES: "/retail/prices"},
}


@pytest.fixture(params=sorted(_PATHS))
def cloud(request: pytest.FixtureRequest) -> Cloud:
    return Cloud(request.param)


def check(store: MemoryStore, expected: Expected) -> None:
    """Every row of the source is in the store, and nothing else is."""
    found = {
        (source, market.zone, market.instance_type, at): price
        for (source, market, at), price in store.prices.items()
    }
    assert found.keys() == expected.prices.keys()
    for key, price in expected.prices.items():
        assert found[key] == price or (math.isnan(price) and math.isnan(found[key])), key
    rates = {(m.zone, m.instance_type, end): (r.low, r.high) for (m, end), r in store.rates.items()}
    assert rates == expected.rates
    types = {
        name: (row.instance_type.vcpus, row.instance_type.memory_gib, row.instance_type.gpus)
        for name, row in store.types.items()
    }
    assert types == expected.types
    on_demand = {(region, name): row.price for (region, name, _), row in store.on_demand.items()}
    assert on_demand == expected.on_demand


def failures(report: FetchReport) -> list[FeedError]:
    return [part.failure for part in report.parts if part.failure is not None]


@pytest.mark.parametrize("name", sorted(_PATHS))
def test_some_types_and_regions_are_all_that_is_asked_for(name: str) -> None:
    cloud = Cloud(name)
    kinds = sorted({kind for _, _, kind, _ in cloud.expected.prices})
    some, regions = kinds[:2], sorted({zone for _, zone, _, _ in cloud.expected.prices})[:1]
    if name == "gcp":
        regions = [zone for _, zone, _, _ in cloud.expected.prices if zone.count("-") == 2][:1]
        narrowing: dict[str, Any] = {"zones": tuple(regions), "machine_types": tuple(some)}
    else:
        narrowing = {"regions": tuple(regions), "sizes": tuple(some)}
    _, store = cloud.fetch_all(**narrowing)
    places = {*regions, *(zone[:-2] for zone in regions if zone.count("-") == 2)}
    expected = cloud.expected.prices
    asked = {
        (narrowed_source(key[0], True), *key[1:]) for key in expected if key[1] in places and key[2] in some
    }
    assert {(source, m.zone, m.instance_type, at) for (source, m, at) in store.prices} == asked
    assert asked
    assert {m.instance_type for m, _ in store.rates} <= set(some)
    assert {m.zone for m, _ in store.rates} <= places
    asked_for = [request.path for request in cloud.server.requests if "capacityHistory" in request.path]
    assert len(asked_for) == (2 if name == "gcp" else 0)


def test_a_type_that_google_does_not_have_is_said() -> None:
    report, _ = Cloud("gcp").fetch_all(machine_types=("n2-standard-3",))
    ((_, error),) = report.unavailable
    assert isinstance(error, FeedUnavailable)
    assert "nothing there is called n2-standard-3" in str(error)


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "7"}], ids=["silent", "retry-after"])
def test_throttled_answers_are_asked_for_again(cloud: Cloud, headers: Mapping[str, str]) -> None:
    for kind in cloud.paths:
        cloud.fail(kind, cloud.refuse_with(429, headers=headers), times=2)
    report, store = cloud.fetch_all()
    assert report.is_complete, failures(report)
    check(store, cloud.expected)
    assert len(cloud.naps) >= 2 * len(cloud.paths)
    assert set(cloud.naps) == {7.0} if headers else 7.0 not in cloud.naps


def test_a_connection_that_breaks_in_the_middle_of_a_page_loses_nothing(cloud: Cloud) -> None:
    for kind in cloud.paths:
        cloud.fail(kind, None, skip=1)
    report, store = cloud.fetch_all()
    assert report.is_complete, failures(report)
    check(store, cloud.expected)
    assert len(cloud.naps) == len(cloud.paths)


def test_a_server_that_fails_is_asked_again(cloud: Cloud) -> None:
    for kind in cloud.paths:
        cloud.fail(kind, cloud.refuse_with(503), times=2)
    report, store = cloud.fetch_all()
    assert report.is_complete, failures(report)
    check(store, cloud.expected)


@pytest.mark.parametrize("cloud", ["gcp", "azure"], indirect=True)
def test_expired_credentials_end_the_feed_and_say_so(cloud: Cloud) -> None:
    for path in cloud.paths.values():
        cloud.server.faults += [Fault(path, cloud.refuse_with(401))] * 100
    report, store = cloud.fetch_all()
    (error,) = (error for _, error in report.unavailable)
    assert isinstance(error, FeedCredentialsExpired)
    assert "Log in with" in str(error)
    assert not store.prices


def test_an_azure_without_a_login_is_unavailable() -> None:
    """The SDK asks its credentials before it asks Azure: nothing is sent."""

    class Nobody:
        def get_token(self, *scopes: str, **_: object) -> object:
            raise ClientAuthenticationError("tried everything\nat length")

    feed = AzureFeed(lambda: NOW, AzureSettings(credentials=Nobody(), endpoint="https://127.0.0.1:1"))
    ((_, error),) = fetch_all([feed], MemoryStore()).unavailable
    assert isinstance(error, FeedUnavailable)
    assert "tried everything)" in str(error)
    assert "az login" in str(error)


def test_credentials_that_expire_on_the_way_keep_what_was_stored() -> None:
    cloud = Cloud("gcp")
    cloud.server.faults += [Fault("us-central1/advice", cloud.refuse_with(401), skip=10)]
    report, store = cloud.fetch_all()
    assert any(isinstance(error, FeedCredentialsExpired) for error in failures(report))
    report, store = cloud.fetch_all(store)
    assert report.is_complete
    check(store, cloud.expected)


def test_a_region_goes_on_where_it_was_throttled() -> None:
    """More than one page of histories: those that are stored are not asked for again."""
    cloud = Cloud("gcp")
    zones = tuple(f"us-central1-{letter}" for letter in "abcdef")
    google, cloud.expected = gcp(zones=zones)
    cloud.server = google.server()
    throttled = cloud.refuse_with(429)
    cloud.server.faults += [Fault("/advice", throttled, skip=30), *[Fault("/advice", throttled)] * 5]
    report, store = cloud.fetch_all()
    assert report.is_complete, failures(report)
    assert sum(part.retries for part in report.parts) > 0
    check(store, cloud.expected)
    asked = sum("/advice" in request.path for request in cloud.server.requests)
    assert asked < 2 * len(zones) * 7


def test_a_project_that_is_closed_to_us_ends_the_feed() -> None:
    cloud = Cloud("gcp")
    cloud.server.faults += [Fault("/machineTypes", cloud.refuse_with(403))] * 10
    report, _ = cloud.fetch_all()
    ((_, error),) = report.unavailable
    assert isinstance(error, FeedCredentialsRejected)


def test_one_region_refused_leaves_the_others() -> None:
    cloud = Cloud("gcp")
    cloud.server.faults += [Fault("europe-west4/advice", cloud.refuse_with(403))] * 100
    report, store = cloud.fetch_all()
    refused = {part.part.name: part.failure for part in report.parts if part.failure is not None}
    assert set(refused) == {"europe-west4"}
    assert isinstance(refused["europe-west4"], RegionRefused)
    assert {market.region for source, market, _ in store.prices if "history" in source.lower()} == {
        "us-central1"
    }


def test_one_subscription_refused_leaves_the_others() -> None:
    cloud = Cloud("azure")
    report, store = cloud.fetch_all(subscriptions=("first", "somebody-elses"))
    refused = {part.part.name: part.failure for part in report.parts if part.failure is not None}
    assert set(refused) == {"somebody-elses"}
    assert isinstance(refused["somebody-elses"], RegionRefused)
    check(store, cloud.expected)


def test_a_quota_that_is_hidden_behind_403_is_waited_for() -> None:
    cloud = Cloud("gcp")
    cloud.fail(PartKind.RATES, cloud.refuse_with(403, reason="rateLimitExceeded"))
    report, store = cloud.fetch_all()
    assert report.is_complete
    check(store, cloud.expected)


def test_a_used_up_quota_is_waited_for_before_the_next_question() -> None:
    microsoft, _ = azure()
    microsoft.quota = {"x-ms-user-quota-remaining": "0", "x-ms-user-quota-resets-after": "00:00:03"}
    cloud = Cloud("azure")
    cloud.server = microsoft.server()
    report, _ = cloud.fetch_all()
    assert report.is_complete
    pages = sum("ResourceGraph" in request.path for request in cloud.server.requests)
    assert cloud.naps == [3.0] * (pages - 3)  # not after the last page of the three queries


def test_a_quota_header_says_how_long_to_wait() -> None:
    cloud = Cloud("azure")
    cloud.fail(PartKind.PRICES, cloud.refuse_with(429, headers={"x-ms-user-quota-resets-after": "00:00:04"}))
    report, store = cloud.fetch_all()
    assert report.is_complete
    assert list(cloud.naps) == [4.0]
    check(store, cloud.expected)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"Items": 7}', b'{"data": 7}', b'{"items": 7, "value": 7}'],
)
def test_an_answer_that_is_none_is_reported_and_nothing_raised(cloud: Cloud, body: bytes) -> None:
    for path in cloud.paths.values():
        cloud.server.faults += [Fault(path, Reply(body=body))] * 100
    report, store = cloud.fetch_all()
    named = [*failures(report), *(error for _, error in report.unavailable)]
    if named:
        assert all(isinstance(error, FeedBroken | FeedUnreachable) for error in named), named
    assert not store.prices


def test_an_answer_that_is_none_for_one_type_keeps_the_others() -> None:
    cloud = Cloud("gcp")
    cloud.server.faults.append(Fault("us-central1/advice", Reply(body=b'{"priceHistory": 7}'), skip=3))
    report, store = cloud.fetch_all()
    (error,) = failures(report)
    assert isinstance(error, FeedBroken)
    missing = cloud.expected.prices.keys() - {
        (source, market.zone, market.instance_type, at) for source, market, at in store.prices
    }
    assert len({key[1:3] for key in missing}) == 1


def test_a_page_token_that_comes_twice_ends_the_listing() -> None:
    cloud = Cloud("gcp")
    round_and_round = Reply(body=b'{"skus": [], "nextPageToken": "again"}')
    cloud.server.faults += [Fault("/skus", round_and_round)] * 100
    report, _ = cloud.fetch_all()
    (error,) = failures(report)
    assert isinstance(error, FeedBroken)
    assert "second time" in str(error)


def test_a_next_page_of_another_host_is_not_followed() -> None:
    cloud = Cloud("azure retail")
    elsewhere = b'{"Items": [], "NextPageLink": "http://elsewhere.example/api/retail/prices"}'
    cloud.server.faults += [Fault("/retail", Reply(body=elsewhere))] * 100
    report, _ = cloud.fetch_all()
    assert {type(error) for error in failures(report)} == {FeedBroken}
