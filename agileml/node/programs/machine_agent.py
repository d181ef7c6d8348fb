"""Runs a program on one machine of a command job, and keeps its checkpoints.

``python -m agileml.node.programs.machine_agent FOLDER MACHINE CORES LOCK``, in a process session of its own
and holding the open lock file LOCK: a machine lives as long as its agent (``node.agent.machine_agent``).
FOLDER is on the machine's own disk; from elsewhere it has nothing but the link to the supervisor. The program
goes on while nobody is at the other end; without one, the agent ends when it has heard nobody for a lease.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import zmq

from agileml.node.agent.machine_agent import (
    COORDINATOR,
    MachineAgent,
    close_context,
    end_by_sigterm,
    record_process_group,
)
from agileml.node.agent.notices import notices_of_environment
from agileml.node.checkpoint_store import CheckpointError
from agileml.node.hosts.nominal_time import AgentLifetime
from agileml.node.liveness import SilenceTimer
from agileml.node.programs import messages as m
from agileml.node.programs.background_copy import BackgroundTask, NoteProgress
from agileml.node.programs.checkpoint_keeper import (
    STALLED_S,
    CheckpointKeeper,
    CopyTask,
    FetchOutcome,
    log_note,
)
from agileml.node.programs.checkpoint_store import CheckpointStore
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.programs.machine_disk import MachineDisk
from agileml.node.programs.program_runner import EndedProgram, ProgramRunner
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
_LAST_TRIES_S: Final = 20.0
"""For how long the agent tries to store the last checkpoint of a program that has ended."""
_STALLED_AT_THE_END_S: Final = 60.0
"""How long the last checkpoint of a stopped job may make no progress, once the time for it is over."""


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
    """Runs a program for the agent of a command job's machine.

    ``root``: the folder on the machine's own disk. ``stalled_s``, ``stalled_at_the_end_s``: how long a copy
    may make no progress.
    """

    def __init__(
        self,
        root: Path,
        machine: str,
        stalled_s: float = STALLED_S,
        stalled_at_the_end_s: float = _STALLED_AT_THE_END_S,
    ) -> None:
        self.outbox: deque[m.Message] = deque()
        folder = ProgramFolder(root)
        self._disk = MachineDisk(folder.disk_folder(machine))
        self._disk.path.mkdir(parents=True, exist_ok=True)
        self._description: m.ProgramDescription | None = None
        self._phase = AgentPhase.WAITING
        self._attempt = 0
        self._program = ProgramRunner(self._disk, folder.machine_folder(machine))
        self._copying = CopyTask(folder.machine_folder(machine))
        self._keeper = CheckpointKeeper(self._disk, self._copying, machine, stalled_s, self._send_word)
        self._stalled_at_the_end_s = stalled_at_the_end_s
        self._until = 0.0  # of the notice, or of the last tries

    # ---- AgentWorkload ----------------------------------------------------------------------

    def wait_ms(self, wait_ms: int) -> int:
        return min(wait_ms, _TICK_MS)

    def outlives_lease(self) -> bool:
        """Whether a program runs, or files are being copied: that goes on while nobody is there."""
        return self._program.is_running or self._copying.is_busy

    def mark_taken(self) -> None:
        """Says nothing: who takes a machine finds it gone."""

    def end(self) -> None:
        self._program.kill()

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

    def run_turn(self, lifetime: AgentLifetime) -> int | None:
        stalled = lifetime.driver_stalled()
        # The program would do work that nobody is billed for, as nominal time stands still. Time may stand
        # because a machine gets ready or leaves: those have to go on.
        unpaid = lifetime.stood_s() > _STANDS_AFTER_S and self._phase is AgentPhase.RUNNING
        self._program.pause(stalled or unpaid)
        if not stalled:
            stalled_s = self._copying.watch(self._may_stall_s)
            if stalled_s is not None:
                self._give_up_copy(stalled_s)
            self._watch_program()
            if self._may_store() and not self._copying.is_busy:
                self._keeper.store_newest()
            self._advance_phase()
        return None

    # ---- phases -----------------------------------------------------------------------------

    def _start_leaving(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._keeper.try_at_once()
        if self._phase is AgentPhase.ENDED:
            return  # it ended by itself, before it was asked to
        if self._phase in (AgentPhase.PLACING, AgentPhase.RESTORING):
            self._copying.drop()  # its result is not needed any more
        self._phase = AgentPhase.LEAVING
        self._disk.announce_eviction(seconds)
        self._program.terminate()

    def _advance_phase(self) -> None:
        """Takes up, or finishes, whatever can be now."""
        busy = self._copying.is_busy
        match self._phase:
            case AgentPhase.PLACING if not busy:
                self._copying.start(self._place_files, self._files_placed, "placing files")
            case AgentPhase.RESTORING if not busy:
                self._copying.start(
                    self._keeper.fetch_newest, self._checkpoint_fetched, "fetching the newest checkpoint"
                )
            case AgentPhase.ENDED | AgentPhase.LEAVING if not self._program.is_running:
                self._finish_program()
            case _:
                pass

    def _finish_program(self) -> None:
        """Reports that the program has ended, or has left, once its last checkpoint is in the store."""
        if self._keeper.all_stored and self._phase is AgentPhase.ENDED:
            # On record where the checkpoints are, as this machine may be gone before anybody hears it.
            self._copying.start(
                lambda _: self._keeper.record_end(self._program.reached),
                self._end_recorded,
                "recording the end",
            )
        elif self._keeper.all_stored:
            self._phase = AgentPhase.WAITING
            self._send_word(m.Left())
        elif time.monotonic() > self._until and not self._copying.is_busy:
            self._report_failure("storing the last checkpoint", 1, self._keeper.refusal)

    def _end_recorded(self, task: BackgroundTask[Any]) -> None:
        try:
            task.result()
        except (CheckpointError, OSError) as error:
            log_note(f"the end of the program is not on record: {error}")
        self._phase = AgentPhase.WAITING
        self._send_word(m.Ended("run", 0, ""))

    # ---- files and setup --------------------------------------------------------------------

    @property
    def _job(self) -> m.ProgramDescription:
        assert self._description is not None, "the supervisor describes the program first"
        return self._description

    def _place_files(self, _: NoteProgress) -> CheckpointStore:
        self._disk.place_files(self._job)
        return CheckpointStore(self._job.store)

    def _files_placed(self, task: BackgroundTask[Any]) -> None:
        if self._phase is not AgentPhase.PLACING:
            return
        try:
            self._keeper.open(task.result())
        except Exception as error:  # file systems have error types of their own
            why = f"its files could not be put in place: {type(error).__name__}: {error}"
            self._report_failure("setup", 1, why)
            return
        missing = [name for name in self._job.secrets if name not in os.environ]
        if missing:
            remedy = (
                "not in the environment of the spotctl that started this machine; export and launch again"
            )
            self._report_failure("setup", 1, f"secrets: {', '.join(missing)} {remedy}")
        elif self._job.setup:
            self._phase = AgentPhase.SETTING_UP
            self._program.start_setup(self._job)
        else:
            self._report_ready()

    def _report_ready(self) -> None:
        self._phase = AgentPhase.WAITING
        self._send_word(m.Ready())

    def _report_failure(self, what: str, status: int, trouble: str) -> None:
        self._phase = AgentPhase.WAITING
        self._send_word(m.Ended(what, status, trouble))

    # ---- the program ------------------------------------------------------------------------

    def _checkpoint_fetched(self, task: BackgroundTask[Any]) -> None:
        try:
            outcome: FetchOutcome = task.result()
        except (CheckpointError, OSError) as error:
            if self._phase is AgentPhase.RESTORING:
                self._report_failure("restoring a checkpoint", 1, str(error))
            return
        self._keeper.take_fetched(outcome)
        if self._phase is not AgentPhase.RESTORING:
            return
        checkpoint, stored = outcome.checkpoint, outcome.stored
        self._program.start_command(self._job, self._attempt, checkpoint)
        self._phase = AgentPhase.RUNNING
        self._send_word(m.Began(self._attempt, 0 if checkpoint is None else checkpoint.step))
        if stored is not None:
            self._send_word(m.Saved(stored.step, stored.machine, stored.size_bytes))

    def _watch_program(self) -> None:
        if not self._program.is_running:
            return
        self._tell_progress()
        leaving = self._phase is AgentPhase.LEAVING
        ended = self._program.take_ended(self._until - self._keeper.reserve_s() if leaving else None)
        if ended is not None:
            self._tell_progress()
            if not leaving:
                self._program_ended(ended)

    def _tell_progress(self) -> None:
        reached = self._program.read_progress()
        if reached is not None:
            self._send_word(reached)

    def _program_ended(self, ended: EndedProgram) -> None:
        if self._phase is AgentPhase.SETTING_UP:
            if ended.status == 0:
                self._report_ready()
            else:
                self._report_failure("setup", ended.status, ended.last_lines)
        elif ended.status == 0:
            self._phase, self._until = AgentPhase.ENDED, time.monotonic() + _LAST_TRIES_S
            self._keeper.try_at_once()
        else:
            self._report_failure("run", ended.status, ended.last_lines)

    # ---- copies -----------------------------------------------------------------------------

    def _may_store(self) -> bool:
        return bool(self._attempt) and self._phase not in (
            AgentPhase.PLACING,
            AgentPhase.SETTING_UP,
            AgentPhase.RESTORING,
        )

    def _may_stall_s(self) -> float:
        """Returns how long a copy may make no progress. Those of the job's files show none, so they may take
        for ever.
        """
        if self._phase is AgentPhase.PLACING:
            return math.inf
        limits = [self._keeper.stalled_s]
        if self._phase is AgentPhase.LEAVING and not self._program.is_running:
            superseded_s = self._keeper.superseded_within_s()
            limits += [] if superseded_s is None else [superseded_s]
            limits += [self._stalled_at_the_end_s] if time.monotonic() > self._until else []
        return min(limits)

    def _give_up_copy(self, silent_s: float) -> None:
        self._keeper.give_up(silent_s)
        if self._phase is AgentPhase.RESTORING:
            self._report_failure("restoring a checkpoint", 1, self._keeper.refusal)

    def _send_word(self, word: m.Word) -> None:
        if isinstance(word, m.Reached) and self.outbox and isinstance(self.outbox[-1], m.Reached):
            self.outbox.pop()  # nobody has taken it yet, and nobody needs it any more
        self.outbox.append(word)


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
