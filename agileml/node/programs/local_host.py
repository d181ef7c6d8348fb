"""Makes machines of this computer that run a command: what is on a machine's disk goes with the machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agileml.node.hosts.local import LocalHost
from agileml.node.programs.job_folder import CommandFolder

_AGENT: Final = "agileml.node.programs.machine_agent"


class DiskHost(LocalHost):
    """A ``LocalHost`` whose agents run a program."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, variables, _AGENT)
        self._disks = CommandFolder(folder.resolve())

    def threads_per_process(self, cores: int) -> int:
        """Returns all cores: the machine belongs to the program alone."""
        return cores

    def kill(self, machine: str) -> None:
        """Kills all of it at once, and removes its disk; its logs stay."""
        super().kill(machine)
        shutil.rmtree(self._disks.disk_folder(machine), ignore_errors=True)

    def kill_all(self) -> None:
        """Kills all machines, and removes the disks of those that ended by themselves too."""
        self.kill_each(self._disks.machine_names())
