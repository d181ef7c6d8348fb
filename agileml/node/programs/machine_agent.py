"""Runs the agent of one machine of a command job: prepares the machine, runs the program, stores checkpoints.

``python -m agileml.node.programs.machine_agent FOLDER MACHINE CORES LOCK`` runs in a process session of its
own and holds the open lock file LOCK: a machine lives as long as its agent (``node.agent.machine_agent``).
FOLDER is on the machine's own disk; its only connection to other computers is the link to the supervisor.
The program continues without a supervisor. Once it has ended, the agent ends after a lease of silence.
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
from agileml.node.programs.background_copy import BackgroundTask
from agileml.node.programs.checkpoint_keeper import (
    STALLED_S,
    CheckpointKeeper,
    CopyTask,
    FetchOutcome,
    log_note,
)
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.programs.machine_disk import MachineDisk
from agileml.node.programs.machine_preparation import MachinePreparation
from agileml.node.programs.program_runner import EndedProgram, ProgramRunner
from agileml.node.run_folder import CoordinatorLink
from agileml.node.transport.link_end import LinkEnd

REPEAT_S: Final = 1.0
"""Seconds between signs of life, of agents and of the supervisor."""
_TICK_MS: Final = 30
# Nominal time also stands for moments whenever something is due; stopping the program for those would cost
# two signals each.
_STANDS_AFTER_S: Final = 0.1
"""The program is stopped once nominal time has stood still for this long."""
_LEASE_S: Final = 30.0
_LAST_TRIES_S: Final = 20.0
"""How long the agent tries to store the last checkpoint of a program that has ended."""
_STALLED_AT_THE_END_S: Final = 60.0
"""How long the last checkpoint of a stopped job may make no progress, once its notice has run out."""


class AgentPhase(Enum):
    """The agent's present occupation."""

    WAITING = auto()
    PREPARING = auto()
    RESTORING = auto()
    RUNNING = auto()
    ENDED = auto()
    """The program ended by itself; its last checkpoint is being stored."""
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
        self._job: m.ProgramDescription | None = None
        self._preparation: MachinePreparation | None = None
        self._phase = AgentPhase.WAITING
        self._attempt = 0
        self._program = ProgramRunner(self._disk, folder.machine_folder(machine))
        self._copying = CopyTask(folder.machine_folder(machine))
        self._keeper = CheckpointKeeper(self._disk, self._copying, machine, stalled_s, self._report)
        self._stalled_at_the_end_s = stalled_at_the_end_s
        self._until = 0.0  # monotonic: the end of the notice, or of the last tries

    # ---- AgentWorkload ----------------------------------------------------------------------

    def wait_ms(self, wait_ms: int) -> int:
        return min(wait_ms, _TICK_MS)

    def outlives_lease(self) -> bool:
        """Returns whether a program or a copy runs: both continue without a supervisor."""
        return self._program.is_running or self._copying.is_busy

    def mark_taken(self) -> None:
        """Does nothing: the provider reports that the machine is gone."""

    def end(self) -> None:
        self._program.kill()

    def obey_order(self, order: m.Message) -> int | None:
        match order:
            case m.Prepare(job):
                self._job, self._phase = job, AgentPhase.PREPARING
                self._preparation = MachinePreparation(
                    job, self._disk, self._copying, self._program, self._keeper
                )
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
        # While nominal time stands still nobody is billed, so the program must not work either. Other phases
        # go on: time may stand because this machine is getting ready or leaving, and would stand for ever.
        unpaid = lifetime.stood_s() > _STANDS_AFTER_S and self._phase is AgentPhase.RUNNING
        self._program.pause(stalled or unpaid)
        if not stalled:
            stalled_s = self._copying.watch(self._stall_limit_s)
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
            return  # the program ended by itself just before
        # An upload goes on, but nobody needs the files or the checkpoint that are on their way here. A copy
        # that is dropped never reports back, so no later phase meets its result.
        if self._places_files or self._phase is AgentPhase.RESTORING:
            self._copying.drop()
        self._phase = AgentPhase.LEAVING
        self._disk.announce_eviction(seconds)
        self._program.terminate()

    @property
    def _places_files(self) -> bool:
        preparing = self._phase is AgentPhase.PREPARING
        return preparing and self._preparation is not None and self._preparation.copies_files

    def _advance_phase(self) -> None:
        match self._phase:
            case AgentPhase.PREPARING if self._preparation is not None:
                self._preparation.advance()
                if self._preparation.outcome is not None:
                    self._phase = AgentPhase.WAITING
                    self._report(self._preparation.outcome)
            case AgentPhase.RESTORING if not self._copying.is_busy:
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
            # The store has to know before the supervisor: the machine may be gone before anybody receives
            # the report, and the work would be done again.
            self._copying.start(
                lambda _: self._keeper.record_end(self._program.reached),
                self._end_recorded,
                "recording the end",
            )
        elif self._keeper.all_stored:
            self._phase = AgentPhase.WAITING
            self._report(m.Left())
        elif time.monotonic() > self._until and not self._copying.is_busy:
            self._report_failure("storing the last checkpoint", 1, self._keeper.refusal)

    def _end_recorded(self, task: BackgroundTask[Any]) -> None:
        try:
            task.result()
        except (CheckpointError, OSError) as error:
            log_note(f"the store has no record of the program's end: {error}")
        self._phase = AgentPhase.WAITING
        self._report(m.Ended("run", 0, ""))

    # ---- the program ------------------------------------------------------------------------

    def _checkpoint_fetched(self, task: BackgroundTask[Any]) -> None:
        try:
            outcome: FetchOutcome = task.result()
        except (CheckpointError, OSError) as error:
            self._report_failure("restoring a checkpoint", 1, str(error))
            return
        assert self._job is not None, "the supervisor describes the program first"
        self._keeper.take_fetched(outcome)
        checkpoint, stored = outcome.checkpoint, outcome.stored
        self._program.start_command(self._job, self._attempt, checkpoint)
        self._phase = AgentPhase.RUNNING
        self._report(m.Began(self._attempt, 0 if checkpoint is None else checkpoint.step))
        if stored is not None:
            self._report(m.Saved(stored.step, stored.machine, stored.size_bytes))

    def _watch_program(self) -> None:
        if not self._program.is_running:
            return
        self._report_progress()
        leaving = self._phase is AgentPhase.LEAVING
        ended = self._program.take_ended(self._until - self._keeper.reserve_s() if leaving else None)
        if ended is not None:
            self._report_progress()  # the lines of its last moments
            if not leaving:
                self._program_ended(ended)

    def _report_progress(self) -> None:
        reached = self._program.read_progress()
        if reached is not None:
            self._report(reached)

    def _program_ended(self, ended: EndedProgram) -> None:
        if self._phase is AgentPhase.PREPARING and self._preparation is not None:
            self._preparation.end_setup(ended)
        elif ended.status == 0:
            self._phase, self._until = AgentPhase.ENDED, time.monotonic() + _LAST_TRIES_S
            self._keeper.try_at_once()
        else:
            self._report_failure("run", ended.status, ended.last_lines)

    # ---- copies -----------------------------------------------------------------------------

    def _may_store(self) -> bool:
        return bool(self._attempt) and self._phase not in (AgentPhase.PREPARING, AgentPhase.RESTORING)

    def _stall_limit_s(self) -> float:
        """Returns how many seconds the present copy may make no progress."""
        if self._places_files:
            return math.inf  # copies of the job's files report no progress
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

    # ---- reports ----------------------------------------------------------------------------

    def _report_failure(self, what: str, status: int, trouble: str) -> None:
        self._phase = AgentPhase.WAITING
        self._report(m.Ended(what, status, trouble))

    def _report(self, word: m.Word) -> None:
        # A newer step replaces one that is still waiting: a program may write thousands of them.
        if isinstance(word, m.Reached) and self.outbox and isinstance(self.outbox[-1], m.Reached):
            self.outbox.pop()
        self.outbox.append(word)


def main(folder: str, machine: str, cores: str, lock: str) -> int:
    """Runs the agent. ``lock``: an open file, which the program must not inherit."""
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
