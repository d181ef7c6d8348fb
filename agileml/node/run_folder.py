"""Lays out the folder that a job's processes on this computer share, whatever the job is.

    machines/NAME/        a machine's lock, process group, logs, and what its processes are stalled with
    sockets -> /tmp/...   a short private folder for sockets, whose names may have 107 bytes
    endpoint              where the process that all machines connect to listens, if it is on a network

A job on a network has no such sockets. Instead it has

    keys.json             the key pair of its links, for its owner's eyes only
    machines/NAME/address the address of a machine, at which its processes listen
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from agileml.node.transport.curve_keys import CurveKeys

_LONGEST_SOCKET_NAME: Final = 107
"""Bytes: unix(7) has room for 108, and ends them with a zero."""


@dataclass(frozen=True, slots=True)
class CoordinatorLink:
    """Tells a machine where its job's coordinator listens: all that it needs to know of other computers."""

    endpoint: str
    keys: CurveKeys | None

    @classmethod
    def read(cls, machine: Path) -> CoordinatorLink:
        """Reads what the host put into the machine's own folder before its agent started."""
        content = json.loads((machine / "link.json").read_text())
        keys = content["keys"]
        return cls(content["endpoint"], None if keys is None else CurveKeys(**keys))

    def write(self, machine: Path) -> None:
        """Writes it for the machine's owner alone, as it has the keys."""
        file = machine / "link.json"
        file.touch(mode=0o600)
        keys = None if self.keys is None else asdict(self.keys)
        file.write_text(json.dumps({"endpoint": self.endpoint, "keys": keys}))

    def read_keys(self) -> CurveKeys | None:
        return self.keys

    def coordinator_endpoint(self) -> str:
        return self.endpoint


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The names in a job's folder. ``path`` is absolute."""

    path: Path

    def machine_folder(self, name: str) -> Path:
        return self.path / "machines" / name

    def machine_names(self) -> list[str]:
        """Returns every machine that was ever started."""
        return sorted(entry.name for entry in (self.path / "machines").glob("*"))

    # ---- where processes listen -------------------------------------------------------------

    def set_address(self, machine: str, address: str) -> None:
        """Writes the address at which others can reach a machine, without a port, before its agent starts."""
        (self.machine_folder(machine) / "address").write_text(address)

    def read_keys(self) -> CurveKeys | None:
        """Returns the keys of a job on a network; None where all its processes share one machine."""
        return CurveKeys.read(self.keys_file)

    @property
    def keys_file(self) -> Path:
        return self.path / "keys.json"

    def machine_endpoint(self, machine: str, incarnation: int = 0) -> str:
        """Returns where a process of ``machine`` binds. Each incarnation has its own: nothing goes astray to
        another.

        Raises ValueError for a machine of a job on a network that has no address.
        """
        if not self.keys_file.exists():
            return self.ipc_endpoint(machine, incarnation)
        file = self.machine_folder(machine) / "address"
        if not file.exists():
            raise ValueError(
                f"{machine} has no address in a job on a network; its host has to write one to {file}"
            )
        return any_port(file.read_text().strip())

    @property
    def endpoint_file(self) -> Path:
        """The file that says where the process listens that all machines connect to."""
        return self.path / "endpoint"

    def coordinator_endpoint(self) -> str | None:
        """Returns where the process listens that all machines connect to; None in a job on a network before
        it has said so.
        """
        if not self.keys_file.exists():
            return self.ipc_endpoint("coordinator", 0)
        return self.endpoint_file.read_text() if self.endpoint_file.exists() else None

    def write_coordinator_endpoint(self, endpoint: str) -> None:
        """Writes where it listens, also after a restart. That process calls it once it does."""
        write_whole(self.endpoint_file, endpoint)

    # ---- sockets of one computer ------------------------------------------------------------

    def ipc_endpoint(self, owner: str, incarnation: int) -> str:
        """Returns the name of a socket of this computer. Raises OSError where it is too long for one."""
        name = f"{os.readlink(self._sockets_link)}/{zlib.crc32(owner.encode()):08x}.{incarnation}"
        if len(name) > _LONGEST_SOCKET_NAME:
            raise OSError(f"{name} is too long for the name of a socket; set TMPDIR to a shorter path")
        return f"ipc://{name}"

    def make_sockets(self) -> None:
        """Makes a new folder for sockets. Raises OSError where temporary names are too long for them."""
        self.drop_sockets()
        folder = Path(tempfile.gettempdir(), f"agileml-{secrets.token_hex(8)}")
        # Linked first: a process that dies in between leaves no folder that nothing names.
        self._sockets_link.symlink_to(folder)
        folder.mkdir(mode=0o700)
        self.coordinator_endpoint()  # raises now if the name is too long

    def remove_sockets(self) -> None:
        """Removes the sockets at the end of the job. Harmless when repeated."""
        if self._sockets_link.is_symlink():
            shutil.rmtree(self._sockets_link.readlink(), ignore_errors=True)

    def drop_sockets(self) -> None:
        """Removes the sockets, and forgets where they were."""
        self.remove_sockets()
        self._sockets_link.unlink(missing_ok=True)

    @property
    def _sockets_link(self) -> Path:
        return self.path / "sockets"


def any_port(address: str) -> str:
    """Returns where to bind at an address of this machine: a port that the system chooses."""
    return f"tcp://[{address}]:*" if ":" in address else f"tcp://{address}:*"


def write_whole(file: Path, content: str) -> None:
    """Writes a file that others read meanwhile: they see all of it or none."""
    unfinished = file.with_suffix(".part")
    unfinished.write_text(content)
    unfinished.replace(file)
