"""Runs a job's setup and program on a machine, one after the other, and reads how far the program is."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from agileml.node.agent import process_tree
from agileml.node.programs.checkpoint_folder import Checkpoint
from agileml.node.programs.machine_disk import MachineDisk, ProgressFile
from agileml.node.programs.messages import ProgramDescription, Reached
from agileml.node.programs.process import ProgramProcess


@dataclass(frozen=True, slots=True)
class EndedProgram:
    """``status``: of its shell, and 0 of one that had to be killed; ``last_lines``: what it wrote last."""

    status: int
    last_lines: str


class ProgramRunner:
    """Holds what runs on the machine now, if anything. ``machine``: its own folder, for log and marks."""

    def __init__(self, disk: MachineDisk, machine: Path) -> None:
        self._disk = disk
        self._machine = machine
        self._process: ProgramProcess | None = None
        self._progress = ProgressFile(disk.progress)
        self._is_setup = False
        self._paused = False
        self.reached: int | None = None
        """The last step that the program reported."""

    @property
    def is_running(self) -> bool:
        """Whether a program was started whose end was not taken up yet."""
        return self._process is not None

    def start_setup(self, job: ProgramDescription) -> None:
        self._is_setup = True
        self._start("setup", job.setup, job, 0, None)

    def start_command(self, job: ProgramDescription, attempt: int, checkpoint: Checkpoint | None) -> None:
        """Starts the program itself. ``checkpoint``: what it is to begin from; None: from nothing."""
        self._disk.eviction.unlink(missing_ok=True)
        self._progress = ProgressFile(self._disk.progress)
        self._is_setup = False
        self._start(f"run {attempt}", job.command, job, attempt, checkpoint)

    def _start(
        self, name: str, command: str, job: ProgramDescription, attempt: int, checkpoint: Checkpoint | None
    ) -> None:
        told = {"SPOTCTL_JOB": job.job, "SPOTCTL_RUN": job.run, "SPOTCTL_ATTEMPT": str(attempt)}
        environment = {**os.environ, **told, **self._disk.environment_variables(checkpoint)}
        environment["PYTHONPATH"] = _user_python_path(os.environ.get("PYTHONPATH", ""))
        secrets = {name: os.environ[name] for name in job.secrets if name in os.environ}
        log = self._machine / "program.log"
        self._process = ProgramProcess(
            f"{self._machine}/{name}", command, self._disk.work, environment, log, secrets
        )

    def pause(self, stands: bool) -> None:
        """Stops the program while it should not work, and continues it after: it cannot be slowed down."""
        if stands != self._paused:
            self._paused = stands
            process_tree.signal_all(signal.SIGSTOP if stands else signal.SIGCONT, str(self._machine))

    def read_progress(self) -> Reached | None:
        """Copies the output into the log. Returns how far the program is, if it has said so since."""
        if self._process is not None:
            self._process.copy_output()
        found = self._progress.read_latest()
        if found is None or self._is_setup:
            return None
        self.reached = found.step
        return found

    def take_ended(self, kill_at: float | None) -> EndedProgram | None:
        """Returns how a program ended, of which nothing is left then; None while it runs.

        ``kill_at``: when it is killed if it still runs (monotonic seconds); None: never.
        """
        process = self._process
        if process is None:
            return None
        if kill_at is None:
            if process.status is None:
                return None
        elif process.is_running and time.monotonic() < kill_at:
            return None
        self._process, status = None, process.status
        process.kill()
        process.close()
        return EndedProgram(status or 0, process.last_lines)

    def terminate(self) -> None:
        """Asks the program to stop, if one runs."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


def _user_python_path(path: str) -> str:
    """Returns PYTHONPATH as the job's user has it: the host puts our own root in front for the agent."""
    return path.partition(os.pathsep)[2]
