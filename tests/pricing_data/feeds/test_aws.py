"""The AWS feed against moto with recorded prices: every row once, whatever goes wrong on the way."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.errors import (
    FeedBroken,
    FeedCredentialsExpired,
    FeedThrottled,
    FeedUnavailable,
    RegionRefused,
)
from pricing_data.feeds.aws.client import AwsSettings
from pricing_data.feeds.aws.feed import AwsFeed
from pricing_data.feeds.aws.spot_prices import SOURCE
from pricing_data.feeds.base import PartKind, narrowed_source
from pricing_data.feeds.fetch import FetchPatience, FetchReport, PartReport, fetch_all
from pricing_data.formats.quality import Flaw
from pricing_data.model.units import Instant, parse_instant
from pricing_data.store.store import PriceStore
from tests.fakes.aws import END, Cloud, Row, Trace, Trouble, as_aws, recorded_2021, serving
from tests.pricing_data.feeds.memory import MemoryStore

_REGIONS = ("us-east-1", "us-west-2")
_HASTE = FetchPatience(attempts=4, first_wait_s=0.01)
_DROPPED = Trouble(dropped=True)
_THROTTLED = Trouble("RequestLimitExceeded")


@pytest.fixture(scope="module")
def rows(recorded_data: Path) -> list[Row]:
    """Some 2 000 recorded rows."""
    return recorded_2021(recorded_data, lambda name: name in ("c4.xlarge", "c4.2xlarge", "g4dn.xlarge"))


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    with serving(Cloud()) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def feed(server: Cloud) -> AwsFeed:
    """One for all tests: making one reads AWS's service model."""
    return _feed(server, _REGIONS)


@pytest.fixture
def cloud(server: Cloud, rows: list[Row]) -> Cloud:
    """The same server for all tests, as new."""
    fresh = Cloud(server.address, {region: Trace(rows) for region in _REGIONS})
    for name in Cloud.__dataclass_fields__:
        setattr(server, name, getattr(fresh, name))
    return server


def _feed(cloud: Cloud, regions: tuple[str, ...]) -> AwsFeed:
    endpoints = {"ec2": cloud.address, "pricing": cloud.address}
    return AwsFeed(lambda: cloud.now, AwsSettings(regions=regions, endpoints=endpoints, attempts=2))


def _fetch(feed: AwsFeed, store: MemoryStore, patience: FetchPatience = _HASTE) -> FetchReport:
    return fetch_all([feed], store, kinds=[PartKind.PRICES], patience=patience)


def _stored_rows(store: MemoryStore, region: str) -> set[tuple[str, str, int, float]]:
    return {
        (market.zone, market.instance_type, at, price)
        for (source, market, at), price in store.prices.items()
        if (source, market.region) == (SOURCE, region)
    }


def _expected_rows(rows: list[Row]) -> set[tuple[str, str, int, float]]:
    return {(zone, name, parse_instant(at), float(price)) for at, zone, name, price in rows}


@pytest.mark.usefixtures("cloud")
def test_every_recorded_row_arrives_once(feed: AwsFeed, rows: list[Row]) -> None:
    store = MemoryStore()
    report = _fetch(feed, store)
    assert report.is_complete
    for region in _REGIONS:
        assert _stored_rows(store, region) == _expected_rows(rows)
    assert {part.new for part in report.parts} == {len(rows)}
    assert all(part.cursor == "up to 2021-05-10T00:00:00Z" for part in report.parts)


def test_what_is_newer_than_the_store_is_all_that_a_second_fetch_asks_for(
    cloud: Cloud, feed: AwsFeed, rows: list[Row]
) -> None:
    store = MemoryStore()
    cloud.now = parse_instant("2021-04-20T12:00:00Z")
    _fetch(feed, store)
    cloud.now = END
    before = len(cloud.calls)
    report = _fetch(feed, store)
    newest = parse_instant("2021-04-20T00:00:00Z")
    assert all(start >= newest for _, start, _ in cloud.calls[before:])
    assert _stored_rows(store, "us-east-1") == _expected_rows(rows)
    assert sum(part.new for part in report.parts) < len(rows)
    assert not sum(part.new for part in _fetch(feed, store).parts), "nothing is new the third time"


