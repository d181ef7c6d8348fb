"""Machines of this computer that run a command: what is on a machine's disk goes with the machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agileml.node.hosts.local import LocalHost
from agileml.node.programs.job_folder import CommandFolder

_AGENT: Final = "agileml.node.programs.machine_agent"


class DiskHost(LocalHost):
    """As ``LocalHost``, with agents that run a program."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, variables, _AGENT)
        self._disks = CommandFolder(folder.resolve())

    def threads(self, cores: int) -> int:
        """The machine is the program's alone."""
        return cores

    def kill(self, machine: str) -> None:
        """All of it at once, its disk included; its logs stay."""
        super().kill(machine)
        shutil.rmtree(self._disks.disk(machine), ignore_errors=True)

    def kill_all(self) -> None:
        """Those too that ended by themselves."""
        self.kill_each(self._disks.machines())
