"""Defines what the supervisor of a command job and the agents of its machines say to each other. Plain
values.

Steps are the job's own unit of progress: what the program writes into its progress file, and the numbers of
its checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from agileml.node.transport.packet_codec import StructCodec


class ProgramDescription(Struct, frozen=True):
    """Describes a job to its machines. Secrets are named here; their values are in an agent's environment
    alone.
    """

    job: str
    run: str
    setup: str
    command: str
    workdir: str | None
    """The folder to copy from; None for an empty one."""
    file_mounts: Mapping[str, str]
    secrets: tuple[str, ...]
    store: str
    """Where its checkpoints are kept: a folder or a URL."""
    left_out: str = ""
    """A folder that no copy of files takes along: that of the records of all runs."""


# ---- orders: to an agent ------------------------------------------------------------------------


class Prepare(Struct, frozen=True, tag_field="kind", tag=True):
    """To an agent: put the files in place and run ``setup``."""

    program: ProgramDescription


class Begin(Struct, frozen=True, tag_field="kind", tag=True):
    """To an agent: run the program from the newest complete checkpoint. ``attempt`` counts from 1, over all
    machines.
    """

    attempt: int


class Leave(Struct, frozen=True, tag_field="kind", tag=True):
    """To an agent: have the program stop and store its newest complete checkpoint, within ``seconds`` real
    ones.
    """

    seconds: float


class ShutDown(Struct, frozen=True, tag_field="kind", tag=True):
    """To an agent: the job has given this machine up; end the program and yourself."""


# ---- words: from an agent -----------------------------------------------------------------------


class Ready(Struct, frozen=True, tag_field="kind", tag=True):
    """The machine is prepared."""


class Began(Struct, frozen=True, tag_field="kind", tag=True):
    """The program runs, from the complete checkpoint ``step`` (0: from nothing)."""

    attempt: int
    step: int


class Reached(Struct, frozen=True, tag_field="kind", tag=True):
    """The program says that it has done ``step`` steps."""

    step: int
    objective: float | None = None


class Saved(Struct, frozen=True, tag_field="kind", tag=True):
    """The checkpoint ``step`` is complete in the store; ``machine`` wrote it."""

    step: int
    machine: str = ""
    size_bytes: int = 0


class Fetched(Struct, frozen=True, tag_field="kind", tag=True):
    """The checkpoint ``step``, which ``stored_by`` wrote, has come from the store to this machine."""

    step: int
    stored_by: str
    size_bytes: int


class Left(Struct, frozen=True, tag_field="kind", tag=True):
    """The program is stopped and everything complete that it wrote is in the store: safe to kill."""


class Ended(Struct, frozen=True, tag_field="kind", tag=True):
    """Setup or the program ended by itself. ``what``: "setup" or "run"; ``trouble``: the last words of its
    log, or the store's.
    """

    what: str
    status: int
    trouble: str


class Noticed(Struct, frozen=True, tag_field="kind", tag=True):
    """The machine itself hears that its provider takes it in ``seconds`` real ones."""

    seconds: float


Order: TypeAlias = Prepare | Begin | Leave | ShutDown
Word: TypeAlias = Ready | Began | Reached | Saved | Fetched | Left | Ended | Noticed
Message: TypeAlias = Order | Word
CODEC: Final[StructCodec[Message]] = StructCodec(Message)
"""Encodes packets of the links between the supervisor and agents."""

# ---- what the supervisor is told ----------------------------------------------------------------


class Joined(Struct, frozen=True, tag_field="kind", tag=True):
    machines: tuple[str, ...]


class Warned(Struct, frozen=True, tag_field="kind", tag=True):
    """These machines go in ``seconds`` real ones."""

    machines: tuple[str, ...]
    seconds: float


class Gone(Struct, frozen=True, tag_field="kind", tag=True):
    machines: tuple[str, ...]


class Stop(Struct, frozen=True, tag_field="kind", tag=True):
    """Stop gracefully, within ``seconds`` real ones."""

    seconds: float


class Said(Struct, frozen=True):
    """A word of ``machine``'s agent, and its ``number`` among that agent's words, from 1."""

    machine: str
    number: int
    word: Word


Told: TypeAlias = Joined | Warned | Gone | Stop
Event: TypeAlias = Told | Said


def to_json(message: Word | Told) -> Any:
    """Returns what the journal keeps of a message; ``kind`` says which it is."""
    return msgspec.to_builtins(message)


def from_json(content: Any) -> Any:
    """Returns the message that ``to_json`` made ``content`` from. Raises msgspec.ValidationError."""
    return msgspec.convert(content, Word | Told)
