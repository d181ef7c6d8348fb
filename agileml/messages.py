"""What travels between workers and servers: the data plane.

Frozen values around NumPy arrays, encoded by ``wire.py``; nothing here knows a socket. Rows are *local*
to their partition (global row r is local row r // N of partition r % N), int64, sorted and unique;
values and deltas are float32 of shape (rows, columns).

Every request names the partition's routing ``epoch`` (which ownership it was sent to) and its
``generation`` (how many roll-backs it knows of), so that nothing stale is ever answered or applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agileml.events import Event

Rows: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = npt.NDArray[np.float32]


class ProtocolError(Exception):
    """A peer broke the protocol: a bug, told with the story so far."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Rows of a partition and what belongs there: a delta to add, or values to set."""

    rows: Rows
    values: Matrix


@dataclass(frozen=True, slots=True)
class ShardDelta:
    """What one data shard adds to one partition in one clock."""

    shard: int
    patch: Patch


@dataclass(frozen=True, slots=True)
class PendingDelta:
    """A shard's delta of a clock that is not complete yet."""

    clock: int
    delta: ShardDelta


@dataclass(frozen=True, slots=True)
class Undo:
    """What completing ``clock`` overwrote."""

    clock: int
    patch: Patch


@dataclass(frozen=True, slots=True)
class Peer:
    """A server, and where its data socket listens."""

    machine: str
    endpoint: str


# ---- from workers to servers; each part is answered on its own ---------------------------------


@dataclass(frozen=True, slots=True)
class ReadPart:
    partition: int
    epoch: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Read:
    """The rows a worker needs to compute ``clock``."""

    request: int
    generation: int
    clock: int
    parts: tuple[ReadPart, ...]


@dataclass(frozen=True, slots=True)
class UpdatePart:
    partition: int
    epoch: int
    deltas: tuple[ShardDelta, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """What a worker's shards add in ``clock``. A shard that adds nothing still says so."""

    request: int
    generation: int
    clock: int
    parts: tuple[UpdatePart, ...]


# ---- answers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadDone:
    request: int
    partition: int
    values: Matrix


@dataclass(frozen=True, slots=True)
class UpdateDone:
    """The server holds these deltas (it may have held them before)."""

    request: int
    partition: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Not served here under that epoch; the next assignment says where."""

    request: int
    partition: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The asked clock is over: every shard's deltas up to ``clock`` are in, on every partition."""

    request: int
    clock: int


# ---- between servers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Push:
    """From an ActivePS to the backup: the values of the rows that ``clock`` touched.

    Values rather than deltas: same rows, same bytes, and applying them is idempotent and bit-exact.
    ``base`` is the clock its generation started from.
    """

    partition: int
    generation: int
    base: int
    clock: int
    patch: Patch


@dataclass(frozen=True, slots=True)
class Install:
    """A whole partition, to be served from now on under ``epoch``."""

    partition: int
    epoch: int
    generation: int
    base: int
    backed: int
    clock: int
    values: Matrix
    undo: tuple[Undo, ...]
    pending: tuple[PendingDelta, ...]
    backup: Peer | None


@dataclass(frozen=True, slots=True)
class EndOfLife:
    """The last message from an ActivePS to its backup: serve at ``clock``, with these deltas pending."""

    partition: int
    epoch: int
    generation: int
    base: int
    clock: int
    pending: tuple[PendingDelta, ...]


Request: TypeAlias = Read | Update
Answer: TypeAlias = ReadDone | UpdateDone | Moved | Behind
Transfer: TypeAlias = Push | Install | EndOfLife
Message: TypeAlias = Request | Answer | Transfer


# ---- what a core asks its shell to do ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """To the server that listens at ``peer``."""

    peer: Peer
    message: Request | Transfer


@dataclass(frozen=True, slots=True)
class Reply:
    """To whoever sent the request, by the name it was received under."""

    to: str
    message: Answer


@dataclass(frozen=True, slots=True)
class Save:
    """Write these partitions (the whole model, together with what other servers save), then say so."""

    clock: int
    partitions: tuple[tuple[int, Matrix], ...]


Outgoing: TypeAlias = Send | Reply | Save | Event
