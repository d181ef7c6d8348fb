"""``prices fetch`` against servers that speak the clouds' protocols, through the real SDKs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pricing_data.errors import (
    FeedCredentialsExpired,
    FeedCredentialsRejected,
    FeedError,
    FeedUnavailable,
    FeedUnreachable,
    RegionRefused,
)
from pricing_data.feeds.base import FeedPart, PartKind
from pricing_data.feeds.fetch import FetchReport, PartReport
from pricing_data.model.units import Instant, format_instant
from pricing_data.store.store import PriceStore
from spotctl.cli.views.fetch import FetchBars, FetchLines, describe_part
from spotctl.prices.fetch_plan import exit_code
from spotctl.timesource import wall_clock
from tests.fakes.aws import Cloud, Row, Trace, Trouble, serving
from tests.spotctl.cli.commandline import spotctl
from tests.spotctl.cli.test_terminal import SPOTCTL, Terminal

ROOT = Path(__file__).resolve().parents[4]
DAYS = 4
ZONES = ("us-east-1a", "us-east-1b")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    advisor = tmp_path / "advisor.json"
    said = {"us-east-1": {"Linux": {"c5.xlarge": {"s": 60, "r": 1}}}}
    ranges = [{"index": 0, "label": "<5%"}, {"index": 1, "label": "5-10%"}]
    advisor.write_text(json.dumps({"ranges": ranges, "spot_advisor": said}))
    monkeypatch.setenv("SPOTCTL_AWS_ADVISOR", advisor.as_uri())
    return tmp_path / "home"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """us-east-1 with an hourly price in two zones until an hour ago, one type, and an empty price list."""
    made = Cloud(traces={"us-east-1": Trace(hourly())}, products={"us-east-1": []}, types=["c5.xlarge"])
    with serving(made) as cloud:
        monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.address)
        yield cloud


def hourly(until: float | None = None) -> list[Row]:
    last = int(until or wall_clock()) // 3600 * 3600
    return [
        (format_instant(Instant(last - 3600 * n)), zone, "c5.xlarge", f"{0.05 + n % 7 / 1000:.4f}")
        for n in range(1, DAYS * 24)
        for zone in ZONES
    ]


def fetched(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-1", *arguments, "--json")
    report: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, report


def part(report: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = (part for part in report["parts"] if part["kind"] == kind)
    return dict(found)


def test_a_fetch_fills_the_store_and_the_advice(aws: Cloud, home: Path) -> None:
    status, report = fetched()
    assert status == 0
    rows = len(aws.traces["us-east-1"].rows)
    assert part(report, "prices")["new"] == rows
    assert part(report, "eviction rates")["new"] == 1
    assert part(report, "instance types")["done"]
    assert part(report, "instance types")["rows"] == 1
    assert len(PriceStore(home / "prices").frame()) == rows
    advice = json.loads(spotctl("advise", "--json").stdout)
    assert {market["zone"] for market in advice["ranked"]} == set(ZONES)
    best = advice["ranked"][0]
    assert (best["vcpus"], best["beta_source"], best["stale"]) == (4, "aws Spot Advisor", False)
    assert best["beta_basis"] == "published rate"
    assert 0.05 / 720 < best["beta_low"] < best["beta"] < 0.11 / 720


def test_the_next_fetch_goes_on_from_there(aws: Cloud) -> None:
    fetched()
    aws.traces["us-east-1"] = Trace(
        [
            *aws.traces["us-east-1"].rows,
            (format_instant(Instant(int(wall_clock()))), ZONES[0], "c5.xlarge", "0.07"),
        ]
    )
    aws.calls.clear()
    _, report = fetched()
    assert part(report, "prices")["new"] == 1
    assert sum(rows for _, _, rows in aws.calls) < 10, "what is stored is not asked for again"
    (_, first, _), *_ = aws.calls
    aws.calls.clear()
    fetched("--since", format_instant(Instant(int(wall_clock()) - 3 * 86400)))
    assert min(start for _, start, _ in aws.calls) < first - 2 * 86400


def test_one_type_in_one_zone_is_all_that_is_asked_for(aws: Cloud) -> None:
    asked = ("--cloud", "aws", "--zone", ZONES[0], "--type", "c5.xlarge")
    report = json.loads(spotctl("prices", "fetch", *asked, "--json").stdout)
    assert part(report, "prices")["new"] == len(aws.traces["us-east-1"].rows) // 2
    (status, everything) = fetched()
    assert (status, part(everything, "prices")["new"]) == (0, len(aws.traces["us-east-1"].rows))
    stored = json.loads(spotctl("prices", "show", "--json").stdout)["prices"]
    assert {price["source"] for price in stored} == {"aws DescribeSpotPriceHistory"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--region", "us-east-1"), "--region: name the cloud too"),
        (("--zone", "us-east-1a"), "--zone: name the cloud too"),
        (("--type", "m5.large", "--cloud", "aws", "--cloud", "gcp"), "--type: name the cloud too"),
        (("--cloud", "aws", "--zone", "us-east-1a", "--region", "us-east-1"), "leave --region out"),
        (("--cloud", "azure", "--zone", "eastus-1"), "use --region"),
        (("--cloud", "aws", "--zone", "1a"), "expected a zone like us-east-1a"),
    ],
)
def test_names_that_are_of_no_one_cloud_are_a_mistake(asked: tuple[str, ...], said: str) -> None:
    result = spotctl("prices", "fetch", *asked)
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_could_not_be_got_is_said_beside_what_was(aws: Cloud) -> None:
    aws.always["us-east-1"] = Trouble(code="AuthFailure")
    result = spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-1")
    assert result.exit_code == 0, "the advisor and the types were got"
    assert "incomplete: aws us-east-1" in result.stdout
    assert "AuthFailure" in result.stdout
    assert "aws us-east-1 prices: 0 rows" in result.stderr


@pytest.mark.parametrize(
    ("failures", "status"),
    [
        ((FeedCredentialsExpired, RegionRefused), 4),
        ((FeedCredentialsRejected, FeedUnreachable), 1),
        ((FeedUnavailable,), 1),
        ((RegionRefused, None), 0),
    ],
)
def test_the_exit_code_says_what_to_do(failures: tuple[type[FeedError] | None, ...], status: int) -> None:
    """4 only where credentials were refused and nothing was got."""
    one = FeedPart("aws", PartKind.PRICES, "us-east-1", "test")
    reports = tuple(
        PartReport(one, done=True) if kind is None else PartReport(one, failure=kind("aws", "no", "Go home"))
        for kind in failures
    )
    assert exit_code(FetchReport(reports, (), interrupted=False, seconds=1.0)) == status
    told = tuple(("aws", kind("aws", "no", "Go home")) for kind in failures if kind is not None)
    if status:
        assert exit_code(FetchReport((), told, interrupted=False, seconds=1.0)) == status


def test_without_credentials_it_is_said_how_to_get_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    result = spotctl("prices", "fetch", "--cloud", "aws")
    assert result.exit_code == 0, "the advisor's file needs none"
    assert "not fetched: aws: aws: there are no credentials. Run 'aws configure'" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--region", "us-east-1"), "--region: name the cloud too"),
        (("--cloud", "aws", "--cloud", "gcp", "--region", "x"), "--region: name the cloud too"),
        (("--since", "lately"), "--since: 'lately' is not a time"),
        (("--cloud", "moon"), "--cloud"),
    ],
)
def test_wrong_use_is_exit_2_before_anything_is_asked(arguments: tuple[str, ...], said: str) -> None:
    result = spotctl("prices", "fetch", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.process
def test_people_see_bars_with_rows_and_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with Terminal(tmp_path, SPOTCTL, "prices", "fetch", "--cloud", "aws") as terminal:
        assert terminal.end() == 0
    assert re.search(r"aws eviction rates .* 1/1 +1 rows +[\d,]+/s", terminal.shown)
    assert "1 rows fetched" in terminal.shown


def test_a_bar_tells_what_is_waited_for() -> None:
    one = FeedPart("aws", PartKind.PRICES, "us-east-1", "test")
    waiting = FeedUnreachable("aws", "no route", "Wait")
    with FetchBars() as bars, FetchLines() as lines:
        bars.expect_parts([one, one])
        for report in (PartReport(one, rows=5, waiting=waiting), PartReport(one, rows=9, done=True)):
            bars.report_part(report)
            lines.report_part(report)
    assert describe_part(PartReport(one, rows=9, new=7, quarantined=2, seconds=3.0, done=True)) == (
        "aws us-east-1 prices: 9 rows, 7 new, 2 in quarantine, 3.0 s (3 rows/s)"
    )
    assert describe_part(PartReport(one, rows=5, waiting=waiting)).endswith("waiting: aws: no route. Wait")
    assert describe_part(PartReport(one, rows=5, cursor="up to noon")).endswith("so far, up to noon")


@pytest.mark.process
def test_ctrl_c_keeps_whole_batches_and_says_how_to_go_on(aws: Cloud, home: Path) -> None:
    """The server gives one row a page, so that the fetch cannot be done before it is interrupted."""
    aws.page_size = lambda _: 1
    command = [sys.executable, "-m", "spotctl", "prices", "fetch", "--cloud", "aws", "--region", "us-east-1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    ) as running:
        deadline = time.monotonic() + 120
        while len(aws.calls) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        told, errors = running.communicate(timeout=120)
    assert running.returncode == 7, errors
    assert "run the same command again to continue" in told
    aws.page_size = None
    status, _ = fetched()
    assert status == 0
    frame = PriceStore(home / "prices").frame()
    assert len(frame) == len(aws.traces["us-east-1"].rows)
