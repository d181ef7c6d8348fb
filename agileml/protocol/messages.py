"""What travels between workers and servers: the data plane.

Frozen values around NumPy arrays, encoded by ``wire.py``; nothing here knows a socket. Rows are *local*
to their partition (global row r is local row r // N of partition r % N), int64, sorted and unique;
values and deltas are float32 of shape (rows, columns).

Every request names the partition's routing ``epoch`` (which ownership it was sent to) and its
``generation`` (how many roll-backs it knows of), so that nothing stale is ever answered or applied.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.events import Event
from agileml.protocol.events import Peer as Peer


class ProtocolError(Exception):
    """A peer broke the protocol: a bug, told with the story so far."""


class Patch(Struct, frozen=True):
    """Rows of a partition and what belongs there: a delta to add, or values to set.

    ``rows`` (n,): global, sorted and unique; ``values`` (n, columns).
    """

    rows: Rows
    values: Matrix


class ShardDelta(Struct, frozen=True):
    """What one data shard adds to one partition in one clock."""

    shard: int
    patch: Patch


class PendingDelta(Struct, frozen=True):
    """A shard's delta of a clock that is not complete yet."""

    clock: int
    delta: ShardDelta


class Undo(Struct, frozen=True):
    """What clocks since + 1 to ``clock`` overwrote. ``loose``: nobody will ask to return to ``clock``."""

    since: int
    clock: int
    loose: bool
    patch: Patch


# ---- from workers to servers; each part is answered on its own ---------------------------------


class ReadPart(Struct, frozen=True):
    """The ``rows`` that are wanted of a partition. ``epoch``: of the route by which its server was found."""

    partition: int
    epoch: int
    rows: Rows


class Read(Struct, frozen=True):
    """The rows a worker needs to compute ``clock``."""

    request: int
    generation: int
    clock: int
    parts: tuple[ReadPart, ...]


class UpdatePart(Struct, frozen=True):
    """What shards add to a partition. ``epoch``: of the route by which its server was found."""

    partition: int
    epoch: int
    deltas: tuple[ShardDelta, ...]


class Update(Struct, frozen=True):
    """What a worker's shards add in ``clock``. A shard that adds nothing still says so.

    ``cut``: a range for the backups ends with this clock. Whoever computes the first shard decides it for
    all partitions, as every one of them gets that shard's delta before it completes the clock.
    """

    request: int
    generation: int
    clock: int
    cut: bool
    parts: tuple[UpdatePart, ...]


class Inquiry(Struct, frozen=True):
    """Has this request been lost, for these partitions? It had no answer for a while.

    It follows the request on the same way, so whoever does not know the request will not get it any more.
    """

    request: int
    partitions: tuple[int, ...]


# ---- answers -----------------------------------------------------------------------------------


class ReadDone(Struct, frozen=True):
    """The values of the rows that were asked for, in their order: (rows, columns)."""

    request: int
    partition: int
    values: Matrix


class UpdateDone(Struct, frozen=True):
    """The server holds these deltas (it may have held them before).

    ``behind``: one range is on its way to the backup and the next waits already, so cut no other yet.
    """

    request: int
    partition: int
    behind: bool


class Moved(Struct, frozen=True):
    """Not served here under that epoch; the next assignment says where."""

    request: int
    partition: int


class Behind(Struct, frozen=True):
    """The asked clock is over: every shard's deltas up to ``clock`` are in, on every partition."""

    request: int
    clock: int


class Unknown(Struct, frozen=True):
    """Nothing of the request waits here: it was lost, or answered. Who has no answer asks again."""

    request: int
    partition: int


# ---- between servers ---------------------------------------------------------------------------


class Push(Struct, frozen=True):
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


class PushDone(Struct, frozen=True):
    """From the backup: it holds the partition at ``clock``."""

    partition: int
    generation: int
    clock: int


class Install(Struct, frozen=True):
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


class EndOfLife(Struct, frozen=True):
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


class PushInquiry(Struct, frozen=True):
    """To the backup: have pushes of the partition been lost? It should hold ``clock`` by now."""

    partition: int
    generation: int
    clock: int


class Lacking(Struct, frozen=True):
    """From the backup, asked after pushes: it holds the partition at ``clock`` of ``generation``, no more."""

    partition: int
    generation: int
    clock: int


class Arrived(Struct, frozen=True):
    """From the receiver of an ``Install`` or ``EndOfLife``: it has it, or something newer."""

    partition: int
    epoch: int


class TransferInquiry(Struct, frozen=True):
    """To the receiver of an ``Install`` or ``EndOfLife``: has it been lost?"""

    partition: int
    epoch: int


class Missing(Struct, frozen=True):
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


class Send(Struct, frozen=True):
    """To the server that listens at ``peer``."""

    peer: Peer
    message: Request | Transfer


class Reply(Struct, frozen=True):
    """To whoever sent the request or the range, by the name it was received under."""

    to: str
    message: Answer | Notice


class Save(Struct, frozen=True):
    """Write these partitions (the whole model, together with what other servers save), then say so."""

    generation: int
    clock: int
    partitions: tuple[tuple[int, Matrix], ...]


class Snapshot(Struct, frozen=True):
    """Write these partitions, as they were at ``clock``, into the folder of a checkpoint's attempt."""

    attempt: int
    folder: str
    clock: int
    partitions: tuple[tuple[int, Matrix], ...]


Outgoing: TypeAlias = Send | Reply | Save | Snapshot | Event
