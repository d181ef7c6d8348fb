"""Defines the messages between the supervisor of a command job and the agents of its machines.

Steps are the job's own unit of progress: the program writes them into its progress file, and numbers its
checkpoints by them. All seconds are real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from agileml.node.transport.packet_codec import StructCodec


class ProgramDescription(Struct, frozen=True):
    """Describes a job to its machines. ``secrets``: names; the values are in the agents' environment."""

    job: str
    run: str
    setup: str
    command: str
    workdir: str | None
    """The folder to copy into the working folder; None leaves that empty."""
    file_mounts: Mapping[str, str]
    secrets: tuple[str, ...]
    store: str
    """The location of its checkpoints: a folder or a URL."""
    left_out: str = ""
    """A folder that copies of files leave out: the one with the records of all runs."""


# ---- orders to an agent -------------------------------------------------------------------------


class Prepare(Struct, frozen=True, tag_field="kind", tag=True):
    """Copy the job's files and run ``setup``."""

    program: ProgramDescription


class Begin(Struct, frozen=True, tag_field="kind", tag=True):
    """Run the program from the newest complete checkpoint. ``attempt`` counts from 1, over all machines."""

    attempt: int


class Leave(Struct, frozen=True, tag_field="kind", tag=True):
    """Stop the program and store its newest complete checkpoint, within ``seconds``."""

    seconds: float


class ShutDown(Struct, frozen=True, tag_field="kind", tag=True):
    """End the program and yourself: the job has given this machine up."""


# ---- reports of an agent ------------------------------------------------------------------------


class Ready(Struct, frozen=True, tag_field="kind", tag=True):
    """The machine is prepared."""


class Began(Struct, frozen=True, tag_field="kind", tag=True):
    """The program runs from the complete checkpoint ``step``; 0: without a checkpoint."""

    attempt: int
    step: int


class Reached(Struct, frozen=True, tag_field="kind", tag=True):
    """The program reported ``step`` finished steps, and the objective there if it has one."""

    step: int
    objective: float | None = None


class Saved(Struct, frozen=True, tag_field="kind", tag=True):
    """The checkpoint ``step`` is complete in the store; ``machine`` wrote it."""

    step: int
    machine: str = ""
    size_bytes: int = 0


class Fetched(Struct, frozen=True, tag_field="kind", tag=True):
    """This machine fetched the checkpoint ``step``, which ``stored_by`` wrote, from the store."""

    step: int
    stored_by: str
    size_bytes: int


class Left(Struct, frozen=True, tag_field="kind", tag=True):
    """The program is stopped, and all its complete checkpoints are in the store: safe to kill."""


class Ended(Struct, frozen=True, tag_field="kind", tag=True):
    """Setup or the program ended by itself, or a checkpoint could not be stored or restored.

    ``what``: "setup", "run", or what failed; ``trouble``: the last lines of its output, or the store's error.
    """

    what: str
    status: int
    trouble: str


class Noticed(Struct, frozen=True, tag_field="kind", tag=True):
    """The machine itself received a notice: its provider takes it in ``seconds``."""

    seconds: float


Order: TypeAlias = Prepare | Begin | Leave | ShutDown
Word: TypeAlias = Ready | Began | Reached | Saved | Fetched | Left | Ended | Noticed
Message: TypeAlias = Order | Word
CODEC: Final[StructCodec[Message]] = StructCodec(Message)
"""Encodes packets of the links between the supervisor and agents."""

# ---- events from the job's driver ---------------------------------------------------------------


class Joined(Struct, frozen=True, tag_field="kind", tag=True):
    machines: tuple[str, ...]


class Warned(Struct, frozen=True, tag_field="kind", tag=True):
    """The provider takes these machines in ``seconds``."""

    machines: tuple[str, ...]
    seconds: float


class Gone(Struct, frozen=True, tag_field="kind", tag=True):
    machines: tuple[str, ...]


class Stop(Struct, frozen=True, tag_field="kind", tag=True):
    """Stop gracefully, within ``seconds``."""

    seconds: float


class Said(Struct, frozen=True):
    """A report of ``machine``'s agent, and its ``number`` among that agent's reports, from 1."""

    machine: str
    number: int
    word: Word


Told: TypeAlias = Joined | Warned | Gone | Stop
Event: TypeAlias = Told | Said


def to_json(message: Word | Told) -> Any:
    """Returns a message as the journal keeps it, with its type under ``kind``."""
    return msgspec.to_builtins(message)


def from_json(content: Any) -> Any:
    """Reverses ``to_json``. Raises msgspec.ValidationError."""
    return msgspec.convert(content, Word | Told)
