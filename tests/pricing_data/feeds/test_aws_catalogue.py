"""Types, on-demand prices and advisor bands: from AWS's own answers, examples and recorded files."""

from __future__ import annotations

import csv
import gzip
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from pricing_data.errors import FeedBroken, FeedError, FeedUnreachable
from pricing_data.feeds.aws import catalogue
from pricing_data.feeds.aws.advisor import MONTH_S, AwsAdvisorFeed
from pricing_data.feeds.aws.client import AwsSettings
from pricing_data.feeds.aws.feed import AwsFeed
from pricing_data.feeds.base import FeedPart, PartKind
from pricing_data.feeds.fetch import FetchPatience, fetch_all
from pricing_data.formats.batches import OnDemandBatch, TypeBatch, UnreadableBatch
from pricing_data.model.units import Instant, parse_instant
from tests.fakes.aws import Cloud, serving
from tests.pricing_data.feeds.memory import MemoryStore

_NOW = parse_instant("2026-11-20")
_ONCE = FetchPatience(attempts=1)
_ON_DEMAND = FeedPart("aws", PartKind.ON_DEMAND, "us-east-1", catalogue.ON_DEMAND_SOURCE)


def _product(name: str, price: str, unit: str = "Hrs") -> str:
    """Returns a product as the Price List writes it, shortened."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": price}, "beginRange": "0", "endRange": "Inf"}
    term = {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"A.JRTC.6YS6": dimension}}
    attributes = {"instanceType": name, "regionCode": "us-east-1", "operatingSystem": "Linux"}
    product = {"productFamily": "Compute Instance", "attributes": attributes, "sku": "A"}
    return json.dumps({"product": product, "terms": {"OnDemand": {"A.JRTC": term}}, "version": "1"})


def test_types_and_on_demand_prices_of_a_region_arrive() -> None:
    listed = [_product(f"m5.{size}xlarge", f"0.{size:02}") for size in range(2, 14)]
    upfront = _product("m5.large", "99.0", unit="Quantity")
    with serving(Cloud(products={"us-east-1": [*listed, upfront]})) as cloud:
        endpoints = {"ec2": cloud.address, "pricing": cloud.address}
        feed = AwsFeed(lambda: _NOW, AwsSettings(regions=("us-east-1",), endpoints=endpoints, attempts=2))
        store = MemoryStore()
        report = fetch_all([feed], store, kinds=[PartKind.TYPES, PartKind.ON_DEMAND], patience=_ONCE)
    assert report.is_complete, report
    assert len(store.on_demand) == len(listed)
    price = store.on_demand["us-east-1", "m5.12xlarge", parse_instant("2026-11-01")]
    assert (price.cloud, price.price) == ("aws", 0.12)
    assert len(store.types) > 500
    gpus = {name: (row.instance_type.gpus, row.gpu_name) for name, row in store.types.items()}
    assert gpus["m5.large"] == (0, "")
    assert gpus["g5.12xlarge"] == (4, "A10G")
    assert store.types["m5.large"].instance_type.memory_gib == 8
    assert store.types["m5.large"].instance_type.vcpus == 2


def test_the_made_up_price_list_has_the_shape_that_aws_documents() -> None:
    """botocore refuses an answer that its model of the service does not allow."""
    client = boto3.client("pricing", region_name="us-east-1")
    with Stubber(client) as stubbed:
        stubbed.add_response("get_products", {"FormatVersion": "aws_v1", "PriceList": [_product("a", "1")]})
        (page, last) = catalogue.on_demand_pages(client.get_products, _ON_DEMAND, lambda: _NOW)
    assert page.rows == 1
    assert len(last.batches) == 1


_NO_PRODUCTS = ["{", "[]", "{}", '"a"', "null", "[" * 100_000, _product("m5.large", "cheap")]


@pytest.mark.parametrize("listed", _NO_PRODUCTS)
def test_an_item_that_is_no_product_keeps_no_other_back(listed: str) -> None:
    answer = {"PriceList": [_product("m5.xlarge", "1"), listed]}
    *_, last = catalogue.on_demand_pages(lambda **_: answer, _ON_DEMAND, lambda: _NOW)
    prices, aside = last.batches
    assert isinstance(prices, OnDemandBatch)
    assert [one.instance_type for one in prices.prices] == ["m5.xlarge"]
    assert isinstance(aside, UnreadableBatch)
    assert json.dumps(listed) in aside.rows[0].text
    assert "1 rows were not understood" in last.left_out


def test_a_type_without_a_size_keeps_no_other_back() -> None:
    sound = {"InstanceType": "a", "VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 512}}
    answer = {"InstanceTypes": [sound, {"InstanceType": "b"}]}
    part = FeedPart("aws", PartKind.TYPES, "us-east-1", catalogue.TYPES_SOURCE)
    *_, last = catalogue.type_pages(lambda **_: answer, part, lambda: _NOW)
    types, aside = last.batches
    assert isinstance(types, TypeBatch)
    assert [row.instance_type.name for row in types.types] == ["a"]
    assert isinstance(aside, UnreadableBatch)
    assert aside.rows[0].text == 'it has no VCpuInfo: {"InstanceType": "b"}'


def test_answers_without_one_sound_row_are_a_failure() -> None:
    with pytest.raises(FeedBroken, match="us-east-1 on-demand prices"):
        list(catalogue.on_demand_pages(lambda **_: {"PriceList": ["{"]}, _ON_DEMAND, lambda: _NOW))


def _advisor(recorded_data: Path, date: str) -> dict[str, Any]:
    """The advisor's file of that day, put together again from its recorded rows."""
    labels = ["<5%", "5-10%", "10-15%", "15-20%", ">20%"]
    said: dict[str, Any] = defaultdict(lambda: defaultdict(dict))
    path = recorded_data / "aws-spot-advisor" / "spot_advisor.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["snapshot_date"] == date:
                found = {"r": int(row["interruption_bucket"]), "s": int(row["savings_pct"])}
                said[row["region"]][row["os"]][row["instance_type"]] = found
    ranges = [{"index": index, "label": label, "dots": index} for index, label in enumerate(labels)]
    return {"ranges": ranges, "spot_advisor": said}


