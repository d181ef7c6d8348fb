"""A queue that is killed between any two writes is gone on with: each job runs once, nothing is lost.

What a kill leaves is what is on the disk at that moment. So a queue is run once and all of its files are
copied before its next write, whatever writes; then it is gone on with from each copy. A moment is known by
the functions that write, and by what they write: the first of each kind is taken.

``pytest --campaign tests/spotctl/queue/test_killed.py`` goes on from all of them.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import spotctl
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.job.choices import WorldKind
from spotctl.queue.lifecycle.journal import QueueFolder, root_of
from spotctl.queue.lifecycle.requests import Request
from spotctl.queue.spec import member_text
from spotctl.records.run import Run, RunStore
from tests.spotctl.queue.build import (
    Crash,
    Queue,
    Watching,
    command,
    elastic,
    entries_of,
    most_at_once,
    queue,
)

SAMPLE: Final = 4
HEAD: Final = "name: night\nround: 10m\nbudget: 9\nquotas: {c4.xlarge: 3, m4.large: 1}"
ENDS: Final = {"a": 0, "b": 0, "c": 0, "d": 7, "x": 0}
"""a is promised its deadline, b is elastic, c comes after a, d is removed and x added while they run."""
_SYSTEM: Final = {"mkdir", "rename", "replace", "unlink", "rmdir", "fsync"}
_METHODS: Final = {
    "FileIO.write",
    "FileIO.truncate",
    "BufferedWriter.write",
    "BufferedWriter.flush",
    "Connection.execute",
    "Connection.executemany",
    "Connection.executescript",
}
_OURS: Final = str(Path(spotctl.__file__).parent)

Moment = tuple[str, ...]


@dataclass
class Copying:
    """Told of every call by ``sys.setprofile``: copies ``home`` before the first write of each kind."""

    home: Path
    to: Path
    taken: dict[Moment, Path] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not _writes(called):
            return
        moment = (called.__qualname__, *_kind(frame))
        if moment not in self.taken and self.home.is_dir():
            copy = self.taken[moment] = self.to / str(len(self.taken))
            sys.setprofile(None)
            shutil.copytree(self.home, copy)
            sys.setprofile(self)


def _writes(called: Any) -> bool:
    name = getattr(called, "__qualname__", "")
    return name in _METHODS or (name in _SYSTEM and getattr(called, "__module__", "") == "posix")


def _kind(frame: FrameType | None) -> Iterator[str]:
    """Who writes, innermost first, and which notes or entries."""
    for _ in range(12):
        if frame is None:
            return
        if frame.f_code.co_filename.startswith(_OURS):
            yield frame.f_code.co_qualname
            if frame.f_code.co_qualname == "Journal.write":
                yield type(frame.f_locals["note"]).__name__
            if frame.f_code.co_qualname == "Ledger.commit":
                yield " ".join(sorted({row[3] for row in frame.f_locals["self"]._entries}))
        frame = frame.f_back


@contextmanager
def watched(copying: Copying) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(copying)
    try:
        yield
    finally:
        sys.setprofile(before)


@dataclass
class Asking(Watching):
    """Somebody adds x and removes d as soon as anything is on record, if nobody has."""

    folder: QueueFolder | None = None
    requests: tuple[Request, ...] = ()
    told: list[tuple[str, int]] = field(default_factory=list)

    def on_entry(self, state: State, entry: e.Entry) -> None:
        super().on_entry(state, entry)
        if self.folder is not None and isinstance(entry, e.InstancesRunning):
            made = {asked for _, asked in self.folder.requests_after(after=0)}
            for request in self.requests:
                if request not in made:
                    self.folder.leave_request(request)

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        super().on_left(job, exit_code, why, final)
        self.told.append((job, exit_code))


@dataclass(frozen=True)
class Night:
    """The queue under test."""

    of: Queue
    requests: tuple[Request, ...]

    def watching(self) -> Asking:
        folder = QueueFolder("night", root_of(WorldKind.REPLAY))
        return Asking(folder=folder, requests=self.requests)

    def go_on(self) -> tuple[dict[str, Any], Asking]:
        """From what is on the disk, as ``queue run`` does of a queue that is no replay."""
        watching = self.watching()
        folder = QueueFolder("night", root_of(WorldKind.REPLAY))
        begun = folder.unfinished_run() is not None
        return (self.of.go_on(watching) if begun else self.of.run(watching)), watching


@pytest.fixture
def night(tmp_path: Path) -> Night:
    jobs = [
        (command(tmp_path, "a", steps=5, takes=10), "deadline: 3h"),
        (elastic(tmp_path, "b", steps=5, most=2), ""),
        (command(tmp_path, "c", steps=2, takes=10), "after: [a]"),
        (command(tmp_path, "d", steps=20, takes=30), ""),
    ]
    of = queue(tmp_path, HEAD, jobs)
    a = of.settings.spec.jobs[0]
    x = replace(a, spec=replace(a.spec, name="x", objective=replace(a.spec.objective, deadline=None)))
    return Night(of, (Request("x", member_text(x)), Request("d")))


def kinds(copying: Copying, campaign: bool) -> Mapping[Moment, Path]:
    """Without a campaign: before each note of the queue's journal, and some others."""
    moments = sorted(copying.taken)
    if not campaign:
        notes = [m for m in moments if m[0] == "FileIO.write" and "Journal.write" in m]
        moments = notes + random.Random(len(moments)).sample(sorted({*moments} - {*notes}), SAMPLE)
    return {moment: copying.taken[moment] for moment in moments}


