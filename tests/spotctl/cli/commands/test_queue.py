"""``spotctl queue`` as scripts see it: what it prints, how it exits, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import pytest

from bidbrain.cluster.policies.registry import MENU
from pricing_data.model.units import format_instant, parse_instant
from spotctl.job.choices import WorldKind
from spotctl.queue.lifecycle.journal import QueueFolder, root_of
from spotctl.records.run import RunStore
from tests.scenarios.support.market import START, write_prices
from tests.spotctl.cli.commandline import FINAL_KEYS, JOB, spotctl
from tests.spotctl.queue.build import command, elastic

QUEUE = """\
name: night
quotas: {{c4.xlarge: {machines}, m4.large: 2}}
budget: 5
jobs:
  - {{job: a.yaml, deadline: {deadline}}}
  - job: b.yaml
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    (tmp_path / "ratings.csv").write_text("1,1,3.0\n")
    (tmp_path / "a.yaml").write_text(command(tmp_path, "a", steps=10, takes=30))
    (tmp_path / "b.yaml").write_text(elastic(tmp_path, "b", steps=10))
    (tmp_path / "c.yaml").write_text(command(tmp_path, "c", steps=10, takes=30))
    (tmp_path / "night.yaml").write_text(QUEUE.format(machines=4, deadline="3h"))
    write_prices(tmp_path / "prices.csv")
    return tmp_path / "home"


def run(*more: str) -> tuple[str, ...]:
    prices = ("--trace", "prices.csv", "--trace-start", format_instant(START))
    return ("queue", "run", "night.yaml", "--world", "replay", "--yes", *prices, *more)


def test_json_is_a_line_for_each_event_and_the_outcome_last(home: Path) -> None:
    done = spotctl(*run("--json"))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [line for line in lines if line["schema"] == "spotctl.event/1"]
    assert {line["job"] for line in events} == {"a", "b"}
    final = lines[-1]
    assert final["schema"] == "spotctl.queue/1"
    assert [job["job"] for job in final["jobs"] if job["promised"]] == ["a"]
    assert (final["exit_code"], final["instances_left"]) == (0, 0)
    for job in final["jobs"]:
        assert set(job) >= FINAL_KEYS
        assert Path(job["ledger"]).is_relative_to(home)


def test_a_speed_that_this_computer_does_not_keep_pace_with_is_said_beforehand(home: Path) -> None:
    """A job whose clock is as small as its data makes it, beside one whose file says more."""
    small = JOB.replace("core_seconds_per_clock: 2880, ", "")
    assert small != JOB
    (home.parent / "small.yaml").write_text(small.replace("nightly", "small"))
    (home.parent / "large.yaml").write_text(JOB)
    Path("day.yaml").write_text("jobs: [{job: small.yaml}, {job: large.yaml}]\n")
    planned = spotctl("queue", "run", "day.yaml", "--dry-run")
    assert "small: this computer is up to" in planned.stdout, planned.output
    assert "with all machines that a job may have: runs take longer" in planned.stdout
    replayed = spotctl("queue", "run", "day.yaml", "--dry-run", "--world", "replay")
    assert "this computer" not in replayed.stdout


