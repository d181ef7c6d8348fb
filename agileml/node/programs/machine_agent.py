"""The agent of one machine of a command job: it runs the program there and keeps its checkpoints.

``python -m agileml.node.programs.machine_agent FOLDER MACHINE CORES LOCK``, started by
``agileml.node.hosts.local``, in a process session of its own and holding the open lock file LOCK: a machine
lives as long as its agent. Orders come from a file and words go to one (``mailbox``), so neither end need be
there when the other speaks: the program goes on while nobody listens. An agent without a program to run ends
when nobody has run the job for a lease.
"""

from __future__ import annotations

import fcntl
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from agileml.node.agent import process_tree
from agileml.node.agent.watchdog import Stall, StallLog
from agileml.node.hosts.nominal_time import MachineEnded, MachineLifetime, raise_ended
from agileml.node.programs import messages as m
from agileml.node.programs.background_copy import GoesOn, Patience, Task
from agileml.node.programs.checkpoint_folder import Checkpoint
from agileml.node.programs.checkpoint_store import CheckpointStore, Stored, StoreError
from agileml.node.programs.job_folder import CommandFolder
from agileml.node.programs.jsonl_log import Inbox, Outbox
from agileml.node.programs.machine_disk import Disk, ProgressFile
from agileml.node.programs.process import Program

_TICK_S: Final = 0.03
_STANDS_AFTER_S: Final = 0.1
"""Nominal time stands still for moments whenever something is due: no reason yet to stop a program."""
_ALIVE_EVERY_S: Final = 1.0
_LEASE_S: Final = 30.0
_TRY_STORE_AGAIN_S: Final = 2.0
_LAST_TRIES_S: Final = 20.0
"""For how long the last checkpoint of a program that has ended is tried to be stored."""
_STALLED_S: Final = 600.0
"""A copy from or to the store that gets no further for so long is given up; the next after twice that."""
_STALLED_AT_THE_END_S: Final = 60.0
"""The same of the last checkpoint of a job that is stopped, once the time for it is over."""
_SUPERSEDED_S: Final = 30.0
"""The same where a newer one waits, as its machine goes; or twice what the last one took, if that is more."""
_TOLD_AFTER_S: Final = 60.0
"""A copy that does not get further for so long is told of."""
_LEAST_RESERVE_S: Final = 1.0
"""Of a notice, kept for storing the last checkpoint, where no checkpoint was timed yet."""


class Doing(Enum):
    WAITING = auto()
    PLACING = auto()
    """Files are being copied."""
    SETTING_UP = auto()
    RESTORING = auto()
    RUNNING = auto()
    ENDED = auto()
    """The program ended by itself; what it wrote last is being stored."""
    LEAVING = auto()


