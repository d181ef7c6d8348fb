"""Runs a program on one machine of a command job, and keeps its checkpoints.

``python -m agileml.node.programs.machine_agent FOLDER MACHINE CORES LOCK``, in a process session of its own
and holding the open lock file LOCK: a machine lives as long as its agent (``node.agent.machine_agent``).
FOLDER is on the machine's own disk; from elsewhere it has nothing but the link to the supervisor. The program
goes on while nobody is at the other end; without one, the agent ends when it has heard nobody for a lease.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import zmq

from agileml.node.agent import process_tree
from agileml.node.agent.machine_agent import (
    COORDINATOR,
    MachineAgent,
    close_context,
    end_by_sigterm,
    record_process_group,
)
from agileml.node.agent.notices import notices_of_environment
from agileml.node.agent.watchdog import Stall, StallLog
from agileml.node.checkpoint_store import CheckpointError
from agileml.node.hosts.nominal_time import AgentLifetime
from agileml.node.liveness import SilenceTimer
from agileml.node.programs import messages as m
from agileml.node.programs.background_copy import BackgroundTask, NoteProgress, StallTimer
from agileml.node.programs.checkpoint_folder import Checkpoint
from agileml.node.programs.checkpoint_store import CheckpointStore, StoredCheckpoint
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.programs.machine_disk import MachineDisk, ProgressFile
from agileml.node.programs.process import ProgramProcess
from agileml.node.run_folder import CoordinatorLink
from agileml.node.transport.link_end import LinkEnd

REPEAT_S: Final = 1.0
"""Seconds between signs of life, of agents and of the supervisor."""
_TICK_MS: Final = 30
_STANDS_AFTER_S: Final = 0.1
"""How long nominal time stands still before the program is stopped: moments of it occur whenever something is
due.
"""
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


class ProgramWorkload:
    """What the agent of a command job's machine runs.

    ``root``: the folder of the machine's own, ``folder`` its disk. ``stalled_s``, ``stalled_at_the_end_s``:
    how long a copy may make no progress.
    """

    def __init__(
        self,
        root: Path,
        machine: str,
        stalled_s: float = _STALLED_S,
        stalled_at_the_end_s: float = _STALLED_AT_THE_END_S,
    ) -> None:
        self.outbox: deque[m.Message] = deque()
        folder = ProgramFolder(root)
        self._disk = MachineDisk(folder.disk_folder(machine))
        self._disk.path.mkdir(parents=True, exist_ok=True)
        self._machine = folder.machine_folder(machine)
        self._description: m.ProgramDescription | None = None
        self._opened_store: CheckpointStore | None = None
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
        self._reached: int | None = None  # the last step that the program reported
        self._name = machine
        self._stored = -1  # the step of the newest checkpoint known to be in the store
        self._store_again_at = 0.0
        self._storing_took_s = 0.0
        self._refusal = ""
        self._until = 0.0  # of the notice, or of the last tries
        self._stands = False

    # ---- AgentWorkload ----------------------------------------------------------------------

    def wait_ms(self, wait_ms: int) -> int:
        return min(wait_ms, _TICK_MS)

    def outlives_lease(self) -> bool:
        """Whether a program runs, or files are being copied: that goes on while nobody is there."""
        return self._program is not None or self._task is not None

    def mark_taken(self) -> None:
        """Says nothing: who takes a machine finds it gone."""

    def end(self) -> None:
        if self._program is not None:
            self._program.kill()

    def run_turn(self, lifetime: AgentLifetime) -> int | None:
        stalled = lifetime.driver_stalled()
        self._pause_program(stalled or self._works_unpaid(lifetime))
        if not stalled:
            self._watch_task()
            self._watch_program()
            if self._task is None:
                self._store_newest()
            self._advance_phase()
        return None

    def _works_unpaid(self, lifetime: AgentLifetime) -> bool:
        """Whether the program would do work that nobody is billed for, as nominal time stands still.

        Time may stand because a machine gets ready or leaves: those have to go on.
        """
        return lifetime.stood_s() > _STANDS_AFTER_S and self._phase is AgentPhase.RUNNING

    def _pause_program(self, stands: bool) -> None:
        """Stops the program while it should not work, and continues it afterwards: it
        cannot be slowed down.
        """
        if stands != self._stands:
            self._stands = stands
            process_tree.signal_all(signal.SIGSTOP if stands else signal.SIGCONT, str(self._machine))

    @property
    def _job(self) -> m.ProgramDescription:
        assert self._description is not None, "the supervisor describes the program first"
        return self._description

    @property
    def _store(self) -> CheckpointStore:
        assert self._opened_store is not None, "files are put in place first"
        return self._opened_store

    # ---- orders -----------------------------------------------------------------------------

    def obey_order(self, order: m.Message) -> int | None:
        match order:
            case m.Prepare(program):
                self._description = program
                self._phase = AgentPhase.PLACING
            case m.Begin(attempt):
                self._attempt, self._phase = attempt, AgentPhase.RESTORING
            case m.Leave(seconds):
                self._start_leaving(seconds)
            case m.ShutDown():
                return 0
            case _:
                pass
        return None

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
                self._start_task(self._place_files, self._files_placed, "placing files")
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

    def _place_files(self, _: NoteProgress) -> CheckpointStore:
        self._disk.place_files(self._job)
        return CheckpointStore(self._job.store)

    def _files_placed(self, task: BackgroundTask[Any]) -> None:
        if self._phase is not AgentPhase.PLACING:
            return
        try:
            self._opened_store = task.result()
        except Exception as error:  # file systems have error types of their own
            self._report_failure(
                "setup", 1, f"its files could not be put in place: {type(error).__name__}: {error}"
            )
            return
        missing = [name for name in self._job.secrets if name not in os.environ]
        if missing:
            remedy = (
                "not in the environment of the spotctl that started this machine; export and launch again"
            )
            self._report_failure("setup", 1, f"secrets: {', '.join(missing)} {remedy}")
            return
        if self._job.setup:
            self._phase = AgentPhase.SETTING_UP
            self._program = self._new_program("setup", self._job.setup, None)
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
            except CheckpointError as error:
                self._log_note(f"{error}; falling back on an older one")
        return here, None, False

    def _checkpoint_fetched(self, task: BackgroundTask[Any]) -> None:
        try:
            checkpoint, stored, fetched = task.result()
        except (CheckpointError, OSError) as error:
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
        self._program = self._new_program(f"run {self._attempt}", self._job.command, checkpoint)
        self._phase = AgentPhase.RUNNING
        self._send_word(m.Began(self._attempt, 0 if checkpoint is None else checkpoint.step))
        if stored is not None:
            self._send_word(m.Saved(stored.step, stored.machine, stored.size_bytes))

    def _new_program(self, name: str, command: str, checkpoint: Checkpoint | None) -> ProgramProcess:
        described = self._job
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
            self._reached = reached.step
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
            # On record where the checkpoints are, as this machine may be gone before anybody hears it.
            self._start_task(
                lambda _: self._store.record_end(self._reached), self._end_recorded, "recording the end"
            )
        elif time.monotonic() > self._until and self._task is None:
            self._report_failure("storing the last checkpoint", 1, self._refusal)

    def _end_recorded(self, task: BackgroundTask[Any]) -> None:
        try:
            task.result()
        except (CheckpointError, OSError) as error:
            self._log_note(f"the end of the program is not on record: {error}")
        self._phase = AgentPhase.WAITING
        self._send_word(m.Ended("run", 0, ""))

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
        except (CheckpointError, OSError) as error:
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
        if isinstance(word, m.Reached) and self.outbox and isinstance(self.outbox[-1], m.Reached):
            self.outbox.pop()  # nobody has taken it yet, and nobody needs it any more
        self.outbox.append(word)

    def _log_note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _user_python_path(path: str) -> str:
    """Returns PYTHONPATH as the job's user has it: the host puts our own root in front
    of it for the agent.
    """
    return path.partition(os.pathsep)[2]


def main(folder: str, machine: str, cores: str, lock: str) -> int:
    """Runs the agent. ``lock`` stays open, as this process does; the program does not inherit it."""
    os.set_inheritable(int(lock), False)
    os.environ["SPOTCTL_CPUS"] = cores
    root = Path(folder)
    own = ProgramFolder(root).machine_folder(machine)
    record_process_group(own)
    poller, context = zmq.Poller(), zmq.Context(1)
    silence = SilenceTimer(time.monotonic(), 2 * REPEAT_S, (COORDINATOR,))
    lifetime = AgentLifetime(root, machine)
    link = LinkEnd(context, CoordinatorLink.read(own), machine, REPEAT_S, m.CODEC)
    workload = ProgramWorkload(root, machine)
    agent = MachineAgent(
        workload, link, lifetime, poller, silence, _LEASE_S, notices_of_environment(), m.Noticed
    )
    end_by_sigterm()
    status = agent.run()
    close_context(context)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
