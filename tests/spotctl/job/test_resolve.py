"""From a job and its options to the terms of a run: start, markets, prices, rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016, GCP, combine_rules
from pricing_data.model.units import Instant, MicroUsd, Seconds, format_instant, parse_instant
from spotctl.cli.app import app
from spotctl.control.run_spec import StopCondition
from spotctl.errors import UsageError
from spotctl.job.file import parse_job
from spotctl.job.resolve import HISTORY_BEFORE_START_S, PriceOptions, resolve_job
from spotctl.job.spec import JobSpec

JOB = """\
app: agileml.apps.mf:MatrixFactorization
data: ratings.csv
stop: {{clocks: 40, seconds: 7200, converged: {{metric: rmse, delta: 0.01}}}}
resources:
  reliable: {{instances: 2, instance_type: {reliable}}}
  spot: {{max_instances: 8, max_per_allocation: 4, {spot}}}
objective: {{deadline: 6h, budget: "5.00"}}
scaling: {{phi: 0.9, sigma: 90s, lambda: 2m, stage2_above: 2, stage3_above: 20}}
local: {{core_seconds_per_clock: 1200}}
"""
FIRST = parse_instant("2016-06-01")
DAY_S = 86400
AWS_ROW = "{at},{region},{zone},{kind},Linux/UNIX,{price}"
Row = tuple[int, str, str, float]
"""(days after FIRST, zone, instance type, price)."""
MakeJob = Callable[..., JobSpec]


@pytest.fixture
def job(tmp_path: Path) -> MakeJob:
    def make(spot: str = "clouds: [aws]", reliable: str = "m4.xlarge") -> JobSpec:
        (tmp_path / "ratings.csv").touch()
        return parse_job(JOB.format(spot=spot, reliable=reliable), "nightly.yaml", tmp_path)

    return make


def trace(folder: Path, rows: Sequence[Row], first: Instant = FIRST) -> Path:
    path = folder / "prices.csv"
    lines = [
        AWS_ROW.format(
            at=format_instant(Instant(first + day * DAY_S)),
            region=zone[:-1],
            zone=zone,
            kind=kind,
            price=price,
        )
        for day, zone, kind, price in rows
    ]
    path.write_text("\n".join(["timestamp_utc,region,zone,instance_type,product,price_usd_hour", *lines]))
    return path


def months(kind: str, zone: str = "us-east-1a", last_day: int = 60) -> list[Row]:
    return [(day, zone, kind, 0.04 + day / 10_000) for day in range(last_day + 1)]


# ---- the strategy ----------------------------------------------------------------------------------


def test_a_way_to_keep_a_deadline_needs_one(job: MakeJob, tmp_path: Path) -> None:
    options = PriceOptions(trace=trace(tmp_path, months("c4.xlarge")))
    spec = job()
    greedy = replace(spec.objective, strategy="greedy")
    assert (
        resolve_job(replace(spec, objective=greedy), options, "r", seed=1).terms.objective.strategy
        == "greedy"
    )
    boundless = replace(spec, objective=replace(greedy, deadline=None))
    with pytest.raises(UsageError, match=r"greedy is a way to keep a deadline.*set objective\.deadline"):
        resolve_job(boundless, options, "r", seed=1)
    endless = replace(spec, objective=greedy, stop=replace(spec.stop, clocks=None))
    with pytest.raises(UsageError, match=r"how much work the job is; set stop\.clocks"):
        resolve_job(endless, options, "r", seed=1)


# ---- the start -------------------------------------------------------------------------------------


def test_a_run_starts_when_thirty_days_of_prices_are_known(job: MakeJob, tmp_path: Path) -> None:
    options = PriceOptions(trace=trace(tmp_path, months("c4.xlarge")))
    resolved = resolve_job(job(), options, "r", seed=1)
    assert resolved.terms.start == FIRST + 30 * DAY_S == FIRST + HISTORY_BEFORE_START_S
    assert resolved.terms.origin.prices == str(tmp_path / "prices.csv")


def test_or_when_it_is_told_to(job: MakeJob, tmp_path: Path) -> None:
    start = Instant(FIRST + 5 * DAY_S + 1)
    options = PriceOptions(trace=trace(tmp_path, months("c4.xlarge", last_day=10)), start=start)
    resolved = resolve_job(job(), options, "r", seed=1)
    assert resolved.terms.start == start
    series = resolved.trace.series(resolved.terms.spot[0].market)
    assert int(series.times[0]) < start < int(series.times[-1]), "the trace holds the past and the future"


def test_a_short_trace_needs_a_start(job: MakeJob, tmp_path: Path) -> None:
    options = PriceOptions(trace=trace(tmp_path, months("c4.xlarge", last_day=20)))
    with pytest.raises(
        UsageError, match=r"too short for 30 days of history.*name a start with --trace-start"
    ):
        resolve_job(job(), options, "r", seed=1)


@pytest.mark.parametrize("day", [-1, 0, 60, 61])
def test_a_start_outside_of_the_trace_is_refused_with_its_span(
    job: MakeJob, tmp_path: Path, day: int
) -> None:
    options = PriceOptions(trace=trace(tmp_path, months("c4.xlarge")), start=Instant(FIRST + day * DAY_S))
    with pytest.raises(UsageError, match="2016-06-01T00:00:00Z to 2016-07-31T00:00:00Z"):
        resolve_job(job(), options, "r", seed=1)


# ---- the markets -----------------------------------------------------------------------------------

BOTH = [*months("c4.xlarge"), *months("m4.xlarge", "us-east-1b"), *months("m4.2xlarge", "us-east-1b")]


@pytest.mark.parametrize(
    ("spot", "expected"),
    [
        ("clouds: [aws]", {"c4.xlarge@us-east-1a", "m4.xlarge@us-east-1b", "m4.2xlarge@us-east-1b"}),
        ("instance_types: [c4.xlarge]", {"c4.xlarge@us-east-1a"}),
        ("zones: [us-east-1b]", {"m4.xlarge@us-east-1b", "m4.2xlarge@us-east-1b"}),
        ("cpus: 8+", {"m4.2xlarge@us-east-1b"}),
        ("cpus: 4", {"c4.xlarge@us-east-1a", "m4.xlarge@us-east-1b"}),
        ("memory: 16+", {"m4.xlarge@us-east-1b", "m4.2xlarge@us-east-1b"}),
    ],
)
def test_the_job_says_which_markets_of_a_trace_it_may_use(
    job: MakeJob, tmp_path: Path, spot: str, expected: set[str]
) -> None:
    resolved = resolve_job(job(spot), PriceOptions(trace=trace(tmp_path, BOTH)), "r", seed=1)
    assert {str(tradable.market) for tradable in resolved.terms.spot} == expected
    assert {str(market) for market in resolved.trace.markets} == expected


@pytest.mark.parametrize("named", ["c4.xlarge", "c4.xlarge@us-east-1a"])
def test_markets_named_on_the_command_line_take_precedence(job: MakeJob, tmp_path: Path, named: str) -> None:
    options = PriceOptions(trace=trace(tmp_path, BOTH), markets=(named,))
    resolved = resolve_job(job("instance_types: [m4.xlarge]"), options, "r", seed=1)
    assert [str(tradable.market) for tradable in resolved.terms.spot] == ["c4.xlarge@us-east-1a"]


def test_a_type_the_catalogue_does_not_know_is_left_out_or_named(job: MakeJob, tmp_path: Path) -> None:
    known = resolve_job(job(), PriceOptions(trace=trace(tmp_path, [*BOTH, *months("x9.huge")])), "r", seed=1)
    assert "x9.huge" not in {tradable.market.instance_type for tradable in known.terms.spot}
    with pytest.raises(UsageError, match=r"the catalogue knows nothing of x9\.huge@us-east-1a"):
        resolve_job(job(), PriceOptions(trace=trace(tmp_path, months("x9.huge"))), "r", seed=1)


def test_a_trace_without_a_market_for_the_job_is_refused(job: MakeJob, tmp_path: Path) -> None:
    options = PriceOptions(trace=trace(tmp_path, BOTH))
    with pytest.raises(
        UsageError, match=r"resources\.spot: no market of .* has .*regions: eu-west-1; .*it has c4"
    ):
        resolve_job(job("regions: [eu-west-1]"), options, "r", seed=1)
    with pytest.raises(UsageError, match="no such file"):
        resolve_job(job(), PriceOptions(trace=tmp_path / "none.csv"), "r", seed=1)


# ---- prices and rules ------------------------------------------------------------------------------


def test_on_demand_prices_and_cores_are_the_catalogues_of_that_day(job: MakeJob, tmp_path: Path) -> None:
    terms = resolve_job(job(), PriceOptions(trace=trace(tmp_path, BOTH)), "r", seed=1).terms
    listed = {t.market.instance_type: (float(t.on_demand), t.cores) for t in terms.spot}
    assert listed == {"c4.xlarge": (0.209, 4), "m4.xlarge": (0.239, 4), "m4.2xlarge": (0.479, 8)}
    assert (terms.reliable.market.instance_type, float(terms.reliable.on_demand)) == ("m4.xlarge", 0.239)
    assert terms.reliable.market.region == "us-east-1"


def test_a_reliable_type_without_a_price_is_refused(job: MakeJob, tmp_path: Path) -> None:
    options = PriceOptions(trace=trace(tmp_path, BOTH))
    with pytest.raises(UsageError, match=r"no on-demand price of x9\.huge in aws us-east-1 on 2016-07-01"):
        resolve_job(job(reliable="x9.huge"), options, "r", seed=1)


@pytest.mark.parametrize(
    ("first", "asked", "expected"),
    [
        ("2016-06-01", None, AWS_2016),
        ("2017-10-31", None, AWS_2016),
        ("2017-11-01", None, AWS),
        ("2024-01-01", None, AWS),
        ("2016-06-01", "gcp", GCP),
        ("2024-01-01", "aws-2016", AWS_2016),
    ],
)
def test_the_rules_follow_the_dates_of_the_trace_unless_named(
    job: MakeJob, tmp_path: Path, first: str, asked: str | None, expected: MarketRules
) -> None:
    path = trace(tmp_path, months("m5.xlarge" if first > "2017-11" else "m4.xlarge"), parse_instant(first))
    reliable = "m5.xlarge" if first > "2017-11" else "m4.xlarge"
    options = PriceOptions(trace=path, rules=asked)
    assert resolve_job(job(reliable=reliable), options, "r", seed=1).terms.rules == expected


def test_unknown_rules_are_refused_with_those_there_are(job: MakeJob, tmp_path: Path) -> None:
    options = PriceOptions(trace=trace(tmp_path, BOTH), rules="aws-1999")
    with pytest.raises(UsageError, match="expected one of aws-2016, aws, gcp, gcp-preemptible, azure"):
        resolve_job(job(), options, "r", seed=1)


# ---- the rest --------------------------------------------------------------------------------------


def test_the_terms_are_those_of_the_job_file(job: MakeJob, tmp_path: Path) -> None:
    resolved = resolve_job(job(), PriceOptions(trace=trace(tmp_path, BOTH)), "", seed=7).with_run_name("r")
    terms = resolved.terms
    assert (terms.job, terms.origin.run, terms.origin.seed, terms.reliable_count) == ("nightly", "r", 7, 2)
    assert (terms.limits.max_instances, terms.limits.max_per_allocation) == (8, 4)
    assert (terms.work.scaling.phi, terms.work.scaling.sigma_s, terms.work.scaling.lambda_s) == (
        0.9,
        Seconds(90),
        Seconds(120),
    )
    assert (terms.work.scaling.stage2_above, terms.work.scaling.stage3_above) == (2, 20)
    assert terms.work.stop == StopCondition(40, Seconds(7200), 0.01)
    assert (terms.objective.deadline_s, terms.objective.budget) == (Seconds(6 * 3600), MicroUsd(5_000_000))
    assert not terms.objective.drain
    assert terms.work.core_seconds_per_clock == 1200


def test_the_bundled_market_needs_no_options(job: MakeJob) -> None:
    resolved = resolve_job(job(), PriceOptions(), "r", seed=1)
    assert resolved.recording.generated
    assert "generated" in resolved.terms.origin.prices
    assert resolved.terms.rules == AWS, "nobody was charged these prices: today's rules"
    assert resolve_job(replace(job(), name="other"), PriceOptions(), "r", seed=1).terms.job == "other"


# ---- several regions and clouds --------------------------------------------------------------------

COMMAND = """\
engine: command
run: python train.py
work: {{steps: 10, takes: 1h, on: {on}}}
checkpoint: {{size: 2GB, link_mbit_s: 500}}
resources: {{spot: {{{spot}}}}}
"""
LATER = parse_instant("2022-06-01")


def two_clouds(folder: Path) -> PriceOptions:
    path = folder / "clouds.csv"
    markets = ("aws,us-east-1,us-east-1a,c5.xlarge", "gcp,us-central1,us-central1,n2-standard-4")
    rows = [
        f"{format_instant(Instant(LATER + day * DAY_S))},{market},{0.05 + day / 1e4:.4f}"
        for market in markets
        for day in range(40)
    ]
    path.write_text("\n".join(["timestamp_utc,cloud,region,zone,instance_type,price_usd_hour", *rows]))
    return PriceOptions(trace=path)


def command(folder: Path, spot: str = "", on: str = "c5.xlarge") -> JobSpec:
    return parse_job(COMMAND.format(spot=spot, on=on), "train.yaml", folder)


def test_of_two_clouds_each_has_its_own_rules_and_what_both_promise_is_counted_on(tmp_path: Path) -> None:
    terms = resolve_job(command(tmp_path), two_clouds(tmp_path), "r", seed=1).terms
    assert [t.rules for t in terms.spot] == [AWS, GCP]
    assert terms.rules.notice_s == min(AWS.notice_s, GCP.notice_s)
    assert terms.recovery.luggage is not None
    assert (terms.recovery.luggage.size_bytes, terms.recovery.luggage.bytes_per_s) == (2 * 10**9, 62.5e6)
    assert {(t.cloud, t.to) for t in terms.recovery.luggage.tariffs} == {
        (cloud, to) for cloud in ("aws", "gcp") for to in ("region", "cloud")
    }


def test_within_one_region_nothing_is_carried(tmp_path: Path) -> None:
    terms = resolve_job(
        command(tmp_path, "clouds: [gcp]", "n2-standard-4"), two_clouds(tmp_path), "r", seed=1
    ).terms
    assert (terms.rules, terms.spot[0].rules, terms.recovery.luggage) == (GCP, None, None)


def test_rules_that_are_named_are_those_of_all(tmp_path: Path) -> None:
    options = replace(two_clouds(tmp_path), rules="azure")
    terms = resolve_job(command(tmp_path), options, "r", seed=1).terms
    assert (terms.rules.name, [t.rules for t in terms.spot]) == ("azure", [None, None])


def test_auctions_and_billing_by_the_second_cannot_be_counted_on_together() -> None:
    with pytest.raises(ValueError, match="the rules aws-2016 and gcp bill in different ways"):
        combine_rules([AWS_2016, GCP])
    assert combine_rules([AWS, AWS]) is AWS


def test_elastic_training_cannot_span_regions(job: MakeJob, tmp_path: Path) -> None:
    options = two_clouds(tmp_path)
    with pytest.raises(UsageError, match=r"aws us-east-1, gcp us-central1.*cannot span regions; name one"):
        resolve_job(job("cpus: 4"), options, "r", seed=1)


def test_over_two_clouds_a_run_goes_where_work_is_cheap(tmp_path: Path) -> None:
    """By the command line: the first cloud becomes dear, and its checkpoint leaves at 9 cents a GB."""
    (tmp_path / "job.yaml").write_text(
        COMMAND.format(spot="", on="c5.xlarge").replace("steps: 10, takes: 1h", "steps: 200, takes: 20h")
    )
    options = two_clouds(tmp_path)
    assert options.trace is not None
    rows = options.trace.read_text().splitlines()
    dear = format_instant(Instant(LATER + 30 * DAY_S + 1800))
    rows.append(f"{dear},aws,us-east-1,us-east-1a,c5.xlarge,0.1600")
    kept = [row for row in rows if ",aws," not in row or row <= dear or "0.1600" in row]
    options.trace.write_text("\n".join(kept))
    asked = ["launch", str(tmp_path / "job.yaml"), "--world", "replay", "--yes", "--json"]
    start = ["--trace-start", format_instant(Instant(LATER + 30 * DAY_S))]
    done = CliRunner().invoke(
        app, [*asked, "--trace", str(options.trace), *start], env={"SPOTCTL_HOME": str(tmp_path / "home")}
    )
    assert done.exit_code == 0, done.output
    final = json.loads(done.stdout.splitlines()[-1])
    assert (final["exit_code"], final["rules"]) == (0, "aws + gcp")
    assert final["cost"]["egress"] == "0.180000"