class Agent:
    """``stalled_s``, ``stalled_at_the_end_s``: how long a copy may show no sign of getting further."""

    def __init__(
        self,
        folder: CommandFolder,
        machine: str,
        stalled_s: float = _STALLED_S,
        stalled_at_the_end_s: float = _STALLED_AT_THE_END_S,
    ) -> None:
        self._description = folder.description()
        self._disk = Disk(folder.disk(machine))
        self._disk.path.mkdir(parents=True, exist_ok=True)
        self._machine = folder.machine(machine)
        self._alive = folder.alive(machine)
        self._orders = Inbox(folder.orders(machine))
        self._words = Outbox(folder.said(machine))
        self._store = CheckpointStore(self._description.store)
        self._doing = Doing.WAITING
        self._program: Program | None = None
        self._progress = ProgressFile(self._disk.progress)
        self._task: Task[Any] | None = None
        self._then: Callable[[Task[Any]], None] = lambda _: None
        self._at = ""  # what the task is
        self._told, self._is_told = StallLog(self._machine, "agent"), False
        self._patience = Patience()
        self._stalled_s, self._stalled_at_the_end_s = stalled_s, stalled_at_the_end_s
        self._storing = -1  # the step of the newest checkpoint that was taken up
        self._attempt = 0
        self._name = machine
        self._stored = -1  # the step of the newest checkpoint known to be in the store
        self._store_again_at = 0.0
        self._storing_took_s = 0.0
        self._refusal = ""
        self._until = 0.0  # of the notice, or of the last tries
        self._lifetime = MachineLifetime(folder.path, machine)
        self._stands = False
        self._alive.touch()  # before any word: whoever has spoken is awaited for a shorter time
        self._touched_at = self._wanted_at = time.monotonic()
        group = folder.machine(machine) / "group"
        group.with_suffix(".part").write_text(str(os.getpgrp()))
        group.with_suffix(".part").replace(group)  # whoever kills the machine reads it whole, or not yet

    def run(self) -> int:
        """Until nobody has wanted it for a lease, or its machine's time is up; the exit status.

        Machines end it long before.
        """
        while not (self._abandoned() or self._lifetime.is_over()):
            stalled = self._lifetime.driver_stalled()
            self._stand_still(stalled or self._works_for_nothing())
            if not stalled:
                self.turn()
            time.sleep(_TICK_S)
        self.end()
        return 1

    def end(self) -> None:
        """End the program, and record when that was."""
        if self._program is not None:
            self._program.kill()
        self._lifetime.record_end()

    def _works_for_nothing(self) -> bool:
        """Whether the program would do work that nobody is billed for, as nominal time stands still.

        Time may stand because a machine gets ready or leaves: those have to go on.
        """
        return self._lifetime.stood_s() > _STANDS_AFTER_S and self._doing is Doing.RUNNING

    def _stand_still(self, stands: bool) -> None:
        """Stop the program while it should not work, and go on with it: it cannot be slowed down."""
        if stands != self._stands:
            self._stands = stands
            process_tree.signal_all(signal.SIGSTOP if stands else signal.SIGCONT, str(self._machine))

    def close(self) -> None:
        """It says nothing any more."""
        self._words.close()

    def turn(self) -> None:
        """Do what is to be done now; never waits."""
        for _, content in self._orders.receive():
            self._obey(m.from_json(content))
        self._watch_task()
        self._watch_program()
        if self._task is None:
            self._store_newest()
        self._settle()

    # ---- orders -----------------------------------------------------------------------------

    def _obey(self, order: m.Order) -> None:
        match order:
            case m.Prepare():
                self._doing = Doing.PLACING
            case m.Begin(attempt):
                self._attempt, self._doing = attempt, Doing.RESTORING
            case m.Leave(seconds):
                self._leave(seconds)

    def _leave(self, seconds: float) -> None:
        self._until, self._store_again_at = time.monotonic() + seconds, 0.0
        if self._doing is Doing.ENDED:
            return  # before anybody asked it to
        if self._doing in (Doing.PLACING, Doing.RESTORING):
            self._drop_task()  # nothing will be begun from what it brings
        self._doing = Doing.LEAVING
        self._disk.announce(seconds)
        if self._program is not None:
            self._program.terminate()

    def _settle(self) -> None:
        """Whatever can be taken up, or is finished with, now."""
        match self._doing:
            case Doing.PLACING if self._task is None:
                self._start(lambda _: self._disk.place(self._description), self._placed, "placing files")
            case Doing.RESTORING if self._task is None:
                self._start(self._restore, self._restored, "fetching the newest checkpoint")
            case Doing.ENDED if self._program is None:
                self._settle_end()
            case Doing.LEAVING:
                self._settle_leave()
            case _:
                pass

    # ---- files and setup --------------------------------------------------------------------

    def _placed(self, task: Task[Any]) -> None:
        if self._doing is not Doing.PLACING:
            return
        try:
            task.result()
        except Exception as error:  # of whatever file system the job names
            self._fail("setup", 1, f"its files could not be put in place: {type(error).__name__}: {error}")
            return
        missing = [name for name in self._description.secrets if name not in os.environ]
        if missing:
            told = "not in the environment of the spotctl that started this machine; export and launch again"
            self._fail("setup", 1, f"secrets: {', '.join(missing)} {told}")
            return
        if self._description.setup:
            self._doing = Doing.SETTING_UP
            self._program = self._new_program("setup", self._description.setup, None)
        else:
            self._prepared()

    def _prepared(self) -> None:
        self._doing = Doing.WAITING
        self._say(m.Ready())

    def _fail(self, what: str, status: int, trouble: str) -> None:
        self._doing = Doing.WAITING
        self._say(m.Ended(what, status, trouble))

    # ---- the program ------------------------------------------------------------------------

    def _restore(self, goes_on: GoesOn) -> tuple[Checkpoint | None, Stored | None, bool]:
        """What to begin from, the newest in the store, and whether it was fetched from there.

        On the machine it ran on before, the program's own folder may be ahead of the store.
        """
        here = self._disk.newest()
        for stored in self._store.whole(goes_on):
            if here is not None and here.step >= stored.step:
                return here, stored, False
            try:
                return self._store.restore(stored, self._disk.checkpoints, goes_on), stored, True
            except StoreError as error:
                self._note(f"{error}; falling back on an older one")
        return here, None, False

    def _restored(self, task: Task[Any]) -> None:
        try:
            checkpoint, stored, fetched = task.result()
        except (StoreError, OSError) as error:
            if self._doing is Doing.RESTORING:
                self._fail("restoring a checkpoint", 1, str(error))
            return
        self._stored = -1 if stored is None else stored.step
        if stored is not None and fetched:
            self._say(m.Fetched(stored.step, stored.machine, stored.size_bytes))
        if self._doing is not Doing.RESTORING:
            return
        self._disk.eviction.unlink(missing_ok=True)
        self._progress = ProgressFile(self._disk.progress)
        self._program = self._new_program(f"run {self._attempt}", self._description.command, checkpoint)
        self._doing = Doing.RUNNING
        self._say(m.Began(self._attempt, 0 if checkpoint is None else checkpoint.step))
        if stored is not None:
            self._say(m.Saved(stored.step, stored.machine, stored.size_bytes))

    def _new_program(self, name: str, command: str, checkpoint: Checkpoint | None) -> Program:
        described = self._description
        job = {
            "SPOTCTL_JOB": described.job,
            "SPOTCTL_RUN": described.run,
            "SPOTCTL_ATTEMPT": str(self._attempt),
        }
        environment = {**os.environ, **job, **self._disk.variables(checkpoint)}
        environment["PYTHONPATH"] = _theirs(os.environ.get("PYTHONPATH", ""))
        secrets = {name: os.environ[name] for name in described.secrets if name in os.environ}
        log = self._machine / "program.log"
        return Program(f"{self._machine}/{name}", command, self._disk.work, environment, log, secrets)

    def _watch_program(self) -> None:
        program = self._program
        if program is None:
            return
        program.pump()
        self._tell_progress()
        if self._doing is Doing.LEAVING:
            if program.running and time.monotonic() < self._until - self._reserve_s():
                return
        elif program.status is None:
            return
        status = program.status
        program.kill()
        program.close()
        self._program = None
        self._tell_progress()
        if self._doing is Doing.LEAVING:
            return
        self._ended(program, 0 if status is None else status)

    def _tell_progress(self) -> None:
        reached = self._progress.news()
        if reached is not None and self._doing is not Doing.SETTING_UP:
            self._say(reached)

    def _ended(self, program: Program, status: int) -> None:
        if self._doing is Doing.SETTING_UP:
            if status == 0:
                self._prepared()
            else:
                self._fail("setup", status, program.tail)
        elif status == 0:
            self._doing, self._until = Doing.ENDED, time.monotonic() + _LAST_TRIES_S
            self._store_again_at = 0.0
        else:
            self._fail("run", status, program.tail)

    def _settle_end(self) -> None:
        """The work is done once its last checkpoint is in the store."""
        if self._all_stored():
            self._doing = Doing.WAITING
            self._say(m.Ended("run", 0, ""))
        elif time.monotonic() > self._until and self._task is None:
            self._fail("storing the last checkpoint", 1, self._refusal)

    def _settle_leave(self) -> None:
        if self._program is not None:
            return
        if self._all_stored():
            self._doing = Doing.WAITING
            self._say(m.Left())
        elif time.monotonic() > self._until and self._task is None:
            self._fail("storing the last checkpoint", 1, self._refusal)

    def _reserve_s(self) -> float:
        """How long before the end of a notice a program that does not stop is ended."""
        return max(_LEAST_RESERVE_S, 2 * self._storing_took_s)

    # ---- checkpoints ------------------------------------------------------------------------

    def _all_stored(self) -> bool:
        newest = self._disk.newest()
        return self._task is None and (newest is None or newest.step <= self._stored)

    def _store_newest(self) -> None:
        """Take up the newest whole checkpoint that is not in the store, one at a time."""
        if self._doing not in (Doing.WAITING, Doing.RUNNING, Doing.ENDED, Doing.LEAVING) or not self._attempt:
            return
        newest = self._disk.newest()
        if newest is None or newest.step <= self._stored or time.monotonic() < self._store_again_at:
            return
        began, self._storing = time.monotonic(), newest.step
        self._start(
            lambda goes_on: self._store.publish(newest, self._name, goes_on),
            lambda task: self._published(task, newest, began),
            f"storing step-{newest.step}",
        )

    def _published(self, task: Task[Any], checkpoint: Checkpoint, began: float) -> None:
        try:
            stored: Stored = task.result()
        except (StoreError, OSError) as error:
            if checkpoint.path.exists():  # else its program has removed it, and has a newer one
                self._refusal = f"step-{checkpoint.step} was not stored: {error}"
                self._note(f"{self._refusal}; it is tried again")
                self._store_again_at = time.monotonic() + _TRY_STORE_AGAIN_S
            return
        self._storing_took_s = time.monotonic() - began
        self._stored = checkpoint.step
        self._say(m.Saved(stored.step, stored.machine, stored.size_bytes))

    # ---- the rest ---------------------------------------------------------------------------

    def _start(self, work: Callable[[GoesOn], Any], then: Callable[[Task[Any]], None], at: str = "") -> None:
        self._task, self._then, self._at = Task(work), then, at

    def _watch_task(self) -> None:
        silent_s = self._patience.silent_s(self._task)
        self._tell_wait(silent_s)
        if self._task is not None and self._task.done:
            task, self._task = self._task, None
            self._then(task)
        elif self._task is not None and silent_s > self._may_stall_s():
            self._give_up(silent_s)

    def _tell_wait(self, silent_s: float) -> None:
        told = self._task is not None and silent_s > _TOLD_AFTER_S
        overdue = [Stall(self._at, silent_s, news=not self._is_told)] if told else []
        self._is_told = told
        self._told.report_stalls(overdue, time.time())

    def _may_stall_s(self) -> float:
        """Files of the job are copied without a sign of it: nobody can say that it does not get further."""
        if self._doing is Doing.PLACING:
            return math.inf
        if self._doing is not Doing.LEAVING or self._program is not None:
            return self._stalled_s
        newest, limits = self._disk.newest(), [self._stalled_s]
        if newest is not None and newest.step > self._storing:
            limits.append(max(_SUPERSEDED_S, 2 * self._storing_took_s))
        if time.monotonic() > self._until:
            limits.append(self._stalled_at_the_end_s)
        return min(limits)

    def _give_up(self, silent_s: float) -> None:
        """Of a store that is dead nothing else is to be had; a connection that is, is made anew.

        Where it was slow and nothing else, it has longer the next time.
        """
        self._drop_task()
        self._stalled_s *= 2
        self._store_again_at = time.monotonic() + _TRY_STORE_AGAIN_S
        self._refusal = f"{self._at}: nothing came of it for {silent_s:.0f} s, and it was given up"
        self._note(self._refusal)
        if self._doing is Doing.RESTORING:
            self._fail("restoring a checkpoint", 1, self._refusal)

    def _drop_task(self) -> None:
        if self._task is not None:
            self._task.abandon()
            self._task = None

    def _say(self, word: m.Word) -> None:
        self._words.send(m.to_json(word))

    def _note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _abandoned(self) -> bool:
        """Shows that it lives; whether nobody has run the job, and it no program, for a lease."""
        now = time.monotonic()
        if now - self._touched_at >= _ALIVE_EVERY_S:
            self._touched_at = now
            self._alive.touch()
            if self._program is not None or self._task is not None or _held(Path(self._description.lock)):
                self._wanted_at = now
        return now - self._wanted_at > _LEASE_S


def _held(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _theirs(path: str) -> str:
    """PYTHONPATH as the job's user has it: the host puts our own root in front of it for the agent."""
    return path.partition(os.pathsep)[2]


def main(folder: str, machine: str, cores: str, lock: str) -> int:
    """``lock`` stays open, as this process does; the program does not inherit it."""
    os.set_inheritable(int(lock), False)
    os.environ["SPOTCTL_CPUS"] = cores
    with closing(Agent(CommandFolder(Path(folder)), machine)) as agent:
        signal.signal(signal.SIGTERM, raise_ended)
        try:
            return agent.run()
        except MachineEnded:
            agent.end()
            return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
