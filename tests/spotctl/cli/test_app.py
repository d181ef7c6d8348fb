"""The command as scripts see it: exit codes, what goes to which stream, and what the JSON holds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from spotctl.cli.app import app, main
from spotctl.runs import Runs

JOB = """\
app: agileml.apps.mf:MatrixFactorization
data: ratings.csv
stop: {clocks: 24}
resources:
  reliable: {instance_type: m4.xlarge}
  spot: {instance_types: [c4.xlarge], max_instances: 4, max_per_allocation: 2}
local: {core_seconds_per_clock: 2880}
"""
_ROW = "{},us-east-1,us-east-1a,c4.xlarge,Linux/UNIX,{}\n"
PRICES = (
    "timestamp_utc,region,zone,instance_type,product,price_usd_hour\n"
    + "".join(
        _ROW.format(f"2016-06-0{1 + h // 24}T{h % 24:02d}:00:00Z", 0.04 + h % 7 / 1000) for h in range(73)
    )
    + _ROW.format("2016-06-02T00:30:00Z", -1) * 2
    + _ROW.format("yesterday", 0.04)
)
VERBS = (
    "launch",
    "plan",
    "status",
    "logs",
    "cancel",
    "down",
    "wait",
    "gc",
    "report",
    "advise",
    "backtest",
    "version",
    "completion",
    "prices",
    "queue",
)
FINAL_KEYS = {
    *("job", "state", "exit_code", "work_done", "objective", "wall_seconds", "sim_seconds", "cost"),
    *("savings_fraction", "evictions", "failures", "clocks_redone", "stage_transitions", "instances_left"),
    "ledger",
}
EXAMPLES = Path(__file__).parents[3] / "examples"
HEAVY = ["numpy", "scipy", "pandas", "zmq", "yaml", "rich", "sqlite3", "asyncio", "boto3", "google.cloud"]
HEAVY += ["azure", "ray", "duckdb"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own place for runs, and a job file in the current folder."""
    _write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "home"


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """One run in the replay world, launched with --json, for tests that only look at it."""
    folder = tmp_path_factory.mktemp("launched")
    _write_job(folder)
    job, home = str(folder / "nightly.yaml"), folder / "home"
    result = spotctl("launch", job, "--world", "replay", "--yes", "--json", home=home)
    return Launched(result, home / "replays")


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch answered, and the home that makes other verbs look at its run."""

    result: Result
    home: Path

    @property
    def final(self) -> dict[str, Any]:
        final: dict[str, Any] = json.loads(self.result.stdout.splitlines()[-1])
        return final


def _write_job(folder: Path) -> None:
    (folder / "nightly.yaml").write_text(JOB)
    (folder / "ratings.csv").write_text("1,1,3.0\n")


def spotctl(*arguments: str, home: Path | None = None) -> Result:
    environment = {} if home is None else {"SPOTCTL_HOME": str(home)}
    return CliRunner().invoke(app, arguments, prog_name="spotctl", env=environment)


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_ends_with_an_example_of_that_verb(verb: str) -> None:
    result = spotctl(verb, "--help")
    assert result.exit_code == 0
    *_, last = (line.strip() for line in result.stdout.splitlines() if line.strip())
    assert last.startswith("Example: ")
    assert f"spotctl {verb}" in last


def test_the_verbs_are_those_that_work_in_this_version() -> None:
    listed = spotctl("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == list(VERBS)
    assert "..." not in listed, "each verb's first sentence fits its line"


def test_ctrl_c_while_it_is_being_loaded_is_130() -> None:
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from spotctl.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "spotctl: interrupted; nothing was started\n"


def test_help_loads_nothing_heavy() -> None:
    """No numpy, sockets, YAML, tables; no SDK, pandas or scipy ever."""
    code = (
        "import sys\nfrom spotctl.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "launch", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: spotctl launch")
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lunch"], "No such command 'lunch'"),
        (["launch"], "Missing argument"),
        (["launch", "missing.yaml"], "spotctl: missing.yaml: cannot be read: No such file"),
        (["launch", "bad.yaml", "--yes"], "bad.yaml:1:1: nmae: unknown key"),
        (["launch", "nightly.yaml"], "nobody can be asked here whether to start; add --yes"),
        (["launch", "nightly.yaml", "--detach"], "--detach: not available in this version"),
        (["launch", "nightly.yaml", "--cloud", "aws"], "--cloud aws: not available in this version"),
        (["launch", "nightly.yaml", "--cloud", "asw"], "Invalid value for '--cloud'"),
        (["launch", "nightly.yaml", "--deadline", "60"], "--deadline: '60' is not a duration"),
        (["launch", "nightly.yaml", "--deadline", "0s"], "--deadline: found '0s'"),
        (["launch", "nightly.yaml", "--budget", "cheap"], "--budget: found 'cheap'"),
        (["launch", "nightly.yaml", "--name", "../up"], "--name: found '../up'"),
        (["launch", "nightly.yaml", "--env", "A"], "--env: found 'A', expected NAME=VALUE"),
        (["launch", "nightly.yaml", "--speed", "0.5"], "Invalid value for '--speed'"),
        (["launch", "nightly.yaml", "--speed", "inf"], "--speed: found inf"),
        (["launch", "nightly.yaml", "--trace-start", "noon", "--yes"], "--trace-start: 'noon' is not a time"),
        (["launch", "nightly.yaml", "--trace", "none.csv", "--yes"], "none.csv"),
        (["launch", "nightly.yaml", "--rules", "mine", "--yes"], "--rules mine: expected one of aws-2016"),
        (
            ["plan", "nightly.yaml", "--trace-market", "c9.huge"],
            "--trace-market c9.huge: bundled market (generated) has only c4.2xlarge@us-east-1a, ",
        ),
        (["status", "nightli"], "there is no job 'nightli'"),
        (["down"], "expected the name of a job, or --all"),
        (["report", "--since", "monday"], "--since: 'monday' is not a time"),
        (["report", "--by", "hour"], "Invalid value for '--by'"),
        (["completion", "tcsh"], "Invalid value for"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_exit_2_with_one_message_and_nothing_written(
    home: Path, arguments: list[str], said: str
) -> None:
    Path("bad.yaml").write_text(f"nmae: x\n{JOB}")
    result = spotctl(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_all_problems_of_a_file_are_shown_and_none_twice() -> None:
    Path("bad.yaml").write_text(JOB.replace("24", "many").replace("ratings", "rating"))
    lines = spotctl("plan", "bad.yaml").stderr.splitlines()
    assert [line.removeprefix("spotctl: ").split(": ")[1] for line in lines] == ["data", "stop.clocks"]


@pytest.mark.parametrize("verb", ["plan", "launch", "backtest"])
def test_what_no_market_has_is_said_with_its_line(home: Path, verb: str) -> None:
    Path("odd.yaml").write_text(JOB.replace("c4.xlarge", "c9.huge"))
    refused = spotctl(verb, "odd.yaml", *(["--yes"] if verb == "launch" else []))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("spotctl: odd.yaml:6:3: resources.spot: no market of ")
    assert not (home / "jobs").exists()


@pytest.mark.parametrize("limit", [("--deadline", "5m"), ("--budget", "0.01")])
def test_what_cannot_be_met_is_exit_6_before_anything_starts(home: Path, limit: tuple[str, str]) -> None:
    result = spotctl("launch", "nightly.yaml", "--yes", *limit)
    assert result.exit_code == 6
    assert "nothing was started" in result.stderr
    assert not home.exists()


def test_the_least_deadline_and_budget_that_a_refusal_names_are_promised(home: Path) -> None:
    refused = spotctl("plan", "nightly.yaml", "--deadline", "5m", "--budget", "0.01")
    assert refused.exit_code == 6
    assert "CANNOT BE PROMISED" in refused.stdout
    found = re.search(r"No deadline below (\w+) .* may cost \$([\d.]+):", refused.stderr)
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
    assert "deadline         2:00:00 is promised: machines on demand alone need" in shown.stdout
    assert "budget           $20.0000 is kept" in shown.stdout

    assert "beta: price crossings of" in shown.stdout

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
    unknown = "nobody can say how many steps it takes"
    assert f"deadline         5:00:00 is not promised: {unknown}" in shown
    assert f"budget           $0.1000 ends the job when it is spent: {unknown}" in shown
    assert "work             a step is taken for 600 core-seconds, as work is not set" in shown
    by_time = spotctl("plan", str(EXAMPLES / "lda.yaml")).stdout
    assert "0:15:00 after the start\n" in by_time, "it ends by itself"
    assert "is taken for" not in by_time
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_a_finish_after_a_deadline_that_is_promised_is_explained() -> None:
    late = spotctl("plan", str(EXAMPLES / "command_pytorch.yaml")).stdout
    assert "after the start by spot machines alone; some on demand will keep the deadline" in late
    assert "5:00:00 is promised" in late
    assert "by spot machines alone" not in spotctl("plan", "nightly.yaml", "--deadline", "9h").stdout


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
    told = "not used, as the catalogue does not know its type or its price on demand: c4.xlarge@us-west-2a"
    assert told in spotctl("plan", *options).stdout
    assert json.loads(spotctl("plan", *options, "--json").stdout)["markets_left_out"] == [
        "c4.xlarge@us-west-2a"
    ]
    assert "not used, as" not in spotctl("plan", "nightly.yaml").stdout


def test_a_dry_run_is_a_plan(home: Path) -> None:
    dry = spotctl("launch", "nightly.yaml", "--dry-run", "--json")
    assert dry.stdout == spotctl("plan", "nightly.yaml", "--json").stdout
    assert not home.exists()


def test_json_lines_of_a_run_end_with_the_final_object(launched: Launched) -> None:
    result = launched.result
    assert result.exit_code == 0
    *events, final = map(json.loads, result.stdout.splitlines())
    assert events[0]["event"] == "JobStarted"
    assert events[-1]["event"] == "Close"
    assert {event["schema"] for event in events} == {"spotctl.event/1"}
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    assert final["schema"] == "spotctl.launch/1"
    assert final.keys() >= FINAL_KEYS
    assert final["cost"].keys() == {"total", "spot", "on_demand", "egress", "refunded", "on_demand_baseline"}
    assert (final["job"], final["state"], final["exit_code"], final["instances_left"]) == (
        "nightly",
        "done",
        0,
        0,
    )
    assert result.stderr == ""


@pytest.mark.usefixtures("home")
def test_a_log_tells_the_story_on_stderr_and_the_bill_on_stdout() -> None:
    result = spotctl("launch", "nightly.yaml", "--world", "replay", "--yes")
    assert result.exit_code == 0
    story = result.stderr.splitlines()
    assert "prices from bundled market (generated)" in story[0]
    assert any(" asked for " in line for line in story)
    assert story[-1].endswith("the work is done")
    for part in ("cost", "refunded", "on-demand alone", "saved", "eviction", "computed twice", "ledger.db"):
        assert part in result.stdout
    assert "\x1b[" not in result.output, "no colour where nobody looks"


def test_status_and_wait_agree_with_the_final_object(launched: Launched) -> None:
    home = launched.home
    (run,) = json.loads(spotctl("status", "--json", home=home).stdout)["runs"]
    assert (run["state"], run["exit_code"], run["cost"]) == ("done", 0, launched.final["cost"])
    assert run["footprint"] == []
    assert "nightly" in spotctl("status", home=home).stdout
    assert "clock 24 of 24" in spotctl("status", "nightly", home=home).stdout
    waited = spotctl("wait", "nightly", "--json", home=home)
    assert (waited.exit_code, json.loads(waited.stdout)["runs"]) == (0, [run])


def test_logs_tell_what_happened_and_what_machines_wrote(launched: Launched) -> None:
    (run,) = Runs(launched.home).all()
    (run.machines / "s1-0").mkdir(parents=True)
    (run.machines / "s1-0" / "agent.log").write_text("up\n")
    lines = spotctl("logs", "nightly", "--follow", home=launched.home).stdout.splitlines()
    assert lines[0].endswith("asked for 1 x m4.xlarge in us-east-1a, on-demand (r1)")
    assert lines[-2:] == [f"{launched.final['ended']} the work is done", "s1-0/agent: up"]


def test_a_report_by_job_agrees_with_the_final_object(launched: Launched) -> None:
    (row,) = json.loads(spotctl("report", "--json", home=launched.home).stdout)["rows"]
    cost = launched.final["cost"]
    assert (row["job"], row["total"], row["refunded"]) == ("nightly", cost["total"], cost["refunded"])
    assert row["on_demand_baseline"] == cost["on_demand_baseline"]
    assert row["savings_fraction"] == launched.final["savings_fraction"]
    for count in ("evictions", "instances_evicted"):
        assert row[count] == launched.final[count]


@pytest.mark.parametrize("by", ["job", "day", "cloud", "market"])
def test_however_money_is_added_up_the_total_is_the_same(launched: Launched, by: str) -> None:
    report = json.loads(spotctl("report", "--by", by, "--json", home=launched.home).stdout)
    total = launched.final["cost"]["total"]
    assert report["total"]["total"] == total
    assert sum(Decimal(row["total"]) for row in report["rows"]) == Decimal(total)
    lines = spotctl("report", "--by", by, "--format", "csv", home=launched.home).stdout.splitlines()
    assert lines[0].split(",")[0] == by
    assert len(lines) == 1 + len(report["rows"])
    assert by in spotctl("report", "--by", by, home=launched.home).stdout


def test_a_report_can_be_written_to_a_file_and_begin_at_a_day(launched: Launched, tmp_path: Path) -> None:
    home, file = launched.home, tmp_path / "money.csv"
    written = spotctl("report", "-o", str(file), "--format", "csv", home=home)
    assert (written.exit_code, written.stdout) == (0, "")
    assert file.read_text().startswith("job,runs,")
    assert json.loads(spotctl("report", "--since", "2999-01-01", "--json", home=home).stdout)["rows"] == []
    assert spotctl("report", "-o", str(tmp_path / "no/such/folder.csv"), home=home).exit_code == 2


def test_ending_what_has_ended_is_nothing_to_do(launched: Launched) -> None:
    result = spotctl("cancel", "nightly", home=launched.home)
    assert result.exit_code == 3
    assert "nightly has ended: the work is done" in result.stderr


def test_a_second_launch_of_a_running_job_is_refused_or_skipped(home: Path) -> None:
    with Runs(home / "replays").lock("nightly"):
        launch = ("launch", "nightly.yaml", "--world", "replay", "--yes")
        assert spotctl(*launch).exit_code == 1
        skipped = spotctl(*launch, "--if-running", "skip")
    assert (skipped.exit_code, skipped.stdout) == (3, "")


def test_training_data_that_cannot_be_read_is_exit_2_and_leaves_no_run(home: Path) -> None:
    Path("ratings.csv").write_text("neither,users,nor,items\n")
    result = spotctl("launch", "nightly.yaml", "--yes")
    assert result.exit_code == 2
    assert "ratings.csv" in result.stderr
    assert Runs(home).all() == ()


@pytest.mark.usefixtures("home")
def test_no_runs_is_said_and_is_no_error() -> None:
    result = spotctl("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no runs yet" in result.stderr


def test_a_report_of_nothing_says_so_and_where_replays_are(home: Path) -> None:
    assert "no runs yet; `spotctl launch JOB.yaml` begins one\n" in spotctl("report").stderr
    assert spotctl("launch", "nightly.yaml", "--world", "replay", "--yes").exit_code == 0
    for verb in ("report", "status"):
        empty = spotctl(verb)
        assert (empty.exit_code, empty.stdout) == (0, "")
        assert f"kept apart, in SPOTCTL_HOME={home / 'replays'}" in empty.stderr
    assert "nightly" in spotctl("report", home=home / "replays").stdout


def test_a_record_that_cannot_be_read_is_named_beside_the_report_of_the_others(
    launched: Launched, tmp_path: Path
) -> None:
    shutil.copytree(launched.home, tmp_path / "home")
    broken = tmp_path / "home" / "jobs" / "broken" / "20260101T000000Z"
    broken.mkdir(parents=True)
    (broken / "ledger.db").write_bytes(b"no database" * 100)
    shown = spotctl("report", "--json", home=tmp_path / "home")
    assert shown.exit_code == 1
    assert shown.stderr.startswith("spotctl: broken: ")
    assert "what these have cost is not in the report" in shown.stderr
    assert json.loads(shown.stdout)["total"]["total"] == launched.final["cost"]["total"]


@pytest.mark.usefixtures("home")
def test_a_home_that_cannot_be_used_is_a_plain_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTCTL_HOME", str(Path("nightly.yaml").resolve()))
    result = spotctl("launch", "nightly.yaml", "--world", "replay", "--yes")
    assert result.exit_code == 1
    assert result.stderr.startswith("spotctl: ")
    assert "nightly.yaml" in result.stderr


@pytest.mark.parametrize(("debug", "traceback"), [("", False), ("1", True)])
def test_a_bug_is_one_line_unless_debugging(
    debug: str, traceback: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(prog_name: str) -> None:
        raise KeyError(prog_name)

    monkeypatch.setenv("SPOTCTL_DEBUG", debug)
    with pytest.raises(SystemExit) as ended:
        main(broken)
    assert ended.value.code == 1
    shown = capsys.readouterr().err
    assert "a bug in spotctl: KeyError: 'spotctl'" in shown
    assert ("Traceback" in shown) is traceback


def test_completion_prints_a_script() -> None:
    result = spotctl("completion", "bash")
    assert result.exit_code == 0
    assert "complete -o default -F" in result.stdout
