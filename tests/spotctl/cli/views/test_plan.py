"""What a plan says before anything is bought, for people and as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from msgspec import structs

from spotctl.cli.format import event_text
from spotctl.cli.views import job_size
from spotctl.control.entries import InstancesRunning, JobStarted
from spotctl.job.file import load_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.records.ledger import Ledger
from spotctl.records.run import RunStore
from spotctl.session import launch_plan
from tests.spotctl.build import changed
from tests.spotctl.cli.commandline import spotctl

_ROW = "{},us-east-1,us-east-1a,c4.xlarge,Linux/UNIX,{}\n"
PRICES = (
    "timestamp_utc,region,zone,instance_type,product,price_usd_hour\n"
    + "".join(
        _ROW.format(f"2016-06-0{1 + h // 24}T{h % 24:02d}:00:00Z", 0.04 + h % 7 / 1000) for h in range(73)
    )
    + _ROW.format("2016-06-02T00:30:00Z", -1) * 2
    + _ROW.format("yesterday", 0.04)
)
EXAMPLES = Path(__file__).parents[4] / "examples"


def test_the_least_deadline_and_budget_that_a_refusal_names_are_promised(home: Path) -> None:
    refused = spotctl("plan", "nightly.yaml", "--deadline", "5m", "--budget", "0.01")
    assert refused.exit_code == 6
    assert "CANNOT BE PROMISED" in refused.stdout
    found = re.search(
        r"shortest deadline that can be promised is (\w+): .* may cost \$([\d.]+):", refused.stderr
    )
    assert found is not None
    least = spotctl("plan", "nightly.yaml", "--deadline", found[1], "--budget", found[2])
    assert least.exit_code == 0
    for less in (("--deadline", f"{int(found[1][:-1]) - 3}m"), ("--deadline", "9h", "--budget", "0.50")):
        assert spotctl("plan", "nightly.yaml", *less).exit_code == 6
    assert not home.exists()


def test_a_plan_says_what_would_be_bought_why_and_what_it_comes_to(home: Path) -> None:
    shown = spotctl("plan", "nightly.yaml", "--deadline", "2h", "--budget", "20")
    assert shown.exit_code == 0
    for part in ("bundled market (generated)", "chosen", "nothing more", "expected cost", "expected finish"):
        assert part in shown.stdout
    assert "deadline         2:00:00 is promised: on-demand machines alone need" in shown.stdout
    assert "budget           $20.0000 is kept" in shown.stdout

    assert "risk: eviction in 1 h, by price crossings of" in shown.stdout

    plan = json.loads(spotctl("plan", "nightly.yaml", "--json").stdout)
    assert all(row["low"] <= row["beta"] <= row["high"] and row["newest"] for row in plan["betas"])
    assert {row["market"] for row in plan["betas"]} > {"c4.xlarge@us-east-1a"}
    assert plan["schema"] == "spotctl.plan/1"
    assert plan["decisions"][0]["action"] == "acquire"
    assert any(weighed["chosen"] for weighed in plan["decisions"][0]["weighed"])
    assert float(plan["expected_cost"]) < float(plan["on_demand_cost"])
    assert not home.exists(), "a plan writes nothing"


def test_nothing_is_said_of_the_whole_of_a_job_that_nobody_can_foresee(home: Path, tmp_path: Path) -> None:
    (tmp_path / "least.yaml").write_text("engine: command\nrun: python train.py\n")
    shown = spotctl("plan", str(tmp_path / "least.yaml"), "--deadline", "5h", "--budget", "0.1").stdout
    unknown = "the number of steps is unknown"
    assert f"deadline         5:00:00 is not promised: {unknown}" in shown
    assert f"budget           $0.1000 ends the job when it is spent: {unknown}" in shown
    assert "work             a step is assumed to take 600 core-seconds, since work is not set" in shown
    by_time = spotctl("plan", str(EXAMPLES / "lda.yaml")).stdout
    assert "0:15:00 after the start\n" in by_time, "it ends by itself"
    assert "is assumed to take" not in by_time
    assert not home.exists()


_UNSAID = """\
app: agileml.apps.mf:MatrixFactorization
args: {rank: 4}
data: ratings.csv
stop: {clocks: 40}
resources:
  reliable: {instance_type: m4.xlarge}
  spot: {instance_types: [c4.xlarge], max_instances: 4}
