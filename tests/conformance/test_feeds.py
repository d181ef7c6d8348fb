"""The contract of ``pricing_data.feeds.base``, on every price feed, against servers that speak its protocol.

A feed promises:

    parts    named once each, the same ones every time; their batches carry their source and their cloud
    all      every row that the cloud lists, unchanged, and nothing else; the same again when fetched again
    pages    a page is asked for only when the one before has been taken
    resume   a fetch may stop after any page: what is stored and the next fetch together are everything
    errors   FeedError and nothing else, of the kind that says what helps; once the trouble is over, the same
             feed works again
    threads  parts may be fetched at the same time

A feed enters with a line in ``BENCHES``: a context manager that serves a small cloud, and says what is in it.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import pytest

from pricing_data.errors import (
    FeedBroken,
    FeedCredentialsExpired,
    FeedError,
    FeedThrottled,
    FeedUnreachable,
)
from pricing_data.feeds.aws.advisor import AwsAdvisorFeed
from pricing_data.feeds.aws.client import AwsSettings
from pricing_data.feeds.aws.feed import AwsFeed
from pricing_data.feeds.aws.spot_prices import SOURCE as AWS_HISTORY
from pricing_data.feeds.base import AnyBatch, Feed, FeedPart, Page, PartKind
from pricing_data.formats.batches import Batch, OnDemandBatch, RateBatch, TypeBatch, UnreadableBatch
from pricing_data.model.units import Instant, format_instant, parse_instant
from tests.fakes import aws as aws_fake
from tests.fakes import azure as azure_fake
from tests.fakes import gcp as gcp_fake
from tests.fakes.servers import FakeServer, Fault, Reply, Request
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

RETAIL_SOURCE = "azure Retail Prices"
Rows: TypeAlias = dict[tuple[str | int, ...], object]
"""What a row says, by what names it."""


class Trouble(Enum):
    """What a server does."""

    THROTTLES = "throttles"
    FAILS = "fails"
    BREAKS_OFF = "breaks off in the middle of an answer"
    EXPIRED = "no longer knows the credentials"
    TALKS_NONSENSE = "talks nonsense"


ERRORS: dict[Trouble, type[FeedError]] = {
    Trouble.THROTTLES: FeedThrottled,
    Trouble.FAILS: FeedUnreachable,
    Trouble.BREAKS_OFF: FeedUnreachable,
    Trouble.EXPIRED: FeedCredentialsExpired,
    Trouble.TALKS_NONSENSE: FeedBroken,
}
"""What a feed makes of it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A feed under test, the rows of its cloud, and what a test may do to the server."""

    make: Callable[[], Feed]
    rows: Rows
    begin_trouble: Callable[[Trouble], None]
    end_trouble: Callable[[], None]
    count_requests: Callable[[], int]
    needs_login: bool = True
    untroubled: tuple[PartKind, ...] = ()
    """Kinds of data whose requests trouble does not reach, or that the list of parts answers."""


# ---- one for each feed -----------------------------------------------------------------------------


def serve(
    server: FakeServer,
    make: Callable[..., Feed],
    expected: Expected,
    refusals: Mapping[Trouble, Reply],
    *,
    needs_login: bool = True,
    untroubled: tuple[PartKind, ...] = (),
) -> Iterator[Bench]:
    replies: dict[Trouble, Reply | None] = {**refusals, Trouble.BREAKS_OFF: None}

    def begin_trouble(trouble: Trouble) -> None:
        server.faults += [Fault("", replies[trouble])] * 1000

    with server.running() as address:
        yield Bench(
            lambda: make(address, Naps()),
            rows_expected(expected),
            begin_trouble,
            server.faults.clear,
            lambda: len(server.requests),
            needs_login,
            untroubled,
        )


NONSENSE = Reply(body=b'{"Items": 7, "data": 7, "items": 7, "value": 7, "skus": 7, "priceHistory": 7}')


@contextmanager
def gcp_cloud() -> Iterator[Bench]:
    cloud, expected = gcp()
    refusals = {
        Trouble.THROTTLES: gcp_fake.refused(429, "no"),
        Trouble.FAILS: gcp_fake.refused(503, "no"),
        Trouble.EXPIRED: gcp_fake.refused(401, "no"),
        Trouble.TALKS_NONSENSE: NONSENSE,
    }
    yield from serve(cloud.server(), gcp_feed, expected, refusals, untroubled=(PartKind.TYPES,))


def _azure_refusals() -> dict[Trouble, Reply]:
    return {
        Trouble.THROTTLES: azure_fake.refused(429, "No", "no"),
        Trouble.FAILS: azure_fake.refused(503, "No", "no"),
        Trouble.EXPIRED: azure_fake.refused(401, "No", "no"),
        Trouble.TALKS_NONSENSE: NONSENSE,
    }


@contextmanager
def azure_account() -> Iterator[Bench]:
    cloud, expected = azure()
    history = {key: price for key, price in expected.prices.items() if key[0] != RETAIL_SOURCE}
    found = Expected(prices=history, rates=expected.rates, types=expected.types)
    yield from serve(cloud.server(), azure_feed, found, _azure_refusals())


@contextmanager
def azure_retail() -> Iterator[Bench]:
    cloud, expected = azure()
    listed = Expected(prices=dict(of_source(expected, RETAIL_SOURCE)), on_demand=expected.on_demand)
    yield from serve(cloud.server(), retail_feed, listed, _azure_refusals(), needs_login=False)


@contextmanager
def aws_advisor() -> Iterator[Bench]:
    ranges = [{"index": 0, "label": "<5%"}, {"index": 1, "label": "5-10%"}, {"index": 2, "label": ">20%"}]
    bands = ((0.0, 0.05), (0.05, 0.1), (0.2, 1.0))
    content: dict[str, Any] = {"ranges": ranges, "spot_advisor": {}}
    expected = Expected()
    for number, region in enumerate(("us-east-1", "eu-west-1", "ap-south-1")):
        names = ("m5.large", "c5.xlarge", "p3.2xlarge")
        entries = {name: {"r": (number + place) % 3, "s": 70} for place, name in enumerate(names)}
        content["spot_advisor"][region] = {"Linux": entries, "Windows": {"m5.large": {"r": 2, "s": 1}}}
        for name, entry in entries.items():
            expected.rates[region, name, NOW] = bands[entry["r"]]

    def answer(_: Request) -> Reply:
        return Reply(body=json.dumps(content).encode())

    def make(address: str, _: Naps) -> Feed:
        return AwsAdvisorFeed(lambda: NOW, f"{address}/spot-advisor-data.json")

    refusals = {Trouble.THROTTLES: Reply(429), Trouble.FAILS: Reply(503), Trouble.TALKS_NONSENSE: NONSENSE}
    yield from serve(FakeServer(answer), make, expected, refusals, needs_login=False)


AWS_REGIONS = ("us-east-1", "us-west-2")


def _aws_rows(seed: int) -> list[aws_fake.Row]:
    """Eighty days of two markets, with moments at which both change."""
    draw, rows = random.Random(seed), []
    for day in range(1, 80, 4):
        for zone in ("us-east-1a", "us-east-1b"):
            at = Instant(aws_fake.END - day * 86_400 + draw.choice((0, 0, 3600)))
            rows.append((format_instant(at), zone, "c4.xlarge", f"{draw.uniform(0.03, 0.2):.4f}"))
    return rows


def _product(region: str, price: str) -> str:
    """A product as the Price List writes it, shortened."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": price}, "beginRange": "0", "endRange": "Inf"}
    term = {"effectiveDate": "2021-05-01T00:00:00Z", "priceDimensions": {"A.JRTC.6YS6": dimension}}
    attributes = {"instanceType": "m5.large", "regionCode": region, "operatingSystem": "Linux"}
    product = {"productFamily": "Compute Instance", "attributes": attributes, "sku": "A"}
    return json.dumps({"product": product, "terms": {"OnDemand": {"A.JRTC": term}}, "version": "1"})


