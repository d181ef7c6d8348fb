"""Lays out the folder of a command job on the computer that runs its supervisor.

    program.json            the description of the program, for the machines
    journal.jsonl           the supervisor's events, in order
    machines/, sockets      and the other parts of every job's folder (``agileml.node.run_folder``)
    disks/NAME/             the disk of a machine of this computer: its files and checkpoints

Machines elsewhere have the last two on disks of their own: they share nothing here.
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
        """Makes the folder, and returns it.

        ``address``: where machines elsewhere reach this computer; empty if all machines are on this one.
        Raises OSError if the path of temporary files is too long for sockets.
        """
        folder = cls(path.resolve())
        for needed in (folder.path / "machines", folder.path / "disks"):
            needed.mkdir(parents=True, exist_ok=True)
        # An earlier call that was killed may have left sockets and keys.
        folder.drop_sockets()
        folder.keys_file.unlink(missing_ok=True)
        if address:
            CurveKeys.make_pair().write(folder.keys_file)
            folder.write_coordinator_endpoint(any_port(address))
        else:
            folder.make_sockets()
        # Last: ``is_prepared`` looks for this file.
        write_whole(folder._description_file, msgspec.json.encode(description).decode())
        return folder

    @property
    def is_prepared(self) -> bool:
        """Whether a call of ``prepare`` has completed."""
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
