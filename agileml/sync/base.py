"""Defines what a barrier answers: the one place for the rules by which workers wait for each other.

Servers ask it when a clock is complete and who may read; workers ask it what to compute next; the controller
asks it how far a stopped job still runs. None of them knows which barrier it has. So another way to deal with
slow workers is another barrier: backup workers (Chen et al. 2016) are one that completes a clock without all
of its shards.

Clocks count from 1, and 0 is the start. A partition *completes* clocks one by one, and each partition by
itself; a clock is *over* when every partition has completed it. B is the last clock that every backup holds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Barrier(Protocol):
    """Answers as a value: the same question has the same answer in every process and after every restart.

    Three promises keep training alive, whatever else a barrier decides (``tests/conformance/test_barriers``
    holds it to them). What is allowed stays allowed as more shards deliver, clocks complete and B moves. The
    deltas of all shards always complete a clock. Where the clocks before a clock are over, and backed up, it
    may be read and started.
    """

    @property
    def shows_pending(self) -> bool:
        """Whether a read sees deltas of clocks that are not complete, or exactly the clock before its own."""

    def is_complete(self, clock: int, delivered: Collection[int]) -> bool:
        """Whether the deltas of the ``delivered`` shards complete ``clock`` in a partition.

        Deltas that come later are dropped, and acknowledged. Partitions may complete a clock with different
        shards, as each of them asks for itself.
        """

    def is_readable(self, clock: int, completed: int) -> bool:
        """Whether a partition that has completed ``completed`` may be read to compute ``clock``."""

    def over_clock(self, completed: int) -> int:
        """Returns a clock that is over for certain once some partition has completed ``completed``.

        A worker pushes a clock only when every partition has its deltas of the one before, or it knows that
        one to be over.
        """

    def next_clock(self, delivered: int, over: int) -> int:
        """Returns the clock that a shard computes next.

        ``delivered``: the last clock that every partition has of it; ``over``: the last that is known to be
        over.
        """

    def is_awaited(self, clock: int, over: int) -> bool:
        """Whether others may stand still until ``clock`` is delivered, or do so soon.

        A worker that leaves finishes such a clock, and gives up any other.
        """

    def last_startable(self, backed_up: int) -> int:
        """Returns the last clock that a worker may start while B is ``backed_up``.

        This bounds what a failure costs, and the memory for returning to B.
        """
