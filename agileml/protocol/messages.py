"""Defines what travels between workers and servers: the data plane.

Frozen values around NumPy arrays, encoded by ``wire.py``; nothing here knows a socket. Rows are *local* to
their partition (global row r is local row r // N of partition r % N), int64, sorted and unique; values and
deltas are float32 of shape (rows, columns).

Every request names the partition's routing ``epoch`` (which ownership it was sent to) and its ``generation``
(how many roll-backs it knows of), so that nothing stale is ever answered or applied.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.events import Event
from agileml.protocol.events import Peer as Peer

LEADING_SHARD: Final = 0
"""The shard whose worker decides where ranges for the backups end (``Update.cut``)."""


class ProtocolError(Exception):
    """A peer broke the protocol. This is a bug; the message says what led here."""


class Patch(Struct, frozen=True):
    """Rows of a partition and what belongs there: a delta to add, or values to set.

    ``rows`` (n,): global, sorted and unique; ``values`` (n, columns).
    """

    rows: Rows
    values: Matrix


class ShardDelta(Struct, frozen=True):
    """The changes of one shard to one partition in one clock."""

    shard: int
    patch: Patch


class PendingDelta(Struct, frozen=True):
    """A shard's delta of a clock that is not complete yet."""

    clock: int
    delta: ShardDelta


class Undo(Struct, frozen=True):
    """The values that clocks since + 1 to ``clock`` overwrote.

    ``loose``: nobody will ask to return to ``clock``.
    """

    since: int
    clock: int
    loose: bool
    patch: Patch


# ---- from workers to servers; each part is answered on its own ---------------------------------


class ReadPart(Struct, frozen=True):
    """The ``rows`` that are wanted of a partition. ``epoch``: that of the route by which its server was
    found.
    """

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
    """The deltas of shards to a partition. ``epoch``: that of the route by which its server was found."""

    partition: int
    epoch: int
    deltas: tuple[ShardDelta, ...]


class Update(Struct, frozen=True):
    """The deltas of a worker's shards in ``clock``. A shard that adds nothing still says so.

    ``cut``: a range for the backups ends with this clock. The worker of ``LEADING_SHARD`` decides it for all
    partitions. One that completes the clock without that shard's delta ends a range there in any case.
    """

    request: int
    generation: int
    clock: int
    cut: bool
    parts: tuple[UpdatePart, ...]


class Inquiry(Struct, frozen=True):
    """Asks whether a request was lost, for these partitions. It had no answer for a while.

    It follows the request on the same way, so a server that does not know the request will not get it any
    more.
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
    """The partition is not served here under that epoch; the next assignment says where."""

    request: int
    partition: int


class Behind(Struct, frozen=True):
    """The requested clock is over: every shard's deltas up to ``clock`` are in, on every partition."""

    request: int
    clock: int


class Unknown(Struct, frozen=True):
    """Nothing of the request waits here: it was lost, or answered. A worker without an answer asks again."""

    request: int
    partition: int


# ---- between servers ---------------------------------------------------------------------------


class Push(Struct, frozen=True):
    """From an ActivePS to the backup: the rows that clocks since + 1 to ``clock`` touched, at its end.

    Values rather than deltas: same rows, same bytes, and applying them is idempotent and bit-exact. ``base``
    is the clock its generation started from. Only one is on its way, until ``PushDone``.
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
    """A whole partition under ``epoch``: to be served from now on, or to be backed up.

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

    ``undo``: what the last clock alone overwrote, where the backup may have got it within a longer range.
    Workers may still read from before it.
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
    """Asks the backup whether pushes of the partition were lost. It should hold ``clock`` by now."""

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
    """Asks the receiver of an ``Install`` or ``EndOfLife`` whether it was lost."""

    partition: int
    epoch: int


class Missing(Struct, frozen=True):
    """From the receiver, asked after a transfer: it neither has it nor keeps it waiting."""

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
    """A message to the server that listens at ``peer``."""

    peer: Peer
    message: Request | Transfer


class Reply(Struct, frozen=True):
    """An answer to the sender of a request or a range, by the name it was received under."""

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
