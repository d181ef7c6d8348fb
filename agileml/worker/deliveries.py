"""Keeps what a worker knows to be delivered, and so which clock each of its shards computes next."""

from __future__ import annotations

from collections.abc import Iterable

from agileml.protocol.commands import Assign
from agileml.sync.base import Barrier
from agileml.worker.task import Task


class Deliveries:
    """The clocks that are delivered in the present generation. ``barrier`` says which one comes next."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self._over = 0  # clocks up to here are complete everywhere
        self._delivered: dict[int, int] = {}  # shard -> last clock acknowledged, in this generation

    def start_generation(self, clock: int) -> None:
        """Starts over at ``clock``: a roll-back undid on the servers whatever was delivered since."""
        self._over, self._delivered = clock - 1, {}

    def learn_assignment(self, assign: Assign) -> None:
        """Takes over what the controller knows to be complete, and what previous owners pushed."""
        self.mark_over(assign.clock - 1)
        for shard, clock in assign.delivered:
            self._mark_delivered(shard, clock)

    def mark_over(self, clock: int) -> None:
        """Records that clocks up to ``clock`` are complete everywhere."""
        self._over = max(self._over, clock)

    def record_push(self, task: Task) -> None:
        """Records that every server has what the task pushed."""
        for shard in task.shards:
            self._mark_delivered(shard, task.clock)

    def delivered_clock(self, shard: int) -> int:
        """Returns the last clock that all servers have of the shard, as far as is known here."""
        return max(self._over, self._delivered.get(shard, 0))

    def next_clock(self, shard: int, task: Task | None) -> int:
        """Returns the first clock that the shard lacks when the ``task`` in hand, if it is being pushed, is
        delivered.
        """
        delivered = self._delivered.get(shard, 0)
        if task is not None and task.pushing and shard in task.shards:
            delivered = max(delivered, task.clock)
        return self._barrier.next_clock(delivered, self._over)

    def due_clock(self, shards: Iterable[int], task: Task | None) -> int | None:
        """Returns the first clock that any of the shards lacks then; None without shards."""
        return min((self.next_clock(shard, task) for shard in shards), default=None)

    def is_awaited(self, clock: int) -> bool:
        """Whether a worker that leaves should still deliver ``clock``."""
        return self._barrier.is_awaited(clock, self._over)

    def _mark_delivered(self, shard: int, clock: int) -> None:
        self._delivered[shard] = max(clock, self._delivered.get(shard, 0))
