"""What breaks one job, or the whole queue, leaves nothing behind and nobody else without what is his."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pricing_data.model.units import Seconds
from spotctl.control import entries as e
from spotctl.errors import AlreadyRunning, DeadlineInfeasible, LedgerError, UsageError
from spotctl.job.choices import WorldKind
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.admission_queue import AdmissionQueue, QueueCapacity, Refusal
from spotctl.queue.lifecycle.job_locks import JobLocks, reopen_claimed
from spotctl.queue.lifecycle.requests import Request
from spotctl.queue.lifecycle.run_queue import continues_run, resume_queue, run_queue, with_start
from spotctl.queue.lifecycle.scheduler import QueueScheduler
from spotctl.queue.spec import Member, QueueSettings, member_text
from spotctl.records.ledger import Ledger
from spotctl.records.run import Run, RunStore
from spotctl.session.open import RecordedRun, runs_of
from spotctl.timesource import TimeSource, VirtualTime
from spotctl.worlds.handle import WorldHandle
from spotctl.worlds.world import RequestSource
from tests.scenarios.support.market import START
from tests.spotctl.build import terms
from tests.spotctl.queue.build import Crash, Watching, command, queue

HEAD = "name: night\nround: 6m\nquotas: {c4.xlarge: 2}"


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., QueueSettings]:
    """Jobs of forty minutes, each with what its entry says: ``made(a="", b="after: [a]")``."""

    def make(**jobs: str) -> QueueSettings:
        listed = [(command(tmp_path, name, steps=4, takes=10), more) for name, more in jobs.items()]
        return queue(tmp_path, HEAD, listed).settings

    return make


@pytest.fixture
def runs() -> RunStore:
    return runs_of(WorldKind.REPLAY)


def crashed(settings: QueueSettings, folder: j.QueueFolder, watching: Watching) -> j.QueueRun:
    """The run that a process left unfinished which died after so many entries."""
    with pytest.raises(Crash):
        run_queue(settings, watching)
    newest = folder.newest_run()
    assert newest is not None
    return newest


def gone_on(settings: QueueSettings, folder: j.QueueFolder, watching: Watching) -> dict[str, Any]:
    with folder.lock():
        newest = folder.newest_run()
        assert newest is not None
        return resume_queue(settings, folder, newest, watching)


def of(settings: QueueSettings, name: str) -> Member:
    return next(member for member in settings.spec.jobs if member.name == name)


def hurried(member: Member, name: str) -> Request:
    """To add the same job again as ``name``, with a deadline that nobody can promise."""
    spec = replace(member.spec, name=name, objective=replace(member.spec.objective, deadline=Seconds(60.0)))
    return Request(name, member_text(replace(member, spec=spec)))


def assert_free(runs: RunStore, *names: str) -> None:
    for name in names:
        with runs.lock_job(name):
            """Nobody runs it."""


# ---- what was begun is let go of --------------------------------------------------------------------


@dataclass
class Broken(Watching):
    """Something breaks when ``job`` is told of: that it starts, or that it has left."""

    starts: str = ""
    leaves: str = ""

    def on_start(self, run: Any, prices: Any) -> None:
        super().on_start(run, prices)
        if run.name == self.starts:
            raise Crash

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        super().on_left(job, exit_code, why, final)
        if job == self.leaves:
            raise Crash


def test_a_queue_of_which_a_job_runs_elsewhere_goes_on_with_none_of_them(
    made: Callable[..., QueueSettings], folder: j.QueueFolder, runs: RunStore
) -> None:
    settings = made(a="", b="")
    crashed(settings, folder, Watching(dies_after=9))
    resumed, ended = Watching(), Watching()
    with runs.lock_job("b"), pytest.raises(AlreadyRunning, match="b is running already") as refusal:
        gone_on(settings, folder, resumed)
    assert (resumed.runs, resumed.left) == ({}, {}), refusal
    assert_free(runs, "a")
    gone_on(settings, folder, ended)
    assert ended.left == {"a": 0, "b": 0}


@pytest.mark.parametrize("entries", [None, 9])
def test_what_breaks_while_jobs_are_let_in_lets_go_of_those_before(
    entries: int | None, made: Callable[..., QueueSettings], folder: j.QueueFolder, runs: RunStore
) -> None:
    settings, ended = made(a="", b=""), Watching()
    if entries is not None:
        crashed(settings, folder, Watching(dies_after=entries))
        with pytest.raises(Crash) as broken:
            gone_on(settings, folder, Broken(starts="b"))
    else:
        with pytest.raises(Crash) as broken:
            run_queue(settings, Broken(starts="b"))
    assert_free(runs, "a", "b")
    gone_on(settings, folder, ended)
    assert ended.left == {"a": 0, "b": 0}, broken


@dataclass(frozen=True)
class Noting(RecordedRun):
    """A run whose machines are said to have been taken away."""

    gone: list[str] = field(default_factory=list)

    def build_resumed_world(
        self, asks: RequestSource, time: TimeSource, down: e.ControllerDown
    ) -> WorldHandle:
        built = RecordedRun.build_resumed_world(self, asks, time, down)
        return replace(built, abandon=lambda: self.gone.append(self.run.name))


def test_machines_of_jobs_that_were_let_in_go_whatever_breaks_before_the_loop(
    made: Callable[..., QueueSettings], folder: j.QueueFolder, runs: RunStore
) -> None:
    settings = made(a="", b="")
    run = crashed(settings, folder, Watching(dies_after=9))
    gone: list[str] = []

    def breaks_before_the_loop() -> None:
        time = VirtualTime(run.read_record().at)
        with (
            closing(j.QueueJournal(run)) as journal,
            JobLocks(runs) as claims,
            QueueScheduler(with_start(settings, START), folder, journal, claims, time, Watching()) as runner,
        ):
            for name in journal.record.entered:
                found, claim = runs.find_run(name), claims.claim_job(name)
                assert found is not None
                one = reopen_claimed(found, claim)
                noting = Noting(one.run, one.ledger, one.settings, one.inputs, one.state, one.entries, gone)
                runner.resume_job(of(settings, name), noting, claim)
            raise Crash

    with pytest.raises(Crash):
        breaks_before_the_loop()
    assert sorted(gone) == ["a", "b"]
    assert_free(runs, "a", "b")


@dataclass
class Looking(Watching):
    """Whether the others' locks were free when a job had left."""

    runs_of_all: RunStore = field(default_factory=RunStore)

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        super().on_left(job, exit_code, why, final)
        assert_free(self.runs_of_all, job)