def test_some_types_and_zones_are_fetched_whole_and_leave_no_hole_behind(
    cloud: Cloud, rows: list[Row]
) -> None:
    endpoints = {"ec2": cloud.address, "pricing": cloud.address}
    some = AwsSettings(
        regions=_REGIONS, zones=("us-east-1b", "us-east-1c"), types=("c4.xlarge",), endpoints=endpoints
    )
    store = MemoryStore()
    for count in (1, 0):
        report = _fetch(AwsFeed(lambda: cloud.now, some), store)
        assert report.is_complete
        assert sum(part.new > 0 for part in report.parts) == 2 * count, "the second time all are known"
    asked = {row for row in _expected_rows(rows) if row[0] in some.zones and row[1] in some.types}
    stored = {
        (market.zone, market.instance_type, at, price)
        for (source, market, at), price in store.prices.items()
        if source == narrowed_source(SOURCE, True) and market.region == "us-east-1"
    }
    assert stored == asked
    assert {at for _, at, _ in cloud.calls} == {at for _, at, _ in cloud.calls[: len(cloud.calls) // 2]}
    _fetch(_feed(cloud, _REGIONS), store)
    assert _stored_rows(store, "us-east-1") == _expected_rows(rows), (
        "whoever fetches everything starts at the beginning"
    )


def test_the_price_in_force_when_the_history_begins_is_kept(
    cloud: Cloud, feed: AwsFeed, rows: list[Row]
) -> None:
    begins = parse_instant("2021-05-03")
    store = MemoryStore()
    cloud.now = Instant(begins + 90 * 86400)
    _fetch(feed, store)
    stored = _stored_rows(store, "us-east-1")
    assert {row[:2] for row in stored if row[2] < begins} == {row[:2] for row in _expected_rows(rows)}
    assert {row for row in _expected_rows(rows) if row[2] >= begins} <= stored <= _expected_rows(rows)


def test_short_and_empty_pages_are_not_the_end(cloud: Cloud, feed: AwsFeed, rows: list[Row]) -> None:
    cloud.page_size = lambda page: (97, 0, 1, 250)[page % 4]
    store = MemoryStore()
    assert _fetch(feed, store).is_complete
    assert _stored_rows(store, "us-west-2") == _expected_rows(rows)


@pytest.mark.parametrize(
    "trouble", [_THROTTLED, _DROPPED, Trouble("InternalError"), Trouble("InvalidNextToken")]
)
def test_a_while_of_trouble_is_waited_out(
    cloud: Cloud, feed: AwsFeed, rows: list[Row], trouble: Trouble
) -> None:
    cloud.trouble["us-east-1"].extend([None, None, trouble, trouble])
    store = MemoryStore()
    report = _fetch(feed, store)
    assert report.is_complete
    assert sum(part.retries for part in report.parts) in (1, 2), "botocore asks again, or not"
    assert _stored_rows(store, "us-east-1") == _stored_rows(store, "us-west-2") == _expected_rows(rows)


def test_throttling_without_end_is_reported_and_the_next_fetch_goes_on(
    cloud: Cloud, feed: AwsFeed, rows: list[Row]
) -> None:
    cloud.trouble["us-east-1"].extend([None] * 5)
    cloud.always["us-east-1"] = _THROTTLED
    store = MemoryStore()
    by_name = {part.part.name: part for part in _fetch(feed, store, FetchPatience(attempts=1)).parts}
    assert isinstance(by_name["us-east-1"].failure, FeedThrottled)
    assert "RequestLimitExceeded" in str(by_name["us-east-1"].failure)
    assert 0 < by_name["us-east-1"].new < len(rows)
    assert by_name["us-west-2"].done
    cloud.always.clear()
    assert _fetch(feed, store).is_complete
    assert _stored_rows(store, "us-east-1") == _expected_rows(rows)


def test_an_expired_credential_keeps_what_was_stored(cloud: Cloud, feed: AwsFeed, rows: list[Row]) -> None:
    for region in _REGIONS:
        cloud.trouble[region].extend([None] * 8)
        cloud.always[region] = Trouble("RequestExpired")
    store = MemoryStore()
    report = _fetch(feed, store)
    assert all(isinstance(part.failure, FeedCredentialsExpired) for part in report.parts)
    assert "Log in again" in str(report.parts[0].failure)
    newest = max(row[2] for row in _stored_rows(store, "us-east-1"))
    assert {row for row in _expected_rows(rows) if row[2] <= newest} == _stored_rows(store, "us-east-1")
    cloud.always.clear()
    assert _fetch(feed, store).is_complete
    assert _stored_rows(store, "us-east-1") == _stored_rows(store, "us-west-2") == _expected_rows(rows)


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "OptInRequired"])
def test_a_refused_region_is_reported_and_the_others_are_fetched(
    cloud: Cloud, feed: AwsFeed, rows: list[Row], code: str
) -> None:
    cloud.always["us-west-2"] = Trouble(code)
    store = MemoryStore()
    by_name = {part.part.name: part for part in _fetch(feed, store).parts}
    assert isinstance(by_name["us-west-2"].failure, RegionRefused)
    assert "us-west-2" in str(by_name["us-west-2"].failure)
    assert by_name["us-west-2"].retries == 0
    assert by_name["us-east-1"].done
    assert _stored_rows(store, "us-east-1") == _expected_rows(rows)


