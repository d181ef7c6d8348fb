"""Runs a job's setup and program on a machine, one after the other, and reads the program's progress."""

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
    """How a program ended. ``status``: of its shell, or 0 if it was killed; ``last_lines``: of its output."""

    status: int
    last_lines: str


class ProgramRunner:
    """Runs one process at a time: setup or the program. ``machine``: the folder for its log and marks."""

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
        """Whether a process was started whose end ``take_ended`` has not returned yet."""
        return self._process is not None

    def start_setup(self, job: ProgramDescription) -> None:
        self._is_setup = True
        self._start("setup", job.setup, job, 0, None)

    def start_command(self, job: ProgramDescription, attempt: int, checkpoint: Checkpoint | None) -> None:
        """Starts the program itself. ``checkpoint``: where it resumes; None starts from the beginning."""
        # The notice of an earlier attempt would stop the program at once.
        self._disk.eviction.unlink(missing_ok=True)
        self._progress = ProgressFile(self._disk.progress)
        self._is_setup = False
        self._start(f"run {attempt}", job.command, job, attempt, checkpoint)

    def _start(
        self, name: str, command: str, job: ProgramDescription, attempt: int, checkpoint: Checkpoint | None
    ) -> None:
        names = {"SPOTCTL_JOB": job.job, "SPOTCTL_RUN": job.run, "SPOTCTL_ATTEMPT": str(attempt)}
        environment = {**os.environ, **names, **self._disk.environment_variables(checkpoint)}
        environment["PYTHONPATH"] = _user_python_path(os.environ.get("PYTHONPATH", ""))
        secrets = {name: os.environ[name] for name in job.secrets if name in os.environ}
        log = self._machine / "program.log"
        self._process = ProgramProcess(
            f"{self._machine}/{name}", command, self._disk.work, environment, log, secrets
        )

    def pause(self, stands: bool) -> None:
        """Stops the program with SIGSTOP, or lets it continue."""
        # By the machine's mark rather than the program's: whatever the program started stops as well.
        if stands != self._paused:
            self._paused = stands
            process_tree.signal_all(signal.SIGSTOP if stands else signal.SIGCONT, str(self._machine))

    def read_progress(self) -> Reached | None:
        """Copies the output into the log. Returns the latest progress, or None if there is nothing new."""
        if self._process is not None:
            self._process.copy_output()
        found = self._progress.read_latest()
        if found is None or self._is_setup:
            return None
        self.reached = found.step
        return found

    def take_ended(self, kill_at: float | None) -> EndedProgram | None:
        """Returns how a program ended, once no process of it is left; None while it runs.

        ``kill_at``: when it is killed if it still runs (monotonic seconds); None: never.
        """
        process = self._process
        if process is None:
            return None
        # A program ends with its shell. One that was asked to stop ends with its last process: a child may
        # still be writing the checkpoint.
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
    """Returns PYTHONPATH as the job's user set it, without our own root, which the host puts in front."""
    return path.partition(os.pathsep)[2]