"""


def _ratings(folder: Path, rows: int) -> None:
    lines = (f"{n % 613},{n % 97},{n % 5}.5" for n in range(rows))
    (folder / "ratings.csv").write_text("user,item,value\n" + "\n".join(lines) + "\n")


def test_a_plan_looks_at_the_data_and_a_launch_rests_on_what_it_says(home: Path) -> None:
    """A clock is estimated from the counts or measured, and what was measured is kept in the job file."""
    here = home.parent
    _ratings(here, 9000)
    (here / "unsaid.yaml").write_text(_UNSAID)
    shown = spotctl("plan", "unsaid.yaml").stdout
    assert "data             9,000 rows (613 users, 97 items), " in shown
    assert "the model has 11.4 kB" in shown
    assert "is estimated at 0.00225 core-seconds, correct within a factor of 3;" in shown
    plan = json.loads(spotctl("plan", "unsaid.yaml", "--json").stdout)
    assert (plan["work_source"], plan["work_assumed"], plan["input"]["rows"]) == ("estimated", False, 9000)
    launched = spotctl("launch", "unsaid.yaml", "--yes", "--world", "replay", "--json").stdout
    began = json.loads(launched.splitlines()[0])
    assert began["terms"]["core_seconds_per_clock"] == plan["core_seconds_per_clock"]

    measured = json.loads(spotctl("plan", "unsaid.yaml", "--measure", "--json").stdout)
    low, high = measured["work_range"]
    assert low < measured["core_seconds_per_clock"] == measured["measured_core_seconds"] < high
    said = spotctl("plan", "nightly.yaml", "--measure").stdout
    assert "core-seconds of this computer (" in said
    assert "the job file has 2880" in said


def test_a_plan_says_what_a_checkpoint_would_save_where_it_would(home: Path) -> None:
    _ratings(home.parent, 900)
    cheaper = "with checkpoint: {store: FOLDER, every: 10} it may run on spot"
    without, kept = _UNSAID, _UNSAID + "checkpoint: {store: kept, every: 10}\n"
    papers = _UNSAID + "strategy: proteus\n"
    for text, said in ((without, True), (kept, False), (papers, False)):
        (home.parent / "unsaid.yaml").write_text(text)
        shown = " ".join(spotctl("plan", "unsaid.yaml").stdout.split())
        assert (cheaper in shown) == said, text
        assert ("to keep the model" in shown) == (text is kept), "it runs on spot"


@pytest.mark.usefixtures("home")
def test_only_the_first_rows_of_a_large_input_are_read() -> None:
    _ratings(Path(), 450_000)
    Path("unsaid.yaml").write_text(_UNSAID)
    shown = spotctl("plan", "unsaid.yaml").stdout
    assert re.search(
        r"data +about 4(49|50|51),000 rows \(613 users, 97 items in the first 3\d\d,\d{3}\)", shown
    )
    assert "the model has at most " in shown


@pytest.mark.usefixtures("home")
def test_a_command_has_no_clocks_to_measure() -> None:
    Path("of.yaml").write_text(_OF_COMMAND)
    refused = spotctl("plan", "of.yaml", "--measure")
    assert refused.exit_code == 2
    assert "a command has no clocks to measure" in refused.stderr


def test_clocks_are_played_as_fast_as_this_computer_can(home: Path) -> None:
    """Else the prices' time passes while little is done, and the bill is higher than planned."""
    _ratings(home.parent, 9000)
    (home.parent / "unsaid.yaml").write_text(_UNSAID)
    unsaid, nightly = load_job(home.parent / "unsaid.yaml"), load_job(home.parent / "nightly.yaml")
    free = LaunchOptions(speed_named=False)
    plan = launch_plan.plan_job(unsaid, free)
    chosen = launch_plan.with_sustainable_speed(unsaid, free, plan)
    rate = plan.ahead.work / plan.ahead.expected_s
    assert 1 <= chosen.speed < 600
    slower = plan.work.slower_here(rate, chosen.speed)
    assert slower is not None
    assert chosen.speed == 1 or slower <= 1
    assert launch_plan.with_sustainable_speed(unsaid, replace(free, speed_named=True), plan).speed == 600
    assert launch_plan.with_sustainable_speed(nightly, free, launch_plan.plan_job(nightly, free)).speed == 600
    (home.parent / "said.yaml").write_text(f"{_UNSAID}local: {{core_seconds_per_clock: 0.05}}\n")
    said = load_job(home.parent / "said.yaml")
    assert 1 <= launch_plan.with_sustainable_speed(said, free, launch_plan.plan_job(said, free)).speed < 600
    real = f"real time        {event_text.format_span(plan.ahead.expected_s / chosen.speed)}"
    assert f"{real} at --speed {chosen.speed:g}, plus a few seconds" in spotctl("plan", "unsaid.yaml").stdout
    assert json.loads(spotctl("plan", "unsaid.yaml", "--json").stdout)["speed"] == chosen.speed
    lines = job_size.told_of_speed(plan, LaunchOptions(speed=1e6))
    assert "times too slow for --speed 1e+06:" in lines[0]


