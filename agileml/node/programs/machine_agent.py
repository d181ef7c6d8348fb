"""Runs the agent of one machine of a command job: it runs the program there and keeps its checkpoints.

``python -m agileml.node.programs.machine_agent FOLDER MACHINE CORES LOCK``, started by
``agileml.node.hosts.local``, in a process session of its own and holding the open lock file LOCK: a machine
lives as long as its agent. Orders come from a file and words go to one (``jsonl_log``), so neither end need
be there when the other speaks: the program goes on while nobody listens. An agent without a program to run
ends when nobody has run the job for a lease.
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
from agileml.node.hosts.nominal_time import AgentLifetime, MachineEnded, raise_ended
from agileml.node.programs import messages as m
from agileml.node.programs.background_copy import BackgroundTask, NoteProgress, StallTimer
from agileml.node.programs.checkpoint_folder import Checkpoint
from agileml.node.programs.checkpoint_store import CheckpointStore, StoredCheckpoint, StoreError
from agileml.node.programs.job_folder import CommandFolder
from agileml.node.programs.jsonl_log import JsonlReader, JsonlWriter
from agileml.node.programs.machine_disk import MachineDisk, ProgressFile
from agileml.node.programs.process import ProgramProcess

_TICK_S: Final = 0.03
_STANDS_AFTER_S: Final = 0.1
"""How long nominal time stands still before the program is stopped: moments of it occur whenever something is
due.
"""
_ALIVE_EVERY_S: Final = 1.0
_LEASE_S: Final = 30.0
_TRY_STORE_AGAIN_S: Final = 2.0
_LAST_TRIES_S: Final = 20.0
"""For how long the agent tries to store the last checkpoint of a program that has ended."""
_STALLED_S: Final = 600.0
"""A copy from or to the store that gets no further for so long is given up; the next after twice that."""
_STALLED_AT_THE_END_S: Final = 60.0
"""The same for the last checkpoint of a job that is stopped, once the time for it is over."""
_SUPERSEDED_S: Final = 30.0
"""The same where a newer one waits while the machine leaves; or twice what the last one took, if that is
more.
"""
_TOLD_AFTER_S: Final = 60.0
"""A copy that does not get further for so long is reported."""
_LEAST_RESERVE_S: Final = 1.0
"""The part of a notice kept for storing the last checkpoint, where none was timed yet."""


class AgentPhase(Enum):
    """The agent's present occupation."""

    WAITING = auto()
    PLACING = auto()
    """Files are being copied."""
    SETTING_UP = auto()
    RESTORING = auto()
    RUNNING = auto()
    ENDED = auto()
    """The program ended by itself; what it wrote last is being stored."""
    LEAVING = auto()