def test_without_a_named_start_all_jobs_start_together_as_the_clock_says(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the plan says is had again."""
    monkeypatch.delenv("SPOTCTL_TRACE_START", raising=False)
    asked = ("queue", "run", "night.yaml", "--world", "replay", "--yes")
    shown = spotctl(*asked, "--dry-run").stdout
    found = re.search(r"starts (\S+) in the prices' time; reproduce with --trace-start (\S+)", shown)
    assert found is not None
    assert found[1] == found[2]
    assert "reproduce with" not in spotctl(*asked, "--dry-run", "--trace-start", found[1]).stdout
    final = json.loads(spotctl(*asked, "--json").stdout.splitlines()[-1])
    assert {run.fold_state().terms.start for run in RunStore(home / "replays").list_runs()} == {
        parse_instant(final["started"])
    }
    began, shown_then = (dt.datetime.fromisoformat(text) for text in (final["started"], found[1]))
    assert began - shown_then in (dt.timedelta(0), dt.timedelta(hours=1)), (
        "the hour may have ended in between"
    )


@pytest.mark.usefixtures("home")
def test_people_see_a_line_when_a_job_starts_and_ends_and_a_table() -> None:
    done = spotctl(*run())
    assert done.exit_code == 0, done.output
    told = [line.partition(" ")[2] for line in done.stderr.splitlines()[1:]]
    assert sum(line.startswith("a: starts on") for line in told) == 1
    assert sum(line.startswith("b: the work is done, for $") for line in told) == 1
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["job", "a", "b"]


def test_a_deadline_that_cannot_be_promised_is_exit_6_and_says_what_would_do(home: Path) -> None:
    Path("night.yaml").write_text(QUEUE.format(machines=4, deadline="30m"))
    refused = spotctl(*run())
    assert refused.exit_code == 6
    assert "a: with 1 x c4.xlarge on demand it takes" in refused.stderr
    assert "best_effort: true" in refused.stderr
    assert not (home / "replays" / "jobs").exists()
    Path("night.yaml").write_text(QUEUE.format(machines=4, deadline="30m, best_effort: true"))
    assert spotctl(*run()).exit_code == 6, "it was late, as was to be expected"


def test_a_dry_run_shows_promises_and_writes_nothing(home: Path) -> None:
    shown = spotctl(*run("--dry-run"))
    assert shown.exit_code == 0, shown.output
    assert "3:00:00 is promised: 1 x c4.xlarge on demand reserved" in shown.stdout
    plan = json.loads(spotctl(*run("--dry-run", "--json")).stdout)
    assert {job["job"]: job["promised"] for job in plan["jobs"]} == {"a": True, "b": False}
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_jobs_that_are_added_and_removed_are_taken_up_by_the_next_run() -> None:
    assert spotctl("queue", "add", "night.yaml", "c.yaml").exit_code == 0
    again = spotctl("queue", "add", "night.yaml", "c.yaml")
    assert (again.exit_code, "already has a job c;" in again.stderr) == (2, True)
    assert spotctl("queue", "rm", "night.yaml", "b").exit_code == 0
    unknown = spotctl("queue", "rm", "night.yaml", "b")
    assert (unknown.exit_code, "has no job 'b'" in unknown.stderr) == (2, True)
    listed = json.loads(spotctl("queue", "ls", "night.yaml", "--json").stdout)
    assert {job["job"]: job["state"] for job in listed["jobs"]} == dict.fromkeys("ac", "waiting")


@pytest.mark.usefixtures("home")
def test_a_plan_has_the_jobs_that_the_run_would_have() -> None:
    assert spotctl("queue", "add", "night.yaml", "c.yaml").exit_code == 0
    assert spotctl("queue", "rm", "night.yaml", "b").exit_code == 0
    shown = spotctl(*run("--dry-run", "--json", "--world", "local"))
    assert [job["job"] for job in json.loads(shown.stdout)["jobs"]] == ["a", "c"]


@pytest.mark.usefixtures("home")
def test_a_queue_that_runs_already_is_exit_3_before_anything_is_planned_or_asked() -> None:
    with QueueFolder("night", root_of(WorldKind.REPLAY)).lock():
        second = spotctl(*run())
    assert (second.exit_code, second.stdout) == (8, "")
    assert second.stderr == "spotctl: the queue night runs already; nothing was started\n"


def test_a_folder_that_cannot_be_written_to_is_exit_1_and_one_line(home: Path) -> None:
    home.write_text("no folder")
    refused, unasked = spotctl(*run()), spotctl("queue", "add", "night.yaml", "c.yaml")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1), refused.output
    assert "records of the queue night cannot be kept in" in refused.stderr
    assert (unasked.exit_code, unasked.stderr.count("\n")) == (1, 1), unasked.output
    assert "requests.jsonl cannot be read" in unasked.stderr


@pytest.mark.usefixtures("home")
def test_a_job_file_that_is_gone_is_said_with_its_line_and_what_was_added_needs_none() -> None:
    assert spotctl("queue", "add", "night.yaml", "c.yaml").exit_code == 0
    Path("c.yaml").unlink()
    shown = spotctl(*run("--dry-run", "--json", "--world", "local"))
    assert [job["job"] for job in json.loads(shown.stdout)["jobs"]] == ["a", "b", "c"]
    Path("b.yaml").unlink()
    refused = spotctl(*run())
    assert refused.exit_code == 2
    assert "night.yaml:6:10: jobs.job: found 'b.yaml', but there is no file" in refused.stderr


def test_a_record_that_is_damaged_hides_no_other_job_of_the_queue(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spotctl(*run()).exit_code == 0
    monkeypatch.setenv("SPOTCTL_HOME", str(home / "replays"))
    (ledger,) = (home / "replays" / "jobs" / "b").glob("*/ledger.db")
    ledger.write_text("no ledger")
    listed = spotctl("queue", "ls", "night.yaml", "--json")
    states = {job["job"]: (job["state"], job["cost"] is None) for job in json.loads(listed.stdout)["jobs"]}
    assert states == {"a": ("done", False), "b": ("unreadable", True)}
    assert listed.exit_code == 1
    assert "b: " in listed.stderr


@pytest.mark.usefixtures("home")
def test_the_policies_are_those_of_the_menu() -> None:
    listed = json.loads(spotctl("queue", "policies", "--json").stdout)["policies"]
    assert [policy["name"] for policy in listed] == list(MENU)
    shown = spotctl("queue", "policies").stdout
    assert all(f"\n{name} " in shown for name in MENU)


@pytest.mark.usefixtures("home")
def test_nobody_can_be_asked_without_a_terminal() -> None:
    refused = spotctl("queue", "run", "night.yaml")
    assert refused.exit_code == 2
    assert "add --yes" in refused.stderr


@pytest.mark.usefixtures("home")
def test_a_quota_that_can_never_hold_a_job_is_refused_before_anything_starts() -> None:
    Path("b.yaml").write_text(Path("b.yaml").read_text().replace("reliable: {", "reliable: {instances: 3, "))
    refused = spotctl(*run())
    assert refused.exit_code == 2
    assert "b: it needs 3 reliable x m4.large, and the quota of those is 2" in refused.stderr
    assert spotctl(*run("--dry-run")).exit_code == 2


@pytest.mark.usefixtures("home")
def test_a_budget_that_pays_for_no_machine_is_said_and_who_comes_after_ends_alike() -> None:
    text = QUEUE.format(machines=4, deadline="3h, best_effort: true").replace("budget: 5", "budget: 0.01")
    Path("night.yaml").write_text(f"{text}  - {{job: c.yaml, after: [b]}}\n")
    done = spotctl(*run("--json"))
    final = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code, final["cost"]["total"]) == (6, "0.000000")
    why = {job["job"]: job["why"] for job in final["jobs"]}
    assert why["a"] == why["b"] == "the budget left does not pay for its first machines"
    assert why["c"] == "it was to come after b, which was not done"


@pytest.mark.usefixtures("home")
def test_a_plan_says_what_is_left_to_lease_and_how_sure_the_speeds_are() -> None:
    Path("night.yaml").write_text(
        QUEUE.format(machines=4, deadline="3h").replace("m4.large: 2", "m4.large: 2, p3.xlarge: 1")
    )
    shown = spotctl(*run("--dry-run")).stdout
    assert "4 x c4.xlarge (3 to lease, the rest reserved)" in shown
    assert "No job of this queue may use p3.xlarge" in shown
    plan = json.loads(spotctl(*run("--dry-run", "--json")).stdout)
    assert plan["unused_quotas"] == ["p3.xlarge"]
    rate = plan["jobs"][0]["rates"]["c4.xlarge"]
    assert (rate["core_seconds_per_second"], rate["source"]) == (4.0, "catalogue")
    assert 0.3 < rate["relative_error"] < 0.8


@pytest.mark.usefixtures("home")
def test_a_plan_says_where_promises_leave_nothing_to_lease() -> None:
    told = "All 1 x c4.xlarge are reserved for promised deadlines: no job can lease one"
    assert told not in spotctl(*run("--dry-run")).stdout
    Path("night.yaml").write_text(QUEUE.format(machines=1, deadline="3h"))
    assert told in spotctl(*run("--dry-run")).stdout


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("arguments", [run(), run("--dry-run"), run()[:-2]])
def test_what_a_job_asks_for_in_vain_is_said_with_its_name_and_both_lines(arguments: tuple[str, ...]) -> None:
    Path("b.yaml").write_text(elastic(Path(), "other").replace("[c4.xlarge]", "[c9.huge]"))
    Path("night.yaml").write_text(Path("night.yaml").read_text() + "    name: late\n")
    refused = spotctl(*arguments)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("spotctl: b.yaml:7:3: resources.spot: no market of prices.csv has")
    assert refused.stderr.endswith("c4.xlarge@us-east-1b (the job late, night.yaml:6)\n")


@pytest.mark.usefixtures("home")
def test_what_an_added_job_asks_for_in_vain_is_said_with_its_name() -> None:
    Path("c.yaml").write_text(Path("c.yaml").read_text().replace("[c4.xlarge]", "[c9.huge]"))
    assert spotctl("queue", "add", "night.yaml", "c.yaml").exit_code == 0
    refused = spotctl(*run("--dry-run", "--world", "local"))
    assert refused.exit_code == 2
    assert refused.stderr.startswith("spotctl: c: resources.spot: no market of prices.csv has")
