"""Holds a server's replica of a partition: its role, its generation, and the messages that follow from them.

Which ranges of clocks its backup still lacks is kept in ``backup_ranges``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agileml.protocol.events import BackedUp, ClockCompleted, Installed
from agileml.protocol.messages import (
    EndOfLife,
    Install,
    Lacking,
    Outgoing,
    Peer,
    ProtocolError,
    Push,
    PushDone,
    PushInquiry,
    Send,
)
from agileml.server.backup_ranges import BackupRanges
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
    """One partition on this server. ``base``: the clock that its generation started from."""

    partition: int
    state: PartitionState
    role: ReplicaRole
    epoch: int
    generation: int
    base: int
    ranges: BackupRanges
    target: Peer | None = None
    """The server it was last handed to: what was sent may still be on its way."""

    @classmethod
    def from_install(cls, message: Install, backed: int, barrier: Barrier) -> Replica:
        """Returns what came, before its role is known. ``backed``: the newest B that is known here."""
        state = PartitionState(message.values, message.clock, barrier, message.undo, message.pending)
        ranges = BackupRanges(state, backed, cuts=set(message.cuts))
        ranges.assume_backup_at(max(message.acked, backed))  # what was on its way may be lost with its sender
        return cls(message.partition, state, ReplicaRole.BACKUP, 0, message.generation, message.base, ranges)

    def complete_clocks(self, machine: str, barrier: Barrier) -> list[ClockCompleted]:
        """Moves over every clock that is complete. ``must_keep`` decides which of them can be returned to."""
        state, ranges, completed = self.state, self.ranges, []
        while state.complete_clock(keep=ranges.must_keep(state.clock + 1, barrier)):
            ranges.cuts.discard(state.clock)
            state.trim_undo(ranges.backed)
            completed.append(ClockCompleted(machine, self.partition, self.generation, state.clock))
        return completed

    def start_serving(self, machine: str, epoch: int, backup: Peer | None) -> list[Outgoing]:
        """Serves from now on; returns what the controller must hear of it, and the backup."""
        self.role, self.epoch, self.ranges.backup = ReplicaRole.SERVING, epoch, backup
        self.ranges.mark_serving_start()
        installed = Installed(machine, self.partition, epoch, self.state.clock)
        if backup is not None:
            return [installed, *self.next_push()]
        # This replica is the durable one now: the controller must know all that it can return to.
        kept = self.state.undo.keep_all()
        said = (ClockCompleted(machine, self.partition, self.generation, clock) for clock in kept)
        return [installed, *said]

    # ---- as a backup ---------------------------------------------------------------------------

    def follow_as_backup(self, machine: str, epoch: int) -> list[Outgoing]:
        """Becomes the backup of the server that sent it; returns what the controller must hear of it."""
        self.epoch = epoch
        installed = Installed(machine, self.partition, epoch, self.state.clock)
        return [installed, *self.report_backed_up(machine)]

    def report_backed_up(self, machine: str) -> list[BackedUp]:
        """Returns reports of all clocks that this backup can return to."""
        clocks = self.state.undo.returnable_clocks
        return [BackedUp(machine, self.partition, self.generation, clock) for clock in clocks]

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
        ranges = self.ranges
        if self.role is ReplicaRole.SERVING and ranges.sent == ranges.acked and ranges.unsent_ends:
            return [self._push_until(ranges.unsent_ends[0])]
        return []

    def last_pushes(self) -> list[Send]:
        """Sends all that the backup lacks, before an end of life."""
        self.state.undo.keep_all()
        return [self._push_until(clock) for clock in self.ranges.unsent_ends]

    def push_again(self, lacking: Lacking) -> list[Send]:
        """Sends all since the clock that the backup reports; nothing where the report is outdated, or says
        enough.

        A backup of an older generation returns to this one's base first.
        """
        since = lacking.clock if lacking.generation == self.generation else self.base
        if lacking.generation > self.generation or not self.ranges.acked <= since < self.ranges.sent:
            return []
        return [self._make_push(since, self.ranges.sent)]

    def confirm_push(self, done: PushDone) -> None:
        """Records that the backup holds the end of a range; it may say so twice."""
        # An older confirmation says nothing about the range on its way, which was sent since.
        if (self.generation, self.ranges.sent) == (done.generation, done.clock):
            self.ranges.acked = done.clock

    def _push_until(self, clock: int) -> Send:
        push = self._make_push(self.ranges.sent, clock)
        self.ranges.mark_sent(clock)
        return push

    def _make_push(self, since: int, clock: int) -> Send:
        if self.ranges.backup is None:
            raise ProtocolError(f"partition {self.partition} has no backup to push to")
        patch = self.state.changes_between(since, clock)
        self.ranges.pushed_lately = True
        push = Push(self.partition, self.generation, self.base, since, clock, patch)
        return Send(self.ranges.backup, push)

    # ---- going back ----------------------------------------------------------------------------

    def return_to(self, generation: int, clock: int) -> None:
        self.state.roll_back(clock)
        self.generation, self.base = generation, clock
        self.ranges.assume_backup_at(clock)
        self.ranges.cuts.clear()