class ProgramAgent:
    """The agent. ``stalled_s``, ``stalled_at_the_end_s``: how long a copy may make no progress."""

    def __init__(
        self,
        folder: CommandFolder,
        machine: str,
        stalled_s: float = _STALLED_S,
        stalled_at_the_end_s: float = _STALLED_AT_THE_END_S,
    ) -> None:
        self._description = folder.read_description()
        self._disk = MachineDisk(folder.disk_folder(machine))
        self._disk.path.mkdir(parents=True, exist_ok=True)
        self._machine = folder.machine_folder(machine)
        self._alive = folder.alive_file(machine)
        self._orders = JsonlReader(folder.orders_file(machine))
        self._words = JsonlWriter(folder.words_file(machine))
        self._store = CheckpointStore(self._description.store)
        self._phase = AgentPhase.WAITING
        self._program: ProgramProcess | None = None
        self._progress = ProgressFile(self._disk.progress)
        self._task: BackgroundTask[Any] | None = None
        self._then: Callable[[BackgroundTask[Any]], None] = lambda _: None
        self._at = ""  # what the task is
        self._stall_log, self._stall_reported = StallLog(self._machine, "agent"), False
        self._patience = StallTimer()
        self._stalled_s, self._stalled_at_the_end_s = stalled_s, stalled_at_the_end_s
        self._storing = -1  # the step of the newest checkpoint that was taken up
        self._attempt = 0
        self._name = machine
        self._stored = -1  # the step of the newest checkpoint known to be in the store
        self._store_again_at = 0.0
        self._storing_took_s = 0.0
        self._refusal = ""
        self._until = 0.0  # of the notice, or of the last tries
        self._lifetime = AgentLifetime(folder.path, machine)
        self._stands = False
        self._alive.touch()  # before any word: an agent that has spoken gets less time until its next sign
        self._touched_at = self._wanted_at = time.monotonic()
        group = folder.machine_folder(machine) / "group"
        group.with_suffix(".part").write_text(str(os.getpgrp()))
        group.with_suffix(".part").replace(group)  # its killer reads a complete file or none

    def run(self) -> int:
        """Runs until nobody has wanted it for a lease, or its machine's time is up; returns the exit status.

        A host ends machines long before.
        """
        while not (self._is_unwanted() or self._lifetime.is_over()):
            stalled = self._lifetime.driver_stalled()
            self._pause_program(stalled or self._works_unpaid())
            if not stalled:
                self.run_turn()
            time.sleep(_TICK_S)
        self.end_program()
        return 1

    def end_program(self) -> None:
        """Ends the program, and records when that was."""
        if self._program is not None:
            self._program.kill()
        self._lifetime.record_end()

    def _works_unpaid(self) -> bool:
        """Whether the program would do work that nobody is billed for, as nominal time stands still.

        Time may stand because a machine gets ready or leaves: those have to go on.
        """
        return self._lifetime.stood_s() > _STANDS_AFTER_S and self._phase is AgentPhase.RUNNING

    def _pause_program(self, stands: bool) -> None:
        """Stops the program while it should not work, and continues it afterwards: it
        cannot be slowed down.
        """
        if stands != self._stands:
            self._stands = stands
            process_tree.signal_all(signal.SIGSTOP if stands else signal.SIGCONT, str(self._machine))

    def close(self) -> None:
        """Closes the file of its words: it says nothing any more."""
        self._words.close()

    def run_turn(self) -> None:
        """Does what is to be done now; never waits."""
        for _, content in self._orders.receive():
            self._obey_order(m.from_json(content))
        self._watch_task()
        self._watch_program()
        if self._task is None:
            self._store_newest()
        self._advance_phase()

    # ---- orders -----------------------------------------------------------------------------

    def _obey_order(self, order: m.Order) -> None:
        match order:
            case m.Prepare():
                self._phase = AgentPhase.PLACING
            case m.Begin(attempt):
                self._attempt, self._phase = attempt, AgentPhase.RESTORING
            case m.Leave(seconds):
                self._start_leaving(seconds)

    def _start_leaving(self, seconds: float) -> None:
        self._until, self._store_again_at = time.monotonic() + seconds, 0.0
        if self._phase is AgentPhase.ENDED:
            return  # it ended by itself, before it was asked to
        if self._phase in (AgentPhase.PLACING, AgentPhase.RESTORING):
            self._drop_task()  # its result is not needed any more
        self._phase = AgentPhase.LEAVING
        self._disk.announce_eviction(seconds)
        if self._program is not None:
            self._program.terminate()

    def _advance_phase(self) -> None:
        """Takes up, or finishes, whatever can be now."""
        match self._phase:
            case AgentPhase.PLACING if self._task is None:
                self._start_task(
                    lambda _: self._disk.place_files(self._description), self._files_placed, "placing files"
                )
            case AgentPhase.RESTORING if self._task is None:
                self._start_task(
                    self._fetch_checkpoint, self._checkpoint_fetched, "fetching the newest checkpoint"
                )
            case AgentPhase.ENDED if self._program is None:
                self._finish_ended()
            case AgentPhase.LEAVING:
                self._finish_leaving()
            case _:
                pass

    # ---- files and setup --------------------------------------------------------------------

    def _files_placed(self, task: BackgroundTask[Any]) -> None:
        if self._phase is not AgentPhase.PLACING:
            return
        try:
            task.result()
        except Exception as error:  # file systems have error types of their own
            self._report_failure(
                "setup", 1, f"its files could not be put in place: {type(error).__name__}: {error}"
            )
            return
        missing = [name for name in self._description.secrets if name not in os.environ]
        if missing:
            remedy = (
                "not in the environment of the spotctl that started this machine; export and launch again"
            )
            self._report_failure("setup", 1, f"secrets: {', '.join(missing)} {remedy}")
            return
        if self._description.setup:
            self._phase = AgentPhase.SETTING_UP
            self._program = self._new_program("setup", self._description.setup, None)
        else:
            self._report_ready()

    def _report_ready(self) -> None:
        self._phase = AgentPhase.WAITING
        self._send_word(m.Ready())

    def _report_failure(self, what: str, status: int, trouble: str) -> None:
        self._phase = AgentPhase.WAITING
        self._send_word(m.Ended(what, status, trouble))

    # ---- the program ------------------------------------------------------------------------

    def _fetch_checkpoint(
        self, goes_on: NoteProgress
    ) -> tuple[Checkpoint | None, StoredCheckpoint | None, bool]:
        """Returns what to begin from, the newest in the store, and whether it was fetched from there.

        On the machine it ran on before, the program's own folder may be ahead of the store.
        """
        here = self._disk.newest_checkpoint()
        for stored in self._store.list_complete(goes_on):
            if here is not None and here.step >= stored.step:
                return here, stored, False
            try:
                return self._store.restore(stored, self._disk.checkpoints, goes_on), stored, True
            except StoreError as error:
                self._log_note(f"{error}; falling back on an older one")
        return here, None, False

    def _checkpoint_fetched(self, task: BackgroundTask[Any]) -> None:
        try:
            checkpoint, stored, fetched = task.result()
        except (StoreError, OSError) as error:
            if self._phase is AgentPhase.RESTORING:
                self._report_failure("restoring a checkpoint", 1, str(error))
            return
        self._stored = -1 if stored is None else stored.step
        if stored is not None and fetched:
            self._send_word(m.Fetched(stored.step, stored.machine, stored.size_bytes))
        if self._phase is not AgentPhase.RESTORING:
            return
        self._disk.eviction.unlink(missing_ok=True)
        self._progress = ProgressFile(self._disk.progress)
        self._program = self._new_program(f"run {self._attempt}", self._description.command, checkpoint)
        self._phase = AgentPhase.RUNNING
        self._send_word(m.Began(self._attempt, 0 if checkpoint is None else checkpoint.step))
        if stored is not None:
            self._send_word(m.Saved(stored.step, stored.machine, stored.size_bytes))

    def _new_program(self, name: str, command: str, checkpoint: Checkpoint | None) -> ProgramProcess:
        described = self._description
        job = {
            "SPOTCTL_JOB": described.job,
            "SPOTCTL_RUN": described.run,
            "SPOTCTL_ATTEMPT": str(self._attempt),
        }
        environment = {**os.environ, **job, **self._disk.environment_variables(checkpoint)}
        environment["PYTHONPATH"] = _user_python_path(os.environ.get("PYTHONPATH", ""))
        secrets = {name: os.environ[name] for name in described.secrets if name in os.environ}
        log = self._machine / "program.log"
        return ProgramProcess(f"{self._machine}/{name}", command, self._disk.work, environment, log, secrets)

    def _watch_program(self) -> None:
        program = self._program
        if program is None:
            return
        program.copy_output()
        self._tell_progress()
        if self._phase is AgentPhase.LEAVING:
            if program.is_running and time.monotonic() < self._until - self._reserve_s():
                return
        elif program.status is None:
            return
        status = program.status
        program.kill()
        program.close()
        self._program = None
        self._tell_progress()
        if self._phase is AgentPhase.LEAVING:
            return
        self._program_ended(program, 0 if status is None else status)

    def _tell_progress(self) -> None:
        reached = self._progress.read_latest()
        if reached is not None and self._phase is not AgentPhase.SETTING_UP:
            self._send_word(reached)

    def _program_ended(self, program: ProgramProcess, status: int) -> None:
        if self._phase is AgentPhase.SETTING_UP:
            if status == 0:
                self._report_ready()
            else:
                self._report_failure("setup", status, program.last_lines)
        elif status == 0:
            self._phase, self._until = AgentPhase.ENDED, time.monotonic() + _LAST_TRIES_S
            self._store_again_at = 0.0
        else:
            self._report_failure("run", status, program.last_lines)

    def _finish_ended(self) -> None:
        """Reports the end of the work once its last checkpoint is in the store."""
        if self._all_stored():
            self._phase = AgentPhase.WAITING
            self._send_word(m.Ended("run", 0, ""))
        elif time.monotonic() > self._until and self._task is None:
            self._report_failure("storing the last checkpoint", 1, self._refusal)

    def _finish_leaving(self) -> None:
        if self._program is not None:
            return
        if self._all_stored():
            self._phase = AgentPhase.WAITING
            self._send_word(m.Left())
        elif time.monotonic() > self._until and self._task is None:
            self._report_failure("storing the last checkpoint", 1, self._refusal)

    def _reserve_s(self) -> float:
        """Returns how long before the end of a notice a program that does not stop is ended."""
        return max(_LEAST_RESERVE_S, 2 * self._storing_took_s)

    # ---- checkpoints ------------------------------------------------------------------------

    def _all_stored(self) -> bool:
        newest = self._disk.newest_checkpoint()
        return self._task is None and (newest is None or newest.step <= self._stored)

    def _store_newest(self) -> None:
        """Starts storing the newest complete checkpoint that is not in the store, one at a time."""
        if (
            self._phase not in (AgentPhase.WAITING, AgentPhase.RUNNING, AgentPhase.ENDED, AgentPhase.LEAVING)
            or not self._attempt
        ):
            return
        newest = self._disk.newest_checkpoint()
        if newest is None or newest.step <= self._stored or time.monotonic() < self._store_again_at:
            return
        began, self._storing = time.monotonic(), newest.step
        self._start_task(
            lambda goes_on: self._store.publish(newest, self._name, goes_on),
            lambda task: self._checkpoint_published(task, newest, began),
            f"storing step-{newest.step}",
        )

    def _checkpoint_published(self, task: BackgroundTask[Any], checkpoint: Checkpoint, began: float) -> None:
        try:
            stored: StoredCheckpoint = task.result()
        except (StoreError, OSError) as error:
            if checkpoint.path.exists():  # else its program removed it for a newer one
                self._refusal = f"step-{checkpoint.step} was not stored: {error}"
                self._log_note(f"{self._refusal}; it is tried again")
                self._store_again_at = time.monotonic() + _TRY_STORE_AGAIN_S
            return
        self._storing_took_s = time.monotonic() - began
        self._stored = checkpoint.step
        self._send_word(m.Saved(stored.step, stored.machine, stored.size_bytes))

    # ---- the rest ---------------------------------------------------------------------------

    def _start_task(
        self, work: Callable[[NoteProgress], Any], then: Callable[[BackgroundTask[Any]], None], at: str = ""
    ) -> None:
        self._task, self._then, self._at = BackgroundTask(work), then, at

    def _watch_task(self) -> None:
        silent_s = self._patience.silent_s(self._task)
        self._report_stall(silent_s)
        if self._task is not None and self._task.is_done:
            task, self._task = self._task, None
            self._then(task)
        elif self._task is not None and silent_s > self._may_stall_s():
            self._give_up_task(silent_s)

    def _report_stall(self, silent_s: float) -> None:
        stalled = self._task is not None and silent_s > _TOLD_AFTER_S
        stalls = [Stall(self._at, silent_s, news=not self._stall_reported)] if stalled else []
        self._stall_reported = stalled
        self._stall_log.report_stalls(stalls, time.time())

    def _may_stall_s(self) -> float:
        """Returns how long the task may make no progress. Copies of the job's files show none, so they may
        take for ever.
        """
        if self._phase is AgentPhase.PLACING:
            return math.inf
        if self._phase is not AgentPhase.LEAVING or self._program is not None:
            return self._stalled_s
        newest, limits = self._disk.newest_checkpoint(), [self._stalled_s]
        if newest is not None and newest.step > self._storing:
            limits.append(max(_SUPERSEDED_S, 2 * self._storing_took_s))
        if time.monotonic() > self._until:
            limits.append(self._stalled_at_the_end_s)
        return min(limits)

    def _give_up_task(self, silent_s: float) -> None:
        """Gives the task up. A dead store has nothing else to offer, and a dead connection is made anew.

        Where it was slow and nothing else, it has longer the next time.
        """
        self._drop_task()
        self._stalled_s *= 2
        self._store_again_at = time.monotonic() + _TRY_STORE_AGAIN_S
        self._refusal = f"{self._at}: nothing came of it for {silent_s:.0f} s, and it was given up"
        self._log_note(self._refusal)
        if self._phase is AgentPhase.RESTORING:
            self._report_failure("restoring a checkpoint", 1, self._refusal)

    def _drop_task(self) -> None:
        if self._task is not None:
            self._task.abandon()
            self._task = None

    def _send_word(self, word: m.Word) -> None:
        self._words.send(m.to_json(word))

    def _log_note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _is_unwanted(self) -> bool:
        """Shows that the agent lives. Returns whether for a lease it had no program and
        nobody ran the job.
        """
        now = time.monotonic()
        if now - self._touched_at >= _ALIVE_EVERY_S:
            self._touched_at = now
            self._alive.touch()
            if (
                self._program is not None
                or self._task is not None
                or _is_locked(Path(self._description.lock))
            ):
                self._wanted_at = now
        return now - self._wanted_at > _LEASE_S


def _is_locked(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _user_python_path(path: str) -> str:
    """Returns PYTHONPATH as the job's user has it: the host puts our own root in front
    of it for the agent.
    """
    return path.partition(os.pathsep)[2]


def main(folder: str, machine: str, cores: str, lock: str) -> int:
    """Runs the agent. ``lock`` stays open, as this process does; the program does not inherit it."""
    os.set_inheritable(int(lock), False)
    os.environ["SPOTCTL_CPUS"] = cores
    with closing(ProgramAgent(CommandFolder(Path(folder)), machine)) as agent:
        signal.signal(signal.SIGTERM, raise_ended)
        try:
            return agent.run()
        except MachineEnded:
            agent.end_program()
            return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
