"""A run from its launch to its report: exit codes, what goes to which stream, and what the JSON holds."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from spotctl.records.run import RunStore
from tests.spotctl.cli.commandline import FINAL_KEYS, TRACE_START, Launched, spotctl


def test_json_lines_of_a_run_end_with_the_final_object(launched: Launched) -> None:
    result = launched.result
    assert result.exit_code == 0
    *events, final = map(json.loads, result.stdout.splitlines())
    assert events[0]["event"] == "JobStarted"
    assert [event["event"] for event in events[-2:]] == ["Close", "RunEnded"]
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
    assert any(" requested: " in line for line in story)
    assert story[-1].endswith("the work is done")
    for part in (
        *("cost", "as fast, on demand", "cheapest on demand", "saved", "planned"),
        *("eviction", "ledger.db"),
    ):
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


def test_the_plan_of_the_launch_is_on_record(launched: Launched) -> None:
    """So that ``status`` shows it too, and whoever goes on with the run."""
    job = str(launched.home.parents[1] / "nightly.yaml")
    plan = json.loads(spotctl("plan", job, "--json", "--trace-start", TRACE_START).stdout)
    kept = launched.final["plan"]
    assert kept["cost"] == plan["expected_cost"]
    assert kept["evictions"] == pytest.approx(plan["expected_evictions"], abs=1e-5)
    assert kept["seconds"] == pytest.approx(60 + plan["expected_seconds"], abs=0.01), "and the boot"
    (run,) = json.loads(spotctl("status", "--json", home=launched.home).stdout)["runs"]
    assert run["plan"] == kept
    state = RunStore(launched.home).list_runs()[0].fold_state()
    assert state.terms.origin.expected is not None
    assert launched.final["outcome"]["cost"] == launched.final["cost"]["total"]


def test_logs_tell_what_happened_and_what_machines_wrote(launched: Launched) -> None:
    (run,) = RunStore(launched.home).list_runs()
    (run.machines_folder / "s1-0").mkdir(parents=True)
    (run.machines_folder / "s1-0" / "agent.log").write_text("up\n")
    lines = spotctl("logs", "nightly", "--follow", home=launched.home).stdout.splitlines()
    assert lines[0].endswith("requested: 1 x m4.xlarge in us-east-1a, on-demand (r1)")
    assert lines[-2:] == [f"{launched.final['ended']} the work is done", "s1-0/agent: up"]


def test_a_report_by_job_agrees_with_the_final_object(launched: Launched) -> None:
    (row,) = json.loads(spotctl("report", "--json", home=launched.home).stdout)["rows"]
    cost = launched.final["cost"]
    assert (row["job"], row["total"], row["refunded"]) == ("nightly", cost["total"], cost["refunded"])
    assert row["on_demand_baseline"] == cost["on_demand_baseline"]
    assert row["savings_fraction"] == launched.final["savings_fraction"]
    for count in ("evictions", "instances_evicted"):
        assert row[count] == launched.final[count]


@pytest.mark.parametrize("by", ["job", "day", "month", "cloud", "market"])
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
    with RunStore(home / "replays").lock_job("nightly"):
        launch = ("launch", "nightly.yaml", "--world", "replay", "--yes")
        refused = spotctl(*launch)
        assert (refused.exit_code, refused.stdout) == (8, "")
        assert "nightly is running already" in refused.stderr
        skipped = spotctl(*launch, "--if-running", "skip")
    assert (skipped.exit_code, skipped.stdout) == (3, "")


def test_training_data_that_cannot_be_read_is_exit_2_and_leaves_no_run(home: Path) -> None:
    Path("ratings.csv").write_text("neither,users,nor,items\n")
    result = spotctl("launch", "nightly.yaml", "--yes")
    assert result.exit_code == 2
    assert "ratings.csv" in result.stderr
    assert RunStore(home).list_runs() == ()


@pytest.mark.usefixtures("home")
def test_no_runs_is_said_and_is_no_error() -> None:
    result = spotctl("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no runs yet" in result.stderr


def test_a_report_of_nothing_says_so_and_where_replays_are(home: Path) -> None:
    assert "no runs yet; `spotctl launch JOB.yaml` starts one\n" in spotctl("report").stderr
    assert spotctl("launch", "nightly.yaml", "--world", "replay", "--yes").exit_code == 0
    for verb in ("report", "status"):
        empty = spotctl(verb)
        assert (empty.exit_code, empty.stdout) == (0, "")
        assert f"To list replays, set SPOTCTL_HOME={home / 'replays'}" in empty.stderr
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