_SPOILS = (
    {"SpotPrice": "cheap"},
    {"SpotPrice": "NaN"},
    {"Timestamp": None},
    {"InstanceType": None},
)


def _spoil_rows(row: Row) -> dict[str, str]:
    """Every g4dn row, in one way or another."""
    at, zone, name, _ = row
    written = {**as_aws(row), **_SPOILS[(len(zone) + parse_instant(at)) % len(_SPOILS)]}
    return as_aws(row) if name != "g4dn.xlarge" else {k: v for k, v in written.items() if v is not None}


def test_rows_that_are_none_are_put_aside_and_keep_no_other_back(
    cloud: Cloud, feed: AwsFeed, rows: list[Row], tmp_path: Path
) -> None:
    cloud.writes = _spoil_rows
    store = PriceStore(tmp_path)
    spoilt = {json.dumps(_spoil_rows(row), sort_keys=True) for row in rows if row[2] == "g4dn.xlarge"}
    sound = {row for row in _expected_rows(rows) if row[1] != "g4dn.xlarge"}
    for fetched in (1, 2):
        report = fetch_all([feed], store, kinds=[PartKind.PRICES], patience=_HASTE)
        assert report.is_complete
        aside = [row.text for row in store.quality.list_quarantined() if row.reason is Flaw.NOT_UNDERSTOOD]
        assert {text[text.index("{") :] for text in aside} == spoilt
        assert len(store.frame(until=END)) == len(_REGIONS) * len(sound)
        if fetched == 1:
            said = report.parts[0].left_out
            assert f"{len(spoilt)} rows were not understood and are in quarantine, such as " in said
    assert not any(part.new or part.quarantined for part in report.parts), "the second time all are known"
    flaws = {one.kind: one.count for one in store.quality.findings() if one.kind.is_quarantining}
    assert flaws == {Flaw.NOT_UNDERSTOOD: len(spoilt)}


