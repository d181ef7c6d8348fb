"""Makes machines of this computer that train: the first reliable one also runs the elasticity controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agileml.job import JobFolder
from agileml.node.hosts.local import LocalHost
from agileml.node.tier import Tier

_AGENT: Final = "agileml.role_agent"


class TrainingHost(LocalHost):
    """A ``LocalHost`` whose agents run the roles of a training."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, variables, _AGENT)
        self._job = JobFolder(folder.resolve())

    def prepare_machine(self, machine: str, tier: Tier) -> list[str]:
        leads = tier is Tier.RELIABLE and self._claim_controller(machine)
        return ["controller"] if leads else []

    def _claim_controller(self, machine: str) -> bool:
        """Returns whether this is the job's first reliable machine, which runs the controller."""
        try:
            with self._job.controller_record.open("x") as record:
                record.write(machine)
        except FileExistsError:
            return False
        return True