def test_a_run_goes_on_with_the_work_and_the_speed_that_it_began_with(home: Path) -> None:
    """Whatever its data would be estimated at now: else its own deadline might be refused."""
    _ratings(home.parent, 9000)
    (home.parent / "unsaid.yaml").write_text(_UNSAID)
    spec, free = load_job(home.parent / "unsaid.yaml"), LaunchOptions(speed_named=False)
    assert not launch_plan.continues_run(spec, free)
    assert spotctl("launch", "unsaid.yaml", "--yes", "--world", "replay").exit_code == 0
    (replayed,) = RunStore(home / "replays").list_runs()
    left = RunStore().create_run("unsaid")
    recorded, ledger = replayed.open_ledger(), Ledger.open_file(left.ledger_path)
    ledger.put_note("settings", Settings.from_options(spec, replace(free, speed=7.0)).to_text())
    entries = list(takewhile(lambda entry: not isinstance(entry, InstancesRunning), recorded.read_entries()))
    assert isinstance(entries[0], JobStarted)
    began = structs.replace(entries[0], terms=changed(entries[0].terms, core_seconds_per_clock=123.0))
    for entry in (began, *entries[1:]):
        ledger.append(entry)
    ledger.commit()
    for record in (recorded, ledger):
        record.close()
    assert launch_plan.continues_run(spec, free)
    plan = launch_plan.plan_job(spec, free, check=False)
    assert (plan.terms.work.core_seconds_per_clock, plan.work.source.value) == (123.0, "record")
    paced = launch_plan.with_sustainable_speed(spec, free, plan)
    assert paced.speed == 7.0
    assert job_size.told_of_speed(plan, paced) == ["unsaid: --speed 7, the speed at which its run began"]


_OF_COMMAND = (
    "engine: command\nrun: python train.py\nwork: {steps: 40, takes: 4h}\n"
    "resources: {spot: {instance_types: [c4.xlarge], zones: [us-east-1b]}}\n"
)