@contextmanager
def _file(content: bytes, status: int = 200, announced: int | None = None) -> Iterator[str]:
    """An address that answers with ``content``; ``announced`` bytes are promised where that is not all."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) if announced is None else announced))
            self.send_header("Last-Modified", "Wed, 18 Nov 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
            """Tests are quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/spot-advisor-data.json"
        finally:
            server.shutdown()
            thread.join()


def test_the_advisors_bands_become_rates_of_a_month(recorded_data: Path) -> None:
    content = _advisor(recorded_data, "2025-06-28")
    linux = {
        (region, name): found["r"]
        for region, systems in content["spot_advisor"].items()
        for name, found in systems["Linux"].items()
    }
    store = MemoryStore()
    with _file(json.dumps(content).encode()) as address:
        report = fetch_all([AwsAdvisorFeed(lambda: _NOW, address)], store)
    assert report.is_complete
    assert report.parts[0].rows == report.parts[0].new == len(linux) > 10_000
    written = parse_instant("2026-11-18")
    ends = [(0.0, 0.05), (0.05, 0.1), (0.1, 0.15), (0.15, 0.2), (0.2, 1.0)]
    for (market, end), rate in store.rates.items():
        assert (market.zone, end, rate.observed) == (market.region, written, _NOW)
        assert (rate.begin, rate.per_s) == (written - MONTH_S, MONTH_S)
        assert (rate.low, rate.high) == ends[linux[market.region, market.instance_type]]


@pytest.mark.parametrize(
    ("content", "status", "expected"),
    [
        (b"<html>", 200, FeedBroken),
        (b"[]", 200, FeedBroken),
        (b'{"ranges": [{"index": 0, "label": "seldom"}], "spot_advisor": {}}', 200, FeedBroken),
        (b"", 404, FeedBroken),
    ],
)
def test_an_address_without_the_advisors_file_is_said(
    content: bytes, status: int, expected: type[FeedError]
) -> None:
    with _file(content, status) as address:
        report = fetch_all([AwsAdvisorFeed(lambda: _NOW, address)], MemoryStore(), patience=_ONCE)
    failure = report.parts[0].failure
    assert isinstance(failure, expected)
    assert address in str(failure)


def test_an_entry_of_the_advisors_that_is_none_keeps_no_other_back() -> None:
    ranges = [{"index": 0, "label": "<5%"}]
    entries: dict[str, Any] = {"m5.large": {"r": 0}, "m5.xlarge": {"r": 9}, "odd": None, "odder": {"r": []}}
    content = {"ranges": ranges, "spot_advisor": {"us-east-1": {"Linux": entries}}}
    store = MemoryStore()
    with _file(json.dumps(content).encode()) as address:
        report = fetch_all([AwsAdvisorFeed(lambda: _NOW, address)], store)
    assert report.is_complete
    assert [market.instance_type for market, _ in store.rates] == ["m5.large"]
    assert len(store.unreadable) == 3
    assert "3 rows were not understood" in report.parts[0].left_out


def test_half_an_advisors_file_is_no_file() -> None:
    store = MemoryStore()
    with _file(b'{"ranges": []', announced=500) as address:
        report = fetch_all([AwsAdvisorFeed(lambda: Instant(0), address)], store, patience=_ONCE)
    assert isinstance(report.parts[0].failure, FeedUnreachable)
    assert not store.rates
