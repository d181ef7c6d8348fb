"""Lays out the folder of a command job on the computer that runs it.

    program.json            what the machines are told of the program
    journal.jsonl           what the supervisor was told, in order
    machines/, sockets      and what else every job has (``agileml.node.run_folder``)
    disks/NAME/             what is lost with a machine of this computer: its files and checkpoints

Machines elsewhere have the last two on disks of their own: nothing here is shared with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from agileml.node.programs.messages import ProgramDescription
from agileml.node.run_folder import RunFolder, any_port, write_whole
from agileml.node.transport.curve_keys import CurveKeys


@dataclass(frozen=True, slots=True)
class ProgramFolder(RunFolder):
    """The names in a command job's folder. ``path`` is absolute."""

    @classmethod
    def prepare(cls, path: Path, description: ProgramDescription, address: str = "") -> ProgramFolder:
        """Writes what the job needs. What an attempt that was killed has left is replaced.

        ``address``: of this computer, where machines elsewhere reach it; empty where all are on this one.
        Raises OSError where temporary names are too long for sockets.
        """
        folder = cls(path.resolve())
        for needed in (folder.path / "machines", folder.path / "disks"):
            needed.mkdir(parents=True, exist_ok=True)
        folder.drop_sockets()
        folder.keys_file.unlink(missing_ok=True)
        if address:
            CurveKeys.make_pair().write(folder.keys_file)
            folder.write_coordinator_endpoint(any_port(address))
        else:
            folder.make_sockets()
        # Last: this file says that the folder is prepared.
        write_whole(folder._description_file, msgspec.json.encode(description).decode())
        return folder

    @property
    def is_prepared(self) -> bool:
        """Whether ``prepare`` got to its end; the process that called it may have been killed before."""
        return self._description_file.exists()

    def read_description(self) -> ProgramDescription:
        return msgspec.json.decode(self._description_file.read_bytes(), type=ProgramDescription)

    @property
    def journal_file(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def _description_file(self) -> Path:
        return self.path / "program.json"

    def disk_folder(self, machine: str) -> Path:
        return self.path / "disks" / machine