@contextmanager
def aws_account() -> Iterator[Bench]:
    expected, traces = Expected(types={"m5.large": (2, 8.0, 0)}), {}
    for number, region in enumerate(AWS_REGIONS):
        rows = [(at, zone.replace("us-east-1", region), *more) for at, zone, *more in _aws_rows(number)]
        traces[region] = aws_fake.Trace(rows)  # type: ignore[arg-type]
        for at, zone, name, price in rows:
            expected.prices[AWS_HISTORY, zone, name, parse_instant(at)] = float(price)
        expected.on_demand[region, "m5.large"] = 0.1
    products = {region: [_product(region, "0.1")] for region in AWS_REGIONS}
    cloud = aws_fake.Cloud(traces=traces, products=products, types=("m5.large",), page_size=lambda _: 3)
    codes = {
        Trouble.THROTTLES: aws_fake.Trouble("RequestLimitExceeded"),
        Trouble.FAILS: aws_fake.Trouble("InternalError"),
        Trouble.BREAKS_OFF: aws_fake.Trouble(dropped=True),
        Trouble.EXPIRED: aws_fake.Trouble("RequestExpired"),
    }

    def begin_trouble(trouble: Trouble) -> None:
        if trouble is Trouble.TALKS_NONSENSE:
            cloud.writes = lambda row: {k: v for k, v in aws_fake.as_aws(row).items() if k != "SpotPrice"}
        else:
            cloud.always = dict.fromkeys(AWS_REGIONS, codes[trouble])

    def end_trouble() -> None:
        cloud.always, cloud.writes = {}, None

    with aws_fake.serving(cloud):
        endpoints = {"ec2": cloud.address, "pricing": cloud.address}
        settings = AwsSettings(regions=AWS_REGIONS, endpoints=endpoints, attempts=1)
        yield Bench(
            lambda: AwsFeed(lambda: cloud.now, settings),
            rows_expected(expected),
            begin_trouble,
            end_trouble,
            lambda: len(cloud.calls),
            untroubled=(PartKind.TYPES, PartKind.ON_DEMAND),
        )


