"""The agent of a machine: when its store stops answering, and when nominal time stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from agileml.node.agent.notices import NOTICE_FILE_VARIABLE
from agileml.node.hosts.nominal_time import AgentLifetime, ClockDriver
from agileml.node.programs import messages as m
from agileml.node.programs.background_copy import BackgroundTask, StallTimer
from agileml.node.programs.checkpoint_store import CheckpointStore
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.programs.local_host import ProgramHost
from agileml.node.programs.machine_agent import ProgramWorkload
from agileml.node.tier import Tier
from tests.agileml.processes.program_agents import LIMIT_S, PlayedSupervisor, described

SPEED = 600.0
PROGRAM = """
cd $SPOTCTL_CHECKPOINT_DIR
trap 'mkdir half; echo 2 > half/w; mv half step-2; exit 0' TERM
mkdir part; echo 1 > part/w; mv part step-1
while true; do sleep 0.05; done
"""
pytestmark = pytest.mark.process


class Stuck(LocalFileSystem):  # type: ignore[misc]
    """A store whose connections stop answering, those that were made before it was ``mended``."""

    protocol = "stuck"
    mended: ClassVar[threading.Event]
    released: ClassVar[threading.Event]
    stuck: ClassVar[int]
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("stuck://"))

    def put_file(self, path1: Any, path2: Any, callback: Any = None, **kwargs: Any) -> None:
        if not self.mended.is_set():
            type(self).stuck += 1
            assert self.released.wait(LIMIT_S)
        super().put_file(path1, path2, **kwargs)
        callback.relative_update(1)


@pytest.fixture
def stuck() -> Iterator[type[Stuck]]:
    Stuck.mended, Stuck.released, Stuck.stuck = threading.Event(), threading.Event(), 0
    fsspec.register_implementation("stuck", Stuck, clobber=True)
    yield Stuck
    Stuck.mended.set()
    Stuck.released.set()


class Machine:
    """A machine whose program writes step-1 and, when it is stopped, step-2. Nobody is at the other end."""

    def __init__(self, path: Path, stalled_s: float, stalled_at_the_end_s: float) -> None:
        self.store = f"stuck://{path}/store"
        program = described(PROGRAM, path, self.store)
        self._folder = folder = ProgramFolder.prepare(path / "training", program)
        folder.machine_folder("s1-1").mkdir()
        self._workload = ProgramWorkload(folder.path, "s1-1", stalled_s, stalled_at_the_end_s)
        self._lifetime = AgentLifetime(folder.path, "s1-1")
        self.said: list[m.Message] = []
        self.order(m.Prepare(program))
        self.until(lambda: m.Ready() in self.said)
        self.order(m.Begin(1))

    def order(self, order: m.Order) -> None:
        assert self._workload.obey_order(order) is None

    def until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < until, self.said
            assert self._workload.run_turn(self._lifetime) is None
            self.said += self._workload.outbox
            self._workload.outbox.clear()
            time.sleep(0.01)

    def close(self) -> None:
        self._workload.end()
        self._folder.remove_sockets()

    def steps(self) -> list[int]:
        return [stored.step for stored in CheckpointStore(self.store).list_complete()]


def test_an_upload_that_gets_nowhere_is_given_up_and_the_checkpoint_stored_all_the_same(
    stuck: type[Stuck], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(Machine(tmp_path, stalled_s=3.0, stalled_at_the_end_s=60.0)) as machine:
        machine.until(lambda: stuck.stuck >= 1)
        stuck.mended.set()
        machine.until(lambda: any(isinstance(word, m.Saved) for word in machine.said))
        assert machine.steps() == [1]
        stuck.released.set()
        machine.order(m.Leave(5.0))
        machine.until(lambda: m.Left() in machine.said)
        assert machine.steps() == [2, 1], "what the abandoned one still did has harmed nothing"
        assert "storing step-1: no progress for" in capfd.readouterr().err


def test_a_cancel_ends_though_the_store_never_answers(stuck: type[Stuck], tmp_path: Path) -> None:
    with closing(Machine(tmp_path, stalled_s=3600.0, stalled_at_the_end_s=0.5)) as machine:
        machine.until(lambda: stuck.stuck >= 1)
        machine.order(m.Leave(0.5))
        machine.until(lambda: any(isinstance(word, m.Ended) for word in machine.said))
        (ended,) = (word for word in machine.said if isinstance(word, m.Ended))
        assert (ended.what, ended.status) == ("storing the last checkpoint", 1)
        assert "no progress for" in ended.trouble


def test_patience_is_with_what_gets_further_and_with_those_who_slept() -> None:
    now, further, goes_on = 100.0, threading.Event(), threading.Event()

    def work(step: Callable[[], None]) -> None:
        assert goes_on.wait(LIMIT_S)
        step()
        further.set()
        assert ended.wait(LIMIT_S)

    ended = threading.Event()
    patience, task = StallTimer(clock=lambda: now), BackgroundTask(work)

    def silent_s(after_s: float) -> float:
        nonlocal now
        now += after_s
        return patience.silent_s(task)

    assert silent_s(1.0) == 0.0
    assert [silent_s(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert silent_s(8 * 3600.0) == 5.0, "a laptop slept"
    goes_on.set()
    assert further.wait(LIMIT_S)
    assert silent_s(1.0) == 0.0
    ended.set()


def test_what_was_abandoned_ends_where_it_next_gets_further() -> None:
    abandoned, reached = threading.Event(), []

    def work(step: Callable[[], None]) -> None:
        assert abandoned.wait(LIMIT_S)
        step()
        reached.append("the end")

    task = BackgroundTask(work)
    task.abandon()
    abandoned.set()
    until = time.monotonic() + LIMIT_S
    while not task.is_done:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert reached == []


class Timed:
    """A machine in a process of its own, in nominal time; its program adds a byte to a file now and then."""

    def __init__(self, path: Path) -> None:
        program = "echo begun; while true; do printf x >> written; sleep 0.02; done"
        self.folder = ProgramFolder.prepare(path / "training", described(program, path))
        self.clock = ClockDriver(self.folder.path, 0.0, SPEED)
        self.host = ProgramHost(self.folder.path)
        self._supervisor = PlayedSupervisor(self.folder, "s1-1")
        self.host.start_machine("s1-1", Tier.TRANSIENT, 1)
        self.moved = 0.0
        self.order(m.Prepare(self.folder.read_description()))
        self.drive(lambda: m.Ready() in self.heard())
        self.order(m.Begin(1))
        self.drive(lambda: self.written() > 0)

    def order(self, order: m.Order) -> None:
        self._supervisor.order("s1-1", order)

    def heard(self) -> list[m.Message]:
        return self._supervisor.heard()

    def written(self) -> int:
        file = self.folder.disk_folder("s1-1") / "work" / "written"
        return file.stat().st_size if file.exists() else 0

    def drive(self, until: Callable[[], bool], *, hold: bool = False, awaited: bool = False) -> None:
        """Drive nominal time, which stands where it is held, ``until`` something is so."""
        ends = time.monotonic() + LIMIT_S
        while not until():
            assert time.monotonic() < ends
            limit = self.moved if hold else self.moved + SPEED
            self.clock.release_until(self.moved, time.time(), limit, awaited=awaited)
            self.heard()
            time.sleep(0.02)
            self.moved += 0.0 if hold else 0.02 * SPEED

    def for_s(self, seconds: float) -> Callable[[], bool]:
        until = time.monotonic() + seconds
        return lambda: time.monotonic() > until

    def close(self) -> None:
        self._supervisor.close()
        self.host.kill_all()
        self.clock.close()


def test_a_program_stands_still_while_nominal_time_is_held(tmp_path: Path) -> None:
    """Time is held where another machine takes long to get ready, say; what the job waits for goes on."""
    with closing(Timed(tmp_path)) as machine:
        machine.drive(machine.for_s(0.6), hold=True)
        stood = machine.written()
        machine.drive(machine.for_s(1.0), hold=True)
        assert machine.written() == stood
        machine.drive(lambda: machine.written() > stood)
        machine.drive(machine.for_s(0.6), hold=True)
        stood = machine.written()
        machine.drive(lambda: machine.written() > stood, hold=True, awaited=True)
        machine.drive(machine.for_s(0.6), hold=True)
        machine.order(m.Leave(20.0))
        machine.drive(lambda: m.Left() in machine.heard(), hold=True)


def test_a_machine_says_that_it_heard_of_its_eviction_and_an_unclaimed_one_is_ended(tmp_path: Path) -> None:
    folder = ProgramFolder.prepare(tmp_path / "training", described("sleep 60", tmp_path))
    notice = tmp_path / "notice"
    host = ProgramHost(folder.path, {NOTICE_FILE_VARIABLE: str(notice)})
    supervisor = PlayedSupervisor(folder, "s1-1")
    host.start_machine("s1-1", Tier.TRANSIENT, 1)
    try:
        notice.write_text("120")
        until = time.monotonic() + LIMIT_S
        while m.Noticed(120.0) not in supervisor.heard():
            assert time.monotonic() < until
            time.sleep(0.02)
        supervisor.order("s1-1", m.ShutDown())
        while host.is_alive("s1-1"):
            assert time.monotonic() < until
            supervisor.heard()
            time.sleep(0.02)
    finally:
        supervisor.close()
        host.kill_all()


def test_a_program_goes_on_when_the_driver_dies_that_held_its_time(tmp_path: Path) -> None:
    """Nominal time goes on then."""
    with closing(Timed(tmp_path)) as machine:
        machine.drive(machine.for_s(0.6), hold=True)
        stood = machine.written()
        machine.clock.close()
        until = time.monotonic() + LIMIT_S
        while machine.written() == stood:
            assert time.monotonic() < until
            time.sleep(0.02)