@pytest.mark.parametrize(
    ("said", "told", "keeps"),
    [
        ("", ("if the program keeps nothing", "evictions,", "or checkpoint: off"), None),
        ("checkpoint: off\n", ("the program keeps nothing", "objective: {strategy: on-demand}"), False),
        (
            "local: {boot: 2h}\ncheckpoint: {every: 10m}\n",
            ("most of the time", "2:02:00 to boot and start"),
            True,
        ),
        ("checkpoint: {every: 10m}\n", (), True),
    ],
)
def test_what_evictions_do_to_a_command_is_said_before_it_starts(
    said: str, told: tuple[str, ...], keeps: bool | None, home: Path
) -> None:
    auction = ("--rules", "aws-2016")  # where the bundled market's prices evict
    (home.parent / "of.yaml").write_text(_OF_COMMAND + said)
    shown = spotctl("plan", "of.yaml", *auction).stdout
    assert all(part in shown for part in told)
    assert told or "evictions," not in shown
    found = json.loads(spotctl("plan", "of.yaml", *auction, "--json").stdout)["setbacks"]
    assert found["keeps_checkpoints"] is keeps
    assert found["too_short_lived"] is ("2h" in said)
    if keeps is False:
        launched = spotctl("launch", "of.yaml", "--yes", "--world", "replay", *auction).stderr
        assert all(part in launched for part in told)


@pytest.mark.usefixtures("home")
def test_a_finish_after_a_deadline_that_is_promised_is_explained() -> None:
    late = spotctl("plan", str(EXAMPLES / "command_pytorch.yaml"), "--rules", "aws-2016").stdout
    assert "after the start with spot machines alone; on-demand machines will keep the deadline" in late
    assert "5:00:00 is promised" in late
    assert "with spot machines alone" not in spotctl("plan", "nightly.yaml", "--deadline", "9h").stdout


def test_a_plan_is_a_table_on_eighty_columns(home: Path) -> None:
    """Not records; its least width is what a terminal is asked for."""
    lines = spotctl("plan", str(EXAMPLES / "quickstart.yaml")).stdout.splitlines()
    begins = next(number for number, line in enumerate(lines) if line.startswith("market "))
    table = lines[begins : lines.index("", begins)]
    assert len(table) > 9
    assert max(map(len, table)) <= 80
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_price_rows_that_cannot_be_believed_are_counted_and_shown() -> None:
    Path("prices.csv").write_text(PRICES)
    options = ("nightly.yaml", "--trace", "prices.csv", "--trace-start", "2016-06-03")
    shown = spotctl("plan", *options).stdout
    assert "3 of 76 price rows are not used:" in shown
    assert "2 x negative price, first line 75" in shown
    assert "1 x unreadable time, first line 77" in shown
    plan = json.loads(spotctl("plan", *options, "--json").stdout)
    assert plan["price_rows"] == {"read": 76, "quarantined": 3}
    launched = spotctl("launch", *options, "--world", "replay", "--yes")
    assert "3 of 76 price rows are not used:" in launched.stderr.splitlines()[0]


@pytest.mark.usefixtures("home")
def test_markets_without_a_price_on_demand_are_named_and_not_dropped_in_silence() -> None:
    Path("prices.csv").write_text(PRICES + PRICES.partition("\n")[2].replace("us-east-1", "us-west-2"))
    options = ("nightly.yaml", "--trace", "prices.csv", "--trace-start", "2016-06-03")
    told = "not used, since the catalogue lacks its type or its price on demand: c4.xlarge@us-west-2a"
    assert told in spotctl("plan", *options).stdout
    assert json.loads(spotctl("plan", *options, "--json").stdout)["markets_left_out"] == [
        "c4.xlarge@us-west-2a"
    ]
    assert "not used, since" not in spotctl("plan", "nightly.yaml").stdout


def test_a_dry_run_is_a_plan(home: Path) -> None:
    dry = spotctl("launch", "nightly.yaml", "--dry-run", "--json")
    assert dry.stdout == spotctl("plan", "nightly.yaml", "--json").stdout
    assert not home.exists()