BENCHES: dict[str, Callable[[], AbstractContextManager[Bench]]] = {
    "aws": aws_account,
    "aws advisor": aws_advisor,
    "azure": azure_account,
    "azure retail": azure_retail,
    "gcp": gcp_cloud,
}


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name, value in (
        ("AWS_CONFIG_FILE", "/nonexistent/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with BENCHES[request.param]() as opened:
        yield opened


# ---- rows ------------------------------------------------------------------------------------------


def rows_expected(expected: Expected) -> Rows:
    found: Rows = {("price", *key): _comparable(price) for key, price in expected.prices.items()}
    found |= {("rate", *key): band for key, band in expected.rates.items()}
    found |= {("on demand", *key): price for key, price in expected.on_demand.items()}
    return found | {("type", name): shape for name, shape in expected.types.items()}


def _comparable(price: float) -> float | None:
    """NaN, which stands for a market that is no longer listed, does not equal itself."""
    return None if math.isnan(price) else price


def rows_of(batch: AnyBatch) -> Rows:
    match batch:
        case Batch():
            columns = zip(batch.codes.tolist(), batch.times.tolist(), batch.prices.tolist(), strict=True)
            return {
                (
                    "price",
                    batch.source,
                    batch.markets[code].zone,
                    batch.markets[code].instance_type,
                    at,
                ): _comparable(price)
                for code, at, price in columns
            }
        case RateBatch():
            return {
                ("rate", r.market.zone, r.market.instance_type, r.end): (r.low, r.high) for r in batch.rates
            }
        case TypeBatch():
            kinds = [row.instance_type for row in batch.types]
            return {("type", kind.name): (kind.vcpus, kind.memory_gib, kind.gpus) for kind in kinds}
        case OnDemandBatch():
            return {("on demand", price.region, price.instance_type): price.price for price in batch.prices}
        case UnreadableBatch():
            return {}


def rows_on(pages: Sequence[Page]) -> Rows:
    found: Rows = {}
    for page in pages:
        for batch in page.batches:
            found |= rows_of(batch)
    return found


def fetch_whole(feed: Feed, parts: Sequence[FeedPart]) -> Rows:
    found: Rows = {}
    for part in parts:
        found |= rows_on(list(feed.fetch(part, None)))
    return found


# ---- parts and rows --------------------------------------------------------------------------------


def test_all_that_the_cloud_lists_is_found_and_nothing_else_each_time(bench: Bench) -> None:
    feed = bench.make()
    for _ in range(2):
        assert fetch_whole(feed, feed.list_parts()) == bench.rows


def test_parts_are_named_once_and_stay_the_same(bench: Bench) -> None:
    feed = bench.make()
    parts = feed.list_parts()
    assert parts == feed.list_parts() == bench.make().list_parts()
    assert Counter((part.kind, part.name) for part in parts).most_common(1)[0][1] == 1
    assert {part.cloud for part in parts} == {feed.cloud}


def test_batches_carry_the_source_the_cloud_and_the_region_of_their_part(bench: Bench) -> None:
    feed = bench.make()
    for part in feed.list_parts():
        for page in feed.fetch(part, None):
            for batch in page.batches:
                assert batch.source == part.source
                if isinstance(batch, Batch):
                    assert {market.cloud for market in batch.markets} <= {part.cloud}
                    assert {market.region for market in batch.markets} <= {
                        part.region or market.region for market in batch.markets
                    }


def test_parts_may_be_fetched_at_the_same_time(bench: Bench) -> None:
    feed = bench.make()
    with ThreadPoolExecutor(8) as pool:
        fetched = pool.map(lambda part: rows_on(list(feed.fetch(part, None))), feed.list_parts())
        assert {key: row for rows in fetched for key, row in rows.items()} == bench.rows


# ---- pages -----------------------------------------------------------------------------------------


def test_a_page_is_asked_for_when_the_one_before_was_taken(bench: Bench) -> None:
    """What is stored meanwhile survives an interrupt."""
    for part in bench.make().list_parts():
        feed = bench.make()
        feed.list_parts()
        before = bench.count_requests()
        asked = [bench.count_requests() - before for _ in feed.fetch(part, None)]
        if len(asked) > 2:
            assert asked[0] <= asked[-1] / 2, part


def test_a_fetch_that_stops_after_any_page_is_completed_by_the_next(bench: Bench) -> None:
    """The next one asks from the newest row that is stored, where its part has a region."""
    feed = bench.make()
    for part in feed.list_parts():
        pages = list(feed.fetch(part, None))
        whole = rows_on(pages)
        step = max(1, len(pages) // 6)
        for stop in range(1, len(pages), step):
            stored = rows_on(pages[:stop])
            times = [int(key[-1]) for key in stored if key[0] == "price"]
            since = Instant(max(times)) if times and part.region is not None else None
            assert stored | rows_on(list(feed.fetch(part, since))) == whole, (part, stop)


def test_no_row_behind_the_newest_that_was_handed_out_comes_later(bench: Bench) -> None:
    feed = bench.make()
    for part in feed.list_parts():
        if part.region is None:  # never continued from a moment
            continue
        handed: Rows = {}
        newest = 0
        for page in feed.fetch(part, None):
            for batch in page.batches:
                rows = rows_of(batch)
                new = [int(key[-1]) for key in rows.keys() - handed.keys()]
                assert all(at >= newest for at in new)
                handed |= rows
                newest = max([newest, *new])
        assert newest


# ---- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", Trouble, ids=lambda trouble: str(trouble.name).lower())
def test_trouble_is_an_error_that_says_what_it_is_and_is_over_when_it_is_over(
    bench: Bench, trouble: Trouble
) -> None:
    if trouble is Trouble.EXPIRED and not bench.needs_login:
        pytest.skip("it needs no credentials")
    feed = bench.make()
    parts = feed.list_parts()
    bench.begin_trouble(trouble)
    for part in parts:
        if part.kind not in bench.untroubled:
            with pytest.raises(ERRORS[trouble]):
                list(feed.fetch(part, None))
    with suppress(ERRORS[trouble]):  # raised by those who ask for their parts
        bench.make().list_parts()
    bench.end_trouble()
    assert fetch_whole(feed, feed.list_parts()) == bench.rows
