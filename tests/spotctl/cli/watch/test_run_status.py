"""What ``status`` says beside the record: which process takes longer than ever over what."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from agileml.node.agent.crash_reports import format_give_up
from agileml.node.agent.watchdog import Stall, StallLog
from spotctl.cli.watch.live_view import LiveView
from spotctl.cli.watch.observers import Screen
from spotctl.control import entries as e
from spotctl.records.ledger import Ledger
from spotctl.records.run import Run
from spotctl.records.run_history import run_status
from spotctl.timesource import wall_clock
from tests.spotctl.cli.story import START, entries, state_after
from tests.spotctl.cli.watch.test_live_view import drawn, line


def recorded_run(folder: Path) -> Run:
    run = Run(folder / "movies" / "one")
    run.folder.mkdir(parents=True)
    Ledger.open_file(run.ledger_path).close()
    return run


def test_status_names_what_is_waited_for_on_machines_that_live(tmp_path: Path) -> None:
    run, overdue = recorded_run(tmp_path), Stall("computing shards [3] in clock 7", 300.0, news=True)
    for machine in ("r1-0", "s1-0"):
        (run.machines_folder / machine).mkdir(parents=True)
        StallLog(run.machines_folder / machine, "worker").report_stalls([overdue], wall_clock())
    found = run_status(run, state_after(40))["waits"]
    (wait,) = found  # s1-0 is gone, and what it was at with it
    assert (wait["instance"], wait["process"]) == ("r1-0", "worker")
    assert wait["what"] == "computing shards [3] in clock 7"
    assert 300.0 <= wait["real_seconds"] < 400.0


def test_a_person_is_told_for_how_long() -> None:
    said = "the worker of r1-0, for 0:05:00 of real time: computing shards [3] in clock 7"
    shown = drawn(LiveView(state_after(20), START, "", waits=(said,)))
    assert line(shown, "waiting for").endswith(said)


def test_status_says_what_the_processes_of_a_failed_run_died_of(tmp_path: Path) -> None:
    run = recorded_run(tmp_path)
    (run.machines_folder / "r1-0").mkdir(parents=True)
    (run.machines_folder / "r1-0" / "agent.log").write_text(format_give_up("worker", 5))
    state = state_after(52)
    failed = structs.replace(
        state,
        ending=structs.replace(
            state.ending, closed=e.Close(START, e.RunOutcome.FAILED, 1, "no reliable machine is left")
        ),
    )
    found = [run_status(run, told)["died_of"] for told in (state, failed)]
    assert found == [None, "the worker of r1-0 died 5 times in a row, without saying why"]


def test_so_is_whoever_watches_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "movies" / "one")
    (run.machines_folder / "r1-0").mkdir(parents=True)
    StallLog(run.machines_folder / "r1-0", "server").report_stalls(
        [Stall("reading", 300.0, news=True)], wall_clock()
    )
    watched = Screen("600x real time")
    watched.on_start(run, "none")
    watched.on_entry(state_after(20), entries()[-1])
    watched.tick(START)
    assert watched.view is not None
    (said,) = watched.view.waits
    assert said.startswith("the server of r1-0, for 0:05:0")
    assert said.endswith(" of real time: reading")