def test_a_job_that_has_ended_is_free_for_others_while_the_queue_runs(
    made: Callable[..., QueueSettings], runs: RunStore
) -> None:
    looking = Looking(runs_of_all=runs)
    run_queue(made(a="", b="after: [a]"), looking)
    assert looking.left == {"a": 0, "b": 0}


# ---- one job is no reason to end others -------------------------------------------------------------


def test_a_follower_that_runs_elsewhere_is_said_and_the_others_go_on(
    made: Callable[..., QueueSettings], runs: RunStore
) -> None:
    watching = Watching()
    with runs.lock_job("b"):
        final = run_queue(made(a="", b="after: [a]", c=""), watching)
    assert watching.left == {"a": 0, "b": 8, "c": 0}
    assert (final["exit_code"], final["state"]) == (8, "ended"), "not everything was done"
    why = {job["job"]: job["why"] for job in final["jobs"]}
    assert why["b"] == "b is running already, by another process"


def test_a_job_that_is_refused_for_its_own_unfinished_run_can_be_ended(
    left: tuple[QueueSettings, j.QueueRun],
) -> None:
    settings, _ = left
    with JobLocks(RunStore()) as claims:
        arrivals = AdmissionQueue(with_start(settings, START), Pools(settings.spec.quotas), claims)
        (refusal,) = arrivals.admit_each([of(settings, "a")], QueueCapacity(START, {}, None))
        assert isinstance(refusal, Refusal)
        assert "does not say what was launched" in str(refusal.error)
        assert_free(RunStore(), "a")


def test_a_request_that_cannot_be_understood_ends_nobody_else(
    made: Callable[..., QueueSettings], folder: j.QueueFolder
) -> None:
    watching = AddingAgain(folder=folder, request=Request("x", '{"spec": 1}'))
    final = run_queue(made(a="", b="after: [a]"), watching)
    assert watching.left == {"a": 0, "x": 1, "b": 0}
    assert [job["job"] for job in final["jobs"]] == ["a", "b"]


def test_who_comes_after_a_job_that_failed_never_begins_wherever_the_queue_dies(
    made: Callable[..., QueueSettings], folder: j.QueueFolder
) -> None:
    settings = made(a="", b="after: [a]")
    asking = Removing(leaves="a", folder=folder)
    crashed(settings, folder, asking)
    assert asking.left == {"a": 7}
    second = Watching()
    final = gone_on(settings, folder, second)
    assert second.left == {"b": 7}
    assert final["exit_code"] == 7


@dataclass
class Removing(Broken):
    """Somebody removes a as soon as it is there."""

    folder: j.QueueFolder | None = None

    def on_start(self, run: Any, prices: Any) -> None:
        super().on_start(run, prices)
        if self.folder is not None and run.name == "a":
            self.folder.leave_request(Request("a"))


@dataclass
class AddingAgain(Watching):
    """Somebody adds a job of the name of one that has just ended."""

    request: Request | None = None
    folder: j.QueueFolder | None = None

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        if self.folder is not None and self.request is not None and job not in self.left:
            self.folder.leave_request(self.request)
        super().on_left(job, exit_code, why, final)


