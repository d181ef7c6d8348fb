"""Answers that no AWS ever gave: each ends in whole batches or in a FeedError, never in anything else.

Two levels: answers as botocore hands them on, odd in what they say; and bytes on the wire, through the
real client and its parsers.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pricing_data.errors import FeedError
from pricing_data.feeds.aws import advisor, catalogue, spot_prices
from pricing_data.feeds.aws.client import Answer, AwsSession, AwsSettings
from pricing_data.feeds.base import FeedPart, Page, PartKind
from pricing_data.formats.batches import Batch, UnreadableBatch
from pricing_data.model.units import Instant, parse_instant

_NOW = parse_instant("2026-11-20")
_PRICES = FeedPart("aws", PartKind.PRICES, "us-east-1", spot_prices.SOURCE, "us-east-1")
_ON_DEMAND = FeedPart("aws", PartKind.ON_DEMAND, "us-east-1", catalogue.ON_DEMAND_SOURCE)
_TYPES = FeedPart("aws", PartKind.TYPES, "us-east-1", catalogue.TYPES_SOURCE)

_texts = st.one_of(
    st.sampled_from(["us-east-1a", "m5.large", "0.096000", "", "NaN", "-1", "0", "1e999", "1_0", "x"]),
    st.sampled_from(
        ["2026-11-19T00:00:00.000Z", "2026-11-19T00:00:00+01:00", "2026-13-40T00:00:00Z", "0001"]
    ),
    st.text(max_size=24),
)
_rows = st.dictionaries(
    st.sampled_from(["AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp"]),
    _texts,
)
_sound = st.fixed_dictionaries(
    {
        "AvailabilityZone": st.sampled_from(["us-east-1a", "us-east-1b"]),
        "InstanceType": st.sampled_from(["m5.large", "p3.2xlarge"]),
        "SpotPrice": _texts,
        "Timestamp": st.sampled_from(["2026-11-19T00:00:00.000Z", "2026-11-18T00:00:00Z"]),
    }
)
_answers = st.fixed_dictionaries(
    {},
    optional={
        "SpotPriceHistory": st.lists(st.one_of(_sound, _rows), max_size=4),
        "NextToken": st.sampled_from(["", "a", "b"]),
    },
)
_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


def _drain_pages(pages: Iterator[Page]) -> tuple[list[Page], FeedError | None]:
    got = []
    try:
        for page in pages:
            got.append(page)  # noqa: PERF402 - what came before the error counts
    except FeedError as error:
        return got, error
    return got, None


def _rows_of(answers: list[dict[str, Any]]) -> Iterator[list[dict[str, str]]]:
    """Returns the rows of the pages that are requested: up to the first without a token."""
    for answer in answers:
        yield answer.get("SpotPriceHistory", [])
        if not answer.get("NextToken"):
            return


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_answers, min_size=1, max_size=4))
def test_odd_price_answers(answers: list[dict[str, Any]]) -> None:
    """Every row is in a batch or put aside as it came; only pages without end are refused."""
    waiting = [*answers, {}]

    def describe(**_: object) -> Answer:
        return waiting.pop(0) if waiting else {}

    since = Instant(_NOW - 3600)
    pages, error = _drain_pages(spot_prices.price_pages(describe, _PRICES, since, lambda: _NOW))
    batches = [batch for page in pages for batch in page.batches if isinstance(batch, Batch)]
    aside = [
        row.text for page in pages for b in page.batches if isinstance(b, UnreadableBatch) for row in b.rows
    ]
    assert all(not np.isnan(batch.prices).any() for batch in batches), "nobody said it was delisted"
    if error is not None:
        assert not batches
    else:
        given = [json.dumps(row, sort_keys=True) for row in itertools.chain(*_rows_of(answers))]
        odd = [row for row in given if any(text.endswith(row) for text in aside)]
        assert len(odd) + sum(map(len, batches)) == len(given) == sum(page.rows for page in pages)
        assert len(aside) == len(set(odd))


_attributes = {"instanceType": "m5.large"}
_products = st.one_of(
    st.text(max_size=12),
    _json.map(json.dumps),
    st.fixed_dictionaries({"product": _json, "terms": _json}).map(json.dumps),
    st.fixed_dictionaries(
        {
            "product": st.just({"attributes": _attributes}),
            "terms": st.fixed_dictionaries(
                {
                    "OnDemand": st.dictionaries(
                        _texts, st.fixed_dictionaries({"effectiveDate": _texts, "priceDimensions": _json})
                    )
                }
            ),
        }
    ).map(json.dumps),
)


@given(st.lists(_products, max_size=3))
def test_odd_price_lists(listed: list[str]) -> None:
    answer = {"PriceList": listed}
    _drain_pages(catalogue.on_demand_pages(lambda **_: answer, _ON_DEMAND, lambda: _NOW))


@given(
    st.lists(st.dictionaries(st.sampled_from(["InstanceType", "VCpuInfo", "MemoryInfo", "GpuInfo"]), _json))
)
def test_odd_instance_types(described: list[dict[str, Any]]) -> None:
    answer = {"InstanceTypes": described}
    _drain_pages(catalogue.type_pages(lambda **_: answer, _TYPES, lambda: _NOW))


@given(st.one_of(_json, st.fixed_dictionaries({"ranges": _json, "spot_advisor": _json})))
def test_odd_advisor_files(content: object) -> None:
    text = base64.b64encode(json.dumps(content).encode()).decode()
    feed = advisor.AwsAdvisorFeed(lambda: _NOW, f"data:application/json;base64,{text}")
    _drain_pages(feed.fetch(feed.list_parts()[0], None))


_WIRE = b"""<?xml version="1.0" encoding="UTF-8"?>
<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>
<spotPriceHistorySet><item><instanceType>m5.large</instanceType><productDescription>Linux/UNIX</productDescription>
<spotPrice>0.035000</spotPrice><timestamp>2026-11-19T04:32:53.000Z</timestamp>
<availabilityZone>us-east-1a</availabilityZone></item></spotPriceHistorySet><nextToken></nextToken>
</DescribeSpotPriceHistoryResponse>"""
_ERROR = b"""<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message>
</Error></Errors><RequestID>1</RequestID></Response>"""


class _Raw:
    """Stands for what urllib3 would hand to botocore."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


