"""Holds a server's replica of a partition: its role here, and which ranges of clocks its backup still lacks.

One range per partition is on its way to the backup, and one more may wait, whose end is kept. What comes
after is merged, so a slow backup costs memory for the rows touched, not for the clocks. Where it lags too far
nothing is read any more, and the clock where that happens ends a range whatever the worker decided. A push or
its confirmation may be lost with a connection. Then the backup says what it has, and is sent all since then
in one range, unless a newer B confirms it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from agileml.protocol.events import ClockCompleted
from agileml.protocol.messages import (
    LEADING_SHARD,
    EndOfLife,
    Install,
    Lacking,
    Peer,
    ProtocolError,
    Push,
    PushDone,
    PushInquiry,
    Send,
)
from agileml.server.partition import PartitionState
from agileml.sync.base import Barrier


class ReplicaRole(StrEnum):
    """The role of a server for a partition that it holds."""

    SERVING = "serving"
    """Workers read and update it here (ParamServ, ActivePS)."""
    BACKUP = "backup"
    """It receives the ranges of clocks that the serving server pushes (BackupPS)."""
    FROZEN = "frozen"
    """Handed over, and kept until the new owner is known to have it."""


@dataclass(slots=True)
class Replica:
    """One partition on this server.

    ``base``: the clock its generation started from; ``backed``: every partition is backed up to it, as far as
    is known here; ``sent``, ``acked``: the end of the last range for the backup, and of the last it holds.
    """

    partition: int
    state: PartitionState
    role: ReplicaRole
    epoch: int
    generation: int
    base: int
    backed: int
    backup: Peer | None = None
    target: Peer | None = None
    """The server it was last handed to: what was sent may still be on its way."""
    sent: int = 0
    acked: int = 0
    cuts: set[int] = field(default_factory=set)
    """Clocks not complete yet that shall end a range."""
    pushed_lately: bool = False
    """It was pushed since ``retry_unanswered`` was last called."""
    served_from: int = 0
    """The clock it was at when serving it began here, or its generation did."""
    alone: int = 0
    """The last clock that the backup can receive only as a range of its own: it held all before, and nobody
    else has pushed it.
    """

    @classmethod
    def from_install(cls, message: Install, backed: int, barrier: Barrier) -> Replica:
        """Returns what came, before its role is known."""
        values, undo, pending = message.values, message.undo, message.pending
        state = PartitionState(values, message.clock, barrier, undo, pending)
        replica = cls(
            message.partition, state, ReplicaRole.BACKUP, 0, message.generation, message.base, backed
        )
        replica.assume_backup_at(
            max(message.acked, backed)
        )  # what was on its way may be lost with its sender
        replica.cuts = set(message.cuts)
        return replica

    @property
    def is_behind(self) -> bool:
        """Whether another range would have to wait for one that waits."""
        return self.sent > self.acked and bool(self.cuts or self.unsent_ends)

    @property
    def unsent_ends(self) -> list[int]:
        """The ends of ranges that the backup was not sent yet."""
        return (
            []
            if self.backup is None
            else [clock for clock in self.state.returnable_clocks if clock > self.sent]
        )

    def must_keep(self, clock: int, barrier: Barrier) -> bool:
        """Whether somebody may want to return to ``clock``, which is about to be completed.

        Nobody reads for clocks beyond the last startable one, so that one ends a range in any case.
        """
        if self.backup is None or clock in self.cuts or clock >= barrier.last_startable(self.backed):
            return True
        # Elsewhere it may end a range: B moves only to clocks at which every partition ends one.
        return not self.state.has_delta(clock, LEADING_SHARD)

    def complete_clocks(self, machine: str, barrier: Barrier) -> list[ClockCompleted]:
        """Moves over every clock that is complete. ``must_keep`` decides which of them can be returned to."""
        state, completed = self.state, []
        while state.complete_clock(keep=self.must_keep(state.clock + 1, barrier)):
            self.cuts.discard(state.clock)
            state.trim_undo(self.backed)
            completed.append(ClockCompleted(machine, self.partition, self.generation, state.clock))
        return completed

    # ---- as a backup ---------------------------------------------------------------------------

    def adopt_generation(self, message: Push | EndOfLife) -> bool:
        """Returns whether the message is of this backup's generation. A newer one is taken on first."""
        if message.generation > self.generation:
            self.return_to(message.generation, message.base)
        return message.generation == self.generation

    def answer_inquiry(self, asked: PushInquiry) -> PushDone | Lacking | None:
        """Returns what this replica holds of a push; None once it is no backup any more, or of a later
        generation.
        """
        if (self.generation, self.state.clock) >= (asked.generation, asked.clock):
            same = self.generation == asked.generation
            return PushDone(self.partition, asked.generation, asked.clock) if same else None
        if self.role is not ReplicaRole.BACKUP:
            return None
        return Lacking(self.partition, self.generation, self.state.clock)

    # ---- ranges for the backup -----------------------------------------------------------------

    def next_push(self) -> list[Send]:
        """Sends the next range, if the backup holds the last one."""
        if self.role is ReplicaRole.SERVING and self.sent == self.acked and self.unsent_ends:
            return [self.push_until(self.unsent_ends[0])]
        return []

    def last_pushes(self) -> list[Send]:
        """Sends all that the backup lacks, before an end of life."""
        self.state.keep_all()
        return [self.push_until(clock) for clock in self.unsent_ends]

    def push_until(self, clock: int) -> Send:
        push = self._make_push(self.sent, clock)
        self.alone = clock if self.acked == self.sent == clock - 1 >= self.served_from else 0
        self.sent = clock
        return push

    def push_again(self, lacking: Lacking) -> list[Send]:
        """Sends all since the clock that the backup reports; nothing where the report is outdated, or says
        enough.

        A backup of an older generation returns to this one's base first.
        """
        since = lacking.clock if lacking.generation == self.generation else self.base
        if lacking.generation > self.generation or not self.acked <= since < self.sent:
            return []
        return [self._make_push(since, self.sent)]

    def confirm_push(self, done: PushDone) -> None:
        """Records that the backup holds the end of a range; it may say so twice."""
        # An older confirmation says nothing about the range on its way, which was sent since.
        if (self.generation, self.sent) == (done.generation, done.clock):
            self.acked = done.clock

    def mark_backed(self, clock: int) -> None:
        """Records that every partition is backed up to ``clock``."""
        self.backed = max(self.backed, clock)
        self.acked = max(self.acked, self.backed)
        # B says that the backup has it, even where its confirmation was lost.
        self.sent = max(self.sent, self.acked)
        self.state.trim_undo(self.backed)

    def assume_backup_at(self, clock: int) -> None:
        """Assumes that the backup holds ``clock``, or will before anything else reaches it."""
        self.sent = self.acked = clock
        self._reset_serving_start()

    def start_serving(self, epoch: int, backup: Peer | None) -> None:
        self.role, self.epoch, self.backup = ReplicaRole.SERVING, epoch, backup
        self._reset_serving_start()

    def _reset_serving_start(self) -> None:
        self.served_from, self.alone = self.state.clock, 0

    def _make_push(self, since: int, clock: int) -> Send:
        if self.backup is None:
            raise ProtocolError(f"partition {self.partition} has no backup to push to")
        patch = self.state.changes_between(since, clock)
        self.pushed_lately = True
        return Send(self.backup, Push(self.partition, self.generation, self.base, since, clock, patch))

    # ---- going back, and going away ------------------------------------------------------------

    def return_to(self, generation: int, clock: int) -> None:
        self.state.roll_back(clock)
        self.generation, self.base = generation, clock
        self.assume_backup_at(clock)
        self.cuts.clear()

    def make_install(self, epoch: int, acked: int) -> Install:
        """Returns the whole replica, to be served, but for the deltas that are still to be summed."""
        state = self.state
        return Install(
            self.partition,
            epoch,
            self.generation,
            self.base,
            self.backed,
            acked,
            state.clock,
            tuple(sorted(self.cuts)),
            state.all_values(),
            state.undo_steps,
            pending=(),
            backup=None,
        )

    def make_end_of_life(self, epoch: int) -> EndOfLife:
        """Returns what the backup lacks beside the ranges. What it overwrote for a range, it knows itself."""
        state = self.state
        return EndOfLife(
            self.partition,
            epoch,
            self.generation,
            self.base,
            state.clock,
            tuple(sorted(self.cuts)),
            () if self.alone == state.clock else state.undo_steps[-1:],
            state.pending_deltas,
        )
