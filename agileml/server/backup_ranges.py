"""Keeps which ranges of clocks a partition's backup holds, was sent, and still lacks.

One range per partition is on its way to the backup, and one more may wait, whose end is kept. What comes
after is merged, so a slow backup costs memory for the rows touched, not for the clocks. Where it lags too far
nothing is read any more, and the clock where that happens ends a range whatever the worker decided. A push or
its confirmation may be lost with a connection. Then the backup says what it has, and is sent all since then
in one range, unless a newer B confirms it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agileml.protocol.messages import LEADING_SHARD, Peer
from agileml.server.partition import PartitionState
from agileml.sync.base import Barrier


@dataclass(slots=True)
class BackupRanges:
    """The ranges of one partition, whose values are ``state``.

    ``backed``: every partition is backed up to it, as far as is known here; ``sent``, ``acked``: the end of
    the last range for the ``backup``, and of the last that it holds.
    """

    state: PartitionState
    backed: int
    backup: Peer | None = None
    sent: int = 0
    acked: int = 0
    cuts: set[int] = field(default_factory=set)
    """Clocks not complete yet that shall end a range."""
    pushed_lately: bool = False
    """A range was sent since the server last asked after what had no answer."""
    served_from: int = 0
    """The clock it was at when serving it began here, or its generation did."""
    alone: int = 0
    """The last clock that the backup can receive only as a range of its own: it held all before, and nobody
    else has pushed it.
    """

    @property
    def is_behind(self) -> bool:
        """Whether another range would have to wait for one that waits."""
        return self.sent > self.acked and bool(self.cuts or self.unsent_ends)

    @property
    def unsent_ends(self) -> list[int]:
        """The ends of ranges that the backup was not sent yet."""
        if self.backup is None:
            return []
        return [clock for clock in self.state.undo.returnable_clocks if clock > self.sent]

    @property
    def lacks_answer(self) -> bool:
        """Whether a range was sent and not confirmed for a while."""
        return self.sent > self.acked and not self.pushed_lately

    def must_keep(self, clock: int, barrier: Barrier) -> bool:
        """Whether somebody may want to return to ``clock``, which is about to be completed.

        Nobody reads for clocks beyond the last startable one, so that one ends a range in any case.
        """
        if self.backup is None or clock in self.cuts or clock >= barrier.last_startable(self.backed):
            return True
        # Elsewhere it may end a range: B moves only to clocks at which every partition ends one.
        return not self.state.has_delta(clock, LEADING_SHARD)

    def mark_sent(self, clock: int) -> None:
        """Records that the next range, up to ``clock``, was sent."""
        self.alone = clock if self.acked == self.sent == clock - 1 >= self.served_from else 0
        self.sent = clock

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
        self.mark_serving_start()

    def mark_serving_start(self) -> None:
        """Records that serving the partition begins now, or anew."""
        self.served_from, self.alone = self.state.clock, 0