def test_a_region_of_which_no_row_is_one_has_failed(cloud: Cloud, feed: AwsFeed) -> None:
    cloud.writes = lambda row: {key: text for key, text in as_aws(row).items() if key != "SpotPrice"}
    store = MemoryStore()
    report = _fetch(feed, store)
    assert {type(part.failure) for part in report.parts} == {FeedBroken}
    assert "it has no SpotPrice" in str(report.parts[0].failure)
    assert store.unreadable
    assert not store.prices


def test_pages_that_never_end_are_noticed_and_nothing_of_them_is_stored(cloud: Cloud, feed: AwsFeed) -> None:
    cloud.page_size = lambda _: 50
    cloud.same_token = True
    store = MemoryStore()
    report = _fetch(feed, store)
    assert all(isinstance(part.failure, FeedBroken) for part in report.parts)
    assert "NextToken" in str(report.parts[0].failure)
    assert not store.prices
    assert len(cloud.calls) == 4 * 2 + 2


@pytest.mark.usefixtures("cloud")
def test_an_interrupt_keeps_whole_spans_and_the_next_fetch_completes_them(
    feed: AwsFeed, rows: list[Row]
) -> None:
    store = MemoryStore()
    heard_in = set()

    def interrupted(report: PartReport) -> None:
        heard_in.add(threading.current_thread())
        if report.new > 500:
            raise KeyboardInterrupt

    report = fetch_all([feed], store, kinds=[PartKind.PRICES], progress=interrupted)
    assert report.interrupted
    assert heard_in == {threading.current_thread()}
    for region in _REGIONS:
        stored = _stored_rows(store, region)
        newest = max((row[2] for row in stored), default=0)
        assert stored == {row for row in _expected_rows(rows) if row[2] <= newest}
    assert not all(part.done for part in report.parts)
    assert _fetch(feed, store).is_complete
    assert _stored_rows(store, "us-east-1") == _stored_rows(store, "us-west-2") == _expected_rows(rows)


def test_all_enabled_regions_are_parts(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.address)
    parts = AwsFeed(lambda: END).list_parts()
    named = {part.name for part in parts if part.kind is PartKind.PRICES}
    assert {"us-east-1", "eu-west-1"} <= named
    assert len(parts) == 3 * len(named)


def test_without_credentials_or_sdk_the_feed_says_how_to_get_them(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    report = fetch_all([_feed(cloud, ())], MemoryStore())
    ((name, error),) = report.unavailable
    assert name == "aws"
    assert isinstance(error, FeedUnavailable)
    assert "aws configure" in str(error)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(FeedUnavailable, match=r"pip install 'spotctl\[aws\]'"):
        _feed(cloud, ()).list_parts()


@pytest.mark.campaign
def test_a_long_recorded_trace_row_by_row(
    server: Cloud, recorded_data: Path, tmp_path: Path, campaign: bool
) -> None:
    """Into a store on the disk: all 169 445 rows of the record with --campaign."""
    rows = recorded_2021(recorded_data, lambda name: campaign or name.startswith("c4."))
    server.traces, server.now = {"us-east-1": Trace(rows)}, END
    store = PriceStore(tmp_path)
    report = fetch_all([_feed(server, ("us-east-1",))], store, kinds=[PartKind.PRICES])
    assert report.is_complete
    assert report.parts[0].new + report.parts[0].quarantined == len(rows) >= (100_000 if campaign else 1_000)
    frame = store.frame()
    times = [int(at.timestamp()) for at in frame["time_utc"]]
    columns = (
        frame["zone"].tolist(),
        frame["instance_type"].tolist(),
        times,
        frame["price_usd_hour"].tolist(),
    )
    believed: set[tuple[str, str, int, float]] = set(zip(*columns, strict=True))
    assert len(believed) == len(frame) == report.parts[0].new
    assert believed <= _expected_rows(rows)
    missing = _expected_rows(rows) - believed
    set_aside = {
        (one.market.zone, one.market.instance_type, one.at)
        for one in store.quality.list_quarantined()
        if one.market
    }
    assert {row[:3] for row in missing} == set_aside
