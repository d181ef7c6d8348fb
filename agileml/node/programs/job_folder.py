"""Lays out a command job's folder: what its processes share, and what they agree on before they talk.

command.json            the CommandDescription
journal.jsonl           what the supervisor was told, in order
machines/NAME/          a machine's lock, process group and logs (``agileml.node.hosts.local``)
    orders.jsonl        from the supervisor;  said.jsonl: from the agent
    alive               touched by the agent, once a second
disks/NAME/             what is lost with the machine: work/, checkpoints/, and what the program is told
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CommandDescription:
    """Describes a job for its agents. Secrets are named here; their values are in an agent's environment
    alone.
    """

    job: str
    run: str
    setup: str
    command: str
    workdir: str | None
    file_mounts: Mapping[str, str]
    secrets: tuple[str, ...]
    store: str
    lock: str
    """The file locked by the process that runs the job: idle agents end when it has been free for a while."""

    @property
    def records_folder(self) -> Path:
        """The folder of the records of all runs of all jobs, including this one's
        machines and their disks.
        """
        return Path(self.lock).parents[1]


@dataclass(frozen=True, slots=True)
class CommandFolder:
    """The names in a command job's folder. ``path`` is absolute."""

    path: Path

    @classmethod
    def prepare(cls, path: Path, description: CommandDescription) -> CommandFolder:
        """Writes what agents need. What an attempt that was killed has left is replaced."""
        folder = cls(path.resolve())
        for needed in (folder.path / "machines", folder.path / "disks", folder.path / "controller"):
            needed.mkdir(parents=True, exist_ok=True)
        unfinished = folder.path / "command.part"
        unfinished.write_text(json.dumps(asdict(description)))
        unfinished.replace(folder._description_file)
        return folder

    @property
    def is_prepared(self) -> bool:
        """Whether ``prepare`` got to its end; the process that called it may have been killed before."""
        return self._description_file.exists()

    def read_description(self) -> CommandDescription:
        content = json.loads(self._description_file.read_text())
        return CommandDescription(**{**content, "secrets": tuple(content["secrets"])})

    @property
    def journal_file(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def _description_file(self) -> Path:
        return self.path / "command.json"

    def machine_folder(self, name: str) -> Path:
        return self.path / "machines" / name

    def machine_names(self) -> list[str]:
        """Returns every machine that was ever started."""
        return sorted(entry.name for entry in (self.path / "machines").glob("*"))

    def orders_file(self, machine: str) -> Path:
        return self.machine_folder(machine) / "orders.jsonl"

    def words_file(self, machine: str) -> Path:
        return self.machine_folder(machine) / "said.jsonl"

    def alive_file(self, machine: str) -> Path:
        return self.machine_folder(machine) / "alive"

    def disk_folder(self, machine: str) -> Path:
        return self.path / "disks" / machine
