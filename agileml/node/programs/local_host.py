"""Starts machines of this computer that run a program, and removes a machine's disk with the machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agileml.node.hosts.local import LocalHost
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.run_folder import CoordinatorLink
from agileml.node.tier import Tier

_AGENT: Final = "agileml.node.programs.machine_agent"


class ProgramHost(LocalHost):
    """A ``LocalHost`` whose agents run a program."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, variables, _AGENT)
        self._job = ProgramFolder(folder.resolve())

    def prepare_machine(self, machine: str, tier: Tier) -> list[str]:
        """Writes the supervisor's address into the machine's folder."""
        endpoint = self._job.coordinator_endpoint()
        assert endpoint is not None, "the supervisor listens before there are machines"
        CoordinatorLink(endpoint, self._job.read_keys()).write(self._job.machine_folder(machine))
        return []

    def threads_per_process(self, cores: int) -> int:
        """Returns all cores: the machine belongs to the program alone."""
        return cores

    def kill(self, machine: str) -> None:
        """Kills a machine and removes its disk; its logs stay."""
        super().kill(machine)
        shutil.rmtree(self._job.disk_folder(machine), ignore_errors=True)

    def kill_all(self) -> None:
        """Kills all machines, and removes the sockets and the disks, also of machines that ended before."""
        try:
            self.kill_each(self._job.machine_names())
        finally:
            self._job.remove_sockets()