def test_a_name_is_used_once_in_a_run_so_that_no_bill_is_lost(
    made: Callable[..., QueueSettings], folder: j.QueueFolder, runs: RunStore
) -> None:
    settings = made(a="", b="after: [a]")
    again = Request("a", member_text(of(settings, "a")))
    final = run_queue(settings, AddingAgain(folder=folder, request=again))
    ends = [(job["job"], job["exit_code"], job["state"]) for job in final["jobs"]]
    assert ends == [("a", 0, "done"), ("b", 0, "done")]
    assert len(runs.list_runs()) == 2


# ---- what is refused is not begun, and still asked for -----------------------------------------------


def test_a_queue_of_which_a_job_runs_elsewhere_does_not_begin(
    made: Callable[..., QueueSettings], folder: j.QueueFolder, runs: RunStore
) -> None:
    settings, watching = made(a="", b=""), Watching()
    with runs.lock_job("b"), pytest.raises(AlreadyRunning, match="b is running already"):
        run_queue(settings, watching)
    assert (runs.list_runs(), folder.newest_run(), watching.seen) == ((), None, 0)
    assert_free(runs, "a", "b")


def test_a_refused_queue_forgets_nothing_that_was_asked_of_it(
    made: Callable[..., QueueSettings], folder: j.QueueFolder, runs: RunStore
) -> None:
    settings = made(a="", b="")
    folder.leave_request(Request("b"))
    run_queue(settings, Watching())
    folder.leave_request(hurried(of(settings, "a"), "x"))
    before = folder.newest_run()
    for _ in range(2):
        with pytest.raises(DeadlineInfeasible, match="x: with"):
            run_queue(settings, Watching())
    assert (folder.newest_run(), len(runs.list_runs())) == (before, 1)
    folder.leave_request(Request("x"))
    ended = Watching()
    run_queue(settings, ended)
    assert ended.left == {"a": 0, "b": 0}


@pytest.fixture
def left(made: Callable[..., QueueSettings]) -> tuple[QueueSettings, j.QueueRun]:
    """A local queue whose process died: a has begun, b waits for it, x and y were added and y removed."""
    settings = made(a="", b="after: [a]")
    settings = replace(settings, options=replace(settings.options, world=WorldKind.LOCAL))
    begun = RunStore().create_run("a")
    record(begun, e.JobStarted(START, terms()))
    b = of(settings, "b")
    x, y = (member_text(replace(b, spec=replace(b.spec, name=name))) for name in "xy")
    run = j.QueueFolder("night").create_run()
    with closing(j.QueueJournal(run)) as journal:
        journal.write_note(j.QueueStarted(START, settings.to_text(), added={"x": x, "y": y}))
        journal.write_note(j.JobAdmitted(START, "a", begun.id, False, "", None, {}))
        journal.write_note(j.RequestHandled(START, 1, removed="y"))
    return settings, run


def record(run: Run, entry: e.Entry) -> None:
    with closing(Ledger.open_file(run.ledger_path)) as ledger:
        ledger.append(entry)
        ledger.commit()


def changed(settings: QueueSettings) -> QueueSettings:
    return replace(settings, options=replace(settings.options, speed=900.0))


def test_a_queue_that_was_changed_does_not_take_the_place_of_its_jobs_that_go_on(
    left: tuple[QueueSettings, j.QueueRun],
) -> None:
    settings, run = left
    with pytest.raises(UsageError, match=r"with other settings .*, or end its jobs: spotctl down a"):
        run_queue(changed(settings), Watching())
    assert continues_run(settings)
    assert run.read_record().closed is None


def test_a_queue_that_was_changed_begins_anew_when_its_jobs_have_ended(
    left: tuple[QueueSettings, j.QueueRun],
) -> None:
    settings, run = left
    record(RunStore().list_runs()[0], e.Close(START, e.RunOutcome.CANCELLED, 7, "taken down"))
    assert not continues_run(changed(settings))
    with RunStore().lock_job("a"), pytest.raises(AlreadyRunning, match="a is running already"):
        run_queue(changed(settings), Watching())
    closed = run.read_record().closed
    assert closed is not None
    assert closed.exit_code == 7
    folder = j.QueueFolder("night")
    asked = folder.requests_after(after=folder.handled_number())
    assert [request.job for _, request in asked if isinstance(request, Request)] == ["x"], (
        "it was added, and has not begun"
    )


@pytest.mark.parametrize(
    "line", ["{", '{"note": "Nothing"}', '{"note": "RoundAllocated", "at": 1, "shares": 5}', "[]"]
)
def test_a_note_that_cannot_be_read_is_named_with_what_to_do(
    line: str, left: tuple[QueueSettings, j.QueueRun]
) -> None:
    settings, run = left
    with run.journal_file.open("a") as journal:
        journal.write(f"{line}\n")
    place = re.escape(f"{run.journal_file}:4 cannot be read")
    told = rf"{place} .*spotctl down ends them\. With {re.escape(str(run.folder))} moved away"
    with pytest.raises(LedgerError, match=told):
        run_queue(settings, Watching())
    run.folder.rename(run.folder.parents[1] / "away")
    assert not continues_run(settings)