def test_whatever_was_written_last_each_job_is_run_once_and_nothing_is_lost(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("SPOTCTL_HOME", str(home))
    copying, undisturbed = Copying(home, tmp_path / "copies"), night.watching()
    with watched(copying):
        before = night.of.run(undisturbed)
    assert undisturbed.left == ENDS
    assert len(copying.taken) > 50
    for moment, copy in kinds(copying, pytestconfig.getoption("--campaign")).items():
        monkeypatch.setenv("SPOTCTL_HOME", str(copy))
        if is_closed():
            continue
        after, resumed = night.go_on()
        assert_whole(night, after, resumed, RunStore(copy / "replays"), moment)
        assert after["exit_code"] == before["exit_code"], moment


def is_closed() -> bool:
    newest = QueueFolder("night", root_of(WorldKind.REPLAY)).newest_run()
    return newest is not None and newest.read_record().closed is not None


def assert_whole(
    night: Night, final: dict[str, Any], resumed: Asking, runs: RunStore, moment: Moment
) -> None:
    ends = {job["job"]: job["exit_code"] for job in final["jobs"]}
    assert ends in (ENDS, ENDS | {"d": 0}), moment
    assert len(final["jobs"]) == len(ends), moment
    assert sorted(set(resumed.told)) == sorted(resumed.told), f"{moment}: somebody's end was told twice"
    assert all(ends[job] == code for job, code in resumed.told), f"{moment}: {resumed.told}"
    closed = {run.name: run for run in runs.list_runs() if run.fold_state().ending.closed is not None}
    assert len(closed) == sum(run.fold_state().ending.closed is not None for run in runs.list_runs()), moment
    held = entries_of({f"{run.name} {run.id}": run for run in runs.list_runs()})
    for kind, most in most_at_once(held).items():
        assert most <= night.of.settings.spec.quotas[kind], moment
    for run in runs.list_runs():
        if run not in closed.values():  # begun, and killed before that was in the queue's journal
            assert not any(isinstance(entry, e.Acquire) for entry in entries(run)), moment
    assert not any(True for run in closed.values() for _ in run.fold_state().live_instances()), moment
    assert closed["a"].fold_state().share.allowance is not None, f"{moment}: nobody counts what a may spend"
    total = sum((Decimal(job["cost"]["total"]) for job in final["jobs"] if job["run"]), Decimal(0))
    assert Decimal(final["cost"]["total"]) == total <= 9, moment
    promised = {job["job"] for job in final["jobs"] if job["promised"]}
    assert promised == {"a"}, moment


def entries(run: Run) -> tuple[e.Entry, ...]:
    return entries_of({run.name: run})[run.name]


@dataclass
class Dying(Watching):
    """The process dies when a is told what it may spend, before that is on record."""

    def on_entry(self, state: State, entry: e.Entry) -> None:
        super().on_entry(state, entry)
        if isinstance(entry, e.Leased):
            raise Crash


def test_what_a_promised_job_may_spend_is_counted_after_a_kill_though_it_never_gets_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All machines there are are kept for its promise."""
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    head = "name: night\nround: 30m\nbudget: 9\nquotas: {c4.xlarge: 1}"
    of = queue(tmp_path, head, [(command(tmp_path, "a", steps=12, takes=120), "deadline: 5h")])
    with pytest.raises(Crash):
        of.run(Dying())
    resumed = Watching()
    final = of.go_on(resumed)
    (job,) = final["jobs"]
    assert (job["promised"], job["exit_code"]) == (True, 0)
    state = resumed.runs["a"].fold_state()
    newest = QueueFolder("night", root_of(WorldKind.REPLAY)).newest_run()
    assert newest is not None
    assert not any(isinstance(x, e.Leased) and x.lease is not None for x in entries(resumed.runs["a"]))
    assert state.share.allowance == newest.read_record().entered["a"].allowance is not None
