"""Prepares a machine for its program: copies the job's files, checks the secrets, and runs ``setup``."""

from __future__ import annotations

import os
from typing import Any

from agileml.node.programs import messages as m
from agileml.node.programs.background_copy import BackgroundTask, NoteProgress
from agileml.node.programs.checkpoint_keeper import CheckpointKeeper, CopyTask
from agileml.node.programs.checkpoint_store import CheckpointStore
from agileml.node.programs.machine_disk import MachineDisk
from agileml.node.programs.program_runner import EndedProgram, ProgramRunner


class MachinePreparation:
    """Prepares one machine for ``job``, and opens the store of its checkpoints for ``keeper``."""

    def __init__(
        self,
        job: m.ProgramDescription,
        disk: MachineDisk,
        copying: CopyTask,
        program: ProgramRunner,
        keeper: CheckpointKeeper,
    ) -> None:
        self._job = job
        self._disk = disk
        self._copying = copying
        self._program = program
        self._keeper = keeper
        self._started = False
        self.copies_files = True
        """Whether files are being copied, or are still to be copied."""
        self.outcome: m.Ready | m.Ended | None = None
        """How the preparation ended; None while it goes on."""

    def advance(self) -> None:
        """Starts to copy the files, as soon as no other copy runs. Call it at every turn of the loop."""
        if not self._started and not self._copying.is_busy:
            self._started = True
            self._copying.start(self._copy_files, self._files_copied, "placing files")

    def end_setup(self, ended: EndedProgram) -> None:
        """Takes the result of ``setup``."""
        self.outcome = m.Ready() if ended.status == 0 else m.Ended("setup", ended.status, ended.last_lines)

    def _copy_files(self, _: NoteProgress) -> CheckpointStore:
        self._disk.place_files(self._job)
        return CheckpointStore(self._job.store)

    def _files_copied(self, task: BackgroundTask[Any]) -> None:
        self.copies_files = False
        try:
            self._keeper.open(task.result())
        except Exception as error:  # each of fsspec's file systems has its own types of errors
            why = f"the job's files cannot be copied to the machine: {type(error).__name__}: {error}"
            self.outcome = m.Ended("setup", 1, why)
            return
        missing = [name for name in self._job.secrets if name not in os.environ]
        if missing:
            remedy = (
                "not in the environment of the spotctl that started this machine; export and launch again"
            )
            self.outcome = m.Ended("setup", 1, f"secrets: {', '.join(missing)} {remedy}")
        elif self._job.setup:
            self._program.start_setup(self._job)
        else:
            self.outcome = m.Ready()
