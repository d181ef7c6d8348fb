"""When a replay starts: other prices every night, and the same ones within the hour."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing_data.model.units import HOUR_S, Instant
from spotctl.errors import UsageError
from spotctl.job.file import load_job
from spotctl.job.resolve import PriceOptions, resolve_job
from spotctl.job.start_moment import DAY_S, WEEK_S, start_like_now
from spotctl.records.run import RunStore
from spotctl.session.open import settings_of
from tests.spotctl.cli.commandline import spotctl, write_job

BEGAN = dt.datetime(2026, 11, 23, 2, 0, 5, tzinfo=dt.UTC).timestamp()
"""A Monday."""


def moment(at: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, dt.UTC)


@given(st.integers(0, 2**31), st.integers(15 * DAY_S, 700 * DAY_S), st.floats(0, 4e9), st.integers(0, 99))
def test_it_has_the_weekday_and_the_hour_of_now_within_the_prices(
    first: int, lasts: int, now: float, seed: int
) -> None:
    start = start_like_now(Instant(first), Instant(first + lasts), now, seed)
    assert first <= start < first + lasts - DAY_S
    here, there = moment(int(now)), moment(start)
    assert (there.weekday(), there.hour, there.minute, there.second) == (here.weekday(), here.hour, 0, 0)


@given(st.integers(0, 2**31), st.integers(1, 15 * DAY_S), st.floats(0, 4e9), st.integers(0, 99))
def test_however_short_the_prices_are_it_lies_within_them(
    first: int, lasts: int, now: float, seed: int
) -> None:
    assert first <= start_like_now(Instant(first), Instant(first + lasts), now, seed) < first + lasts


def test_nights_differ_and_the_seed_shifts_them() -> None:
    earliest, last = Instant(0), Instant(365 * DAY_S)
    nights = {start_like_now(earliest, last, BEGAN + night * DAY_S, 0) for night in range(300)}
    assert len(nights) == 300
    assert start_like_now(earliest, last, BEGAN, 1) == start_like_now(earliest, last, BEGAN + WEEK_S, 0)
    assert start_like_now(earliest, last, BEGAN, 0) == start_like_now(earliest, last, BEGAN + HOUR_S - 6, 0)


def test_two_nights_of_the_bundled_market_have_other_prices(tmp_path: Path) -> None:
    write_job(tmp_path)
    job = load_job(tmp_path / "nightly.yaml")
    tonight, tomorrow = (
        resolve_job(job, PriceOptions(), "r", seed=0, now=BEGAN + night * DAY_S) for night in (0, 1)
    )
    assert tomorrow.terms.start - tonight.terms.start == DAY_S
    market = tonight.terms.spot[0].market
    prices = [
        of.trace.as_of(of.terms.start).series(market).prices[-50:].tolist() for of in (tonight, tomorrow)
    ]
    assert prices[0] != prices[1]
    named = resolve_job(job, PriceOptions(start=tonight.terms.start), "r", seed=0, now=BEGAN + 99 * DAY_S)
    assert named.terms.start == tonight.terms.start


def test_prices_of_a_few_days_have_no_history_for_a_start(tmp_path: Path) -> None:
    write_job(tmp_path)
    row = "2016-06-{:02d}T{:02d}:00:00Z,us-east-1,us-east-1a,c4.xlarge,Linux/UNIX,0.0{}\n"
    rows = "".join(row.format(1 + hour // 24, hour % 24, 40 + hour % 7) for hour in range(200))
    header = "timestamp_utc,region,zone,instance_type,product,price_usd_hour\n"
    (tmp_path / "short.csv").write_text(header + rows)
    options = PriceOptions(trace=tmp_path / "short.csv")
    with pytest.raises(UsageError, match=r"too short for 14 days of history.*--trace-start"):
        resolve_job(load_job(tmp_path / "nightly.yaml"), options, "r", seed=0, now=BEGAN)


def test_what_a_plan_prints_has_its_start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch begins where its own plan did, and keeps that beside settings that name no start."""
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPOTCTL_TRACE_START", raising=False)
    shown = spotctl("plan", "nightly.yaml", "--seed", "3").stdout
    found = re.search(
        r"starts (\S+) in the prices' time; reproduce with (--trace-start (\S+) --seed 3)", shown
    )
    assert found is not None
    assert found[1] == found[3]
    home = tmp_path / "home"
    launch = ("launch", "nightly.yaml", "--world", "replay", "--yes", "--json")
    clocked = spotctl(*launch, "--seed", "3", home=home)
    assert "reproduce with --trace-start" in clocked.stderr
    final = json.loads(clocked.stdout.splitlines()[-1])
    again = spotctl(*launch, "--trace-start", final["started"], "--seed", "3", home=home)
    assert "reproduce with" not in again.stderr
    same = json.loads(again.stdout.splitlines()[-1])
    assert (same["started"], same["cost"]) == (final["started"], final["cost"])
    first, _ = RunStore(home / "replays").list_runs()
    assert settings_of(first).prices.start is None
