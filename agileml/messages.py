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
from agileml.events import Peer as Peer

Rows: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = npt.NDArray[np.float32]


class ProtocolError(Exception):
    """A peer broke the protocol: a bug, told with the story so far."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Rows of a partition and what belongs there: a delta to add, or values to set.

    ``rows`` (n,): global, sorted and unique; ``values`` (n, columns).
    """

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
    """What clocks since + 1 to ``clock`` overwrote. ``loose``: nobody will ask to return to ``clock``."""

    since: int
    clock: int
    loose: bool
    patch: Patch


# ---- from workers to servers; each part is answered on its own ---------------------------------


@dataclass(frozen=True, slots=True)
class ReadPart:
    """The ``rows`` that are wanted of a partition. ``epoch``: of the route by which its server was found."""

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
    """What shards add to a partition. ``epoch``: of the route by which its server was found."""

    partition: int
    epoch: int
    deltas: tuple[ShardDelta, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """What a worker's shards add in ``clock``. A shard that adds nothing still says so.

    ``cut``: a range for the backups ends with this clock. Whoever computes the first shard decides it for
    all partitions, as every one of them gets that shard's delta before it completes the clock.
    """

    request: int
    generation: int
    clock: int
    cut: bool
    parts: tuple[UpdatePart, ...]


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Has this request been lost, for these partitions? It had no answer for a while.

    It follows the request on the same way, so whoever does not know the request will not get it any more.
    """

    request: int
    partitions: tuple[int, ...]


# ---- answers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadDone:
    """The values of the rows that were asked for, in their order: (rows, columns)."""

    request: int
    partition: int
    values: Matrix


@dataclass(frozen=True, slots=True)
class UpdateDone:
    """The server holds these deltas (it may have held them before).

    ``behind``: one range is on its way to the backup and the next waits already, so cut no other yet.
    """

    request: int
    partition: int
    behind: bool


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


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing of the request waits here: it was lost, or answered. Who has no answer asks again."""

    request: int
    partition: int


# ---- between servers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Push:
    """From an ActivePS to the backup: the rows that clocks since + 1 to ``clock`` touched, at its end.

    Values rather than deltas: same rows, same bytes, and applying them is idempotent and bit-exact.
    ``base`` is the clock its generation started from. One at a time is on its way, until ``PushDone``.
    """

    partition: int
    generation: int
    base: int
    since: int
    clock: int
    patch: Patch


@dataclass(frozen=True, slots=True)
class PushDone:
    """From the backup: it holds the partition at ``clock``."""

    partition: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class Install:
    """A whole partition under ``epoch``: to be served from now on, or to be followed as its backup.

    ``backed``: every backup holds this clock; ``acked``: this partition's does; ``cuts``: where clocks that
    are not complete yet end a range.
    """

    partition: int
    epoch: int
    generation: int
    base: int
    backed: int
    acked: int
    clock: int
    cuts: tuple[int, ...]
    values: Matrix
    undo: tuple[Undo, ...]
    pending: tuple[PendingDelta, ...]
    backup: Peer | None
    serve: bool = True


@dataclass(frozen=True, slots=True)
class EndOfLife:
    """The last message from an ActivePS to its backup: serve at ``clock``, with these deltas pending.

    ``undo``: what the last clock alone overwrote, where it may have come within a longer range: it may be
    read for.
    """

    partition: int
    epoch: int
    generation: int
    base: int
    clock: int
    cuts: tuple[int, ...]
    undo: tuple[Undo, ...]
    pending: tuple[PendingDelta, ...]


@dataclass(frozen=True, slots=True)
class PushInquiry:
    """To the backup: have pushes of the partition been lost? It should hold ``clock`` by now."""

    partition: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class Lacking:
    """From the backup, asked after pushes: it holds the partition at ``clock`` of ``generation``, no more."""

    partition: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """From the receiver of an ``Install`` or ``EndOfLife``: it has it, or something newer."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransferInquiry:
    """To the receiver of an ``Install`` or ``EndOfLife``: has it been lost?"""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Missing:
    """From the receiver, asked after a transfer: it is neither here nor waiting."""

    partition: int
    epoch: int


Request: TypeAlias = Read | Update | Inquiry
Answer: TypeAlias = ReadDone | UpdateDone | Moved | Behind | Unknown
Notice: TypeAlias = PushDone | Lacking | Arrived | Missing
"""Answers of one server to another, which go back the way that the question came."""
Transfer: TypeAlias = Push | Install | EndOfLife | PushInquiry | TransferInquiry | Notice
Message: TypeAlias = Request | Answer | Transfer


# ---- what a core asks its shell to do ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """To the server that listens at ``peer``."""

    peer: Peer
    message: Request | Transfer


@dataclass(frozen=True, slots=True)
class Reply:
    """To whoever sent the request or the range, by the name it was received under."""

    to: str
    message: Answer | Notice


@dataclass(frozen=True, slots=True)
class Save:
    """Write these partitions (the whole model, together with what other servers save), then say so."""

    generation: int
    clock: int
    partitions: tuple[tuple[int, Matrix], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Write these partitions, as they were at ``clock``, into the folder of a checkpoint's attempt."""

    attempt: int
    folder: str
    clock: int
    partitions: tuple[tuple[int, Matrix], ...]


Outgoing: TypeAlias = Send | Reply | Save | Snapshot | Event
