"""What ``queue ls`` is made from: who holds what until when, what each has had, and deadlines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, Seconds
from spotctl.cli.format import output
from spotctl.cli.views import queue as queueview
from spotctl.control import entries as e
from spotctl.control.run_spec import StopCondition
from spotctl.control.state import State
from spotctl.job.choices import WorldKind
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.requests import Request
from spotctl.queue.lifecycle.status import (
    DeadlineStatus,
    JobStatus,
    QueueStatus,
    RunningState,
    met_deadline,
    read_status,
)
from spotctl.queue.spec import member_text
from tests.scenarios.support.market import START
from tests.spotctl.build import changed, terms
from tests.spotctl.control.test_step import Core, after
from tests.spotctl.queue.build import Crash, Queue, Watching, command, queue

HEAD = "name: night\npolicy: las\nround: 30m\nbudget: 9\nquotas: {c4.xlarge: 2}"
HOUR = 3600


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Queue]:
    """Jobs of two hours, each with what its entry says: ``made(a="", b="after: [a]")``."""

    def make(**jobs: str) -> Queue:
        listed = [(command(tmp_path, name, steps=12, takes=120), more) for name, more in jobs.items()]
        return queue(tmp_path, HEAD, listed)

    return make


def look(of: Queue) -> QueueStatus:
    return read_status(of.settings.spec, WorldKind.REPLAY)


def rows(found: QueueStatus) -> dict[str, JobStatus]:
    return {row.job: row for row in found.rows}


@dataclass
class Looking(Watching):
    """Somebody looks when this time has passed."""

    of: Queue | None = None
    after_s: int = 0
    seen_then: QueueStatus | None = None

    def on_entry(self, state: State, entry: e.Entry) -> None:
        super().on_entry(state, entry)
        if self.seen_then is None and self.of is not None and entry.at >= START + self.after_s:
            self.seen_then = look(self.of)


def test_while_a_queue_runs_it_says_who_holds_what_until_when_and_what_each_has_had(
    made: Callable[..., Queue],
) -> None:
    of = made(a="deadline: 20h", b="", d="", c="after: [b]")
    watching = Looking(of=of, after_s=3 * HOUR)
    of.run(watching)
    found = watching.seen_then
    assert found is not None
    assert (found.status, found.budget, found.rounds > 3) == (RunningState.RUNNING, 9_000_000, True)
    there = [row for row in found.rows if row.job != "c"]
    (lease,) = [row.lease for row in there if row.lease is not None]
    assert lease.count == 1
    assert START + 3 * HOUR <= lease.until <= START + 4 * HOUR
    assert sum(row.served.got for row in there) <= max(row.served.whole for row in there)
    assert all(0.2 < row.served.due / row.served.whole < 0.5 for row in there), "a machine for three jobs"
    a, c = rows(found)["a"], rows(found)["c"]
    assert (a.deadline, a.exit_code) == (DeadlineStatus(Instant(START + 20 * HOUR), promised=True), None)
    assert (c.state, c.served, c.lease, c.deadline) == ("waiting", j.ServiceTime(), None, DeadlineStatus())
    assert [row.after for row in found.rows] == [(), (), (), ("b",)]
    assert "\nc    waits for b " in output.render_text(queueview.list_table(found))


def test_when_a_queue_has_ended_it_says_which_deadlines_were_kept(made: Callable[..., Queue]) -> None:
    of = made(a="deadline: 20h", b="deadline: 30m, best_effort: true", c="")
    of.run(Watching())
    found = look(of)
    assert found.status is RunningState.ENDED
    assert {job: (row.deadline.kept, row.exit_code) for job, row in rows(found).items()} == {
        "a": (True, 0),
        "b": (False, 6),
        "c": (None, 0),
    }
    assert all(row.lease is None and row.served.got > 0 for row in found.rows)
    told = output.render_text(queueview.list_table(found))
    assert "\nb: the work was done after its deadline\n" in told
    assert "night, las: ended; $" in told


def test_a_queue_whose_process_is_gone_says_so(made: Callable[..., Queue]) -> None:
    of = made(a="")
    with pytest.raises(Crash):
        of.run(Watching(dies_after=9))
    assert look(of).status is RunningState.STOPPED
    assert "`spotctl queue run` resumes it" in output.render_text(queueview.list_table(look(of)))


def test_a_queue_that_never_ran_has_its_jobs_and_one_without_jobs_says_that(
    made: Callable[..., Queue],
) -> None:
    of, folder = made(a=""), j.QueueFolder("night", j.root_of(WorldKind.REPLAY))
    found = look(of)
    assert (found.status, [row.state for row in found.rows]) == (RunningState.NOT_BEGUN, ["waiting"])
    folder.leave_request(Request("a"))
    assert output.render_text(queueview.list_table(look(of))).startswith(
        "no jobs\nnight, las: not started; $0.00"
    )
    assert queueview.list_document(look(of))["status"] == "not begun"


def test_a_queue_that_was_killed_before_its_first_note_lists_nothing_of_earlier_runs(
    made: Callable[..., Queue],
) -> None:
    of, folder = made(a=""), j.QueueFolder("night", j.root_of(WorldKind.REPLAY))
    (a,) = of.settings.spec.jobs
    folder.leave_request(Request("x", member_text(replace(a, spec=replace(a.spec, name="x")))))
    of.run(Watching())
    j.QueueJournal(folder.create_run()).close()
    assert list(rows(look(of))) == ["a"]


def test_jobs_that_were_taken_out_before_the_run_are_not_listed_while_it_runs(
    made: Callable[..., Queue],
) -> None:
    of, folder = made(a="", b=""), j.QueueFolder("night", j.root_of(WorldKind.REPLAY))
    folder.leave_request(Request("b"))
    watching = Looking(of=of, after_s=HOUR)
    of.run(watching)
    assert watching.seen_then is not None
    assert list(rows(watching.seen_then)) == ["a"]


def test_a_damaged_request_hides_no_job(made: Callable[..., Queue]) -> None:
    of, folder = made(a=""), j.QueueFolder("night", j.root_of(WorldKind.REPLAY))
    folder.leave_request(Request("b"))
    folder.request_file.path.write_text("{\n")
    found = look(of)
    assert [row.job for row in found.rows] == ["a"]
    (failure,) = found.failures
    assert failure.startswith(f"{folder.request_file.path}:1: ")


def test_what_a_job_has_had_is_counted_from_its_first_round_until_it_leaves() -> None:
    lease = Lease((Market("aws", "us-east-1", "us-east-1a", "c4.xlarge"),), 1, Instant(100))

    def dealt(at: int, a: bool, *jobs: str) -> j.RoundAllocated:
        leases = dict.fromkeys(jobs) | ({"a": lease} if a else {})
        return j.RoundAllocated(Instant(at), {job: {"p": 0.25, "q": 0.25} for job in jobs}, {}, leases)

    record = j.QueueRecord()
    assert record.service_time("a", Instant(50)) == j.ServiceTime()
    for note in (dealt(100, True, "a", "b"), dealt(200, False, "a", "b"), dealt(240, True, "a", "b")):
        record = record.with_note(note)
    assert record.service_time("a", Instant(240)) == j.ServiceTime(whole=140, got=100, due=70)
    record = record.with_note(j.JobLeft(Instant(300), "a", "run", 0, "done"))
    assert record.service_time("a", Instant(900)) == j.ServiceTime(whole=200, got=160, due=100)
    record = record.with_note(dealt(400, False, "b"))
    assert record.service_time("a", Instant(900)) == j.ServiceTime(whole=200, got=160, due=100)
    assert record.service_time("b", Instant(500)) == j.ServiceTime(whole=400, got=0, due=200)


@pytest.mark.parametrize(("limit_s", "in_time"), [(1000, True), (100, False)])
def test_a_job_that_ends_when_it_has_converged_kept_its_deadline_if_that_was_before_it(
    limit_s: int, in_time: bool
) -> None:
    """However long its last paid hours are waited out."""
    of = changed(
        terms(), stop=StopCondition(None, objective_delta=0.1), deadline_s=Seconds(float(limit_s)), drain=True
    )
    core = Core(of).training().with_spot()
    assert met_deadline(core.state) is (None if in_time else False)
    core.tell(e.TrainingFinished(after(900), 30, "model"), e.Woke(after(2000)))
    assert (core.state.ending.closed, core.state.work_left) == (None, None)
    assert met_deadline(core.state) is in_time