@pytest.fixture(scope="module")
def wire() -> tuple[Callable[..., Answer], list[tuple[int, bytes]]]:
    """A real client whose answers are what the list holds last."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ACCESS_KEY_ID", "testing")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        client = AwsSession(AwsSettings(attempts=1, retry_mode="standard")).make_client("ec2", "us-east-1")
    answers: list[tuple[int, bytes]] = []

    def answer(request: Any, **_: object) -> AWSResponse:
        status, body = answers[-1]
        return AWSResponse(request.url, status, HTTPHeaders(), _Raw(body))

    client.meta.events.register("before-send.ec2.DescribeSpotPriceHistory", answer)
    return client.describe_spot_price_history, answers


@st.composite
def _mutate_answer(draw: st.DrawFn) -> bytes:
    """A sound answer with a few bytes changed, cut out or doubled."""
    body = bytearray(draw(st.sampled_from([_WIRE, _ERROR])))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(body)))
        end = min(len(body), begin + draw(st.integers(0, 40)))
        body[begin:end] = draw(
            st.sampled_from([b"", b"<", b">", b"&", b"\xff", b"</item>", bytes(body[begin:end]) * 2])
        )
    return bytes(body)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(status=st.sampled_from([200, 200, 200, 400, 403, 429, 500, 503]), body=_mutate_answer())
def test_odd_bytes_on_the_wire(
    wire: tuple[Callable[..., Answer], list[tuple[int, bytes]]], status: int, body: bytes
) -> None:
    describe, answers = wire
    answers[:] = [(status, body)]
    since = Instant(_NOW - 3600)
    pages, error = _drain_pages(spot_prices.price_pages(describe, _PRICES, since, lambda: _NOW))
    if status != 200:
        assert error is not None
    if error is not None:
        assert not any(isinstance(batch, Batch) for page in pages for batch in page.batches)


def test_a_sound_answer_through_the_same_wire(
    wire: tuple[Callable[..., Answer], list[tuple[int, bytes]]],
) -> None:
    describe, answers = wire
    answers[:] = [(200, _WIRE)]
    *_, last = spot_prices.price_pages(describe, _PRICES, Instant(_NOW - 3600), lambda: _NOW)
    (batch,) = last.batches
    assert isinstance(batch, Batch)
    assert batch.times.tolist() == [parse_instant("2026-11-19T04:32:53Z")]
    assert batch.prices.tolist() == [0.035]
