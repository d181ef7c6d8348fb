"""A barrier that the product does not have: the slowest shard of each clock is not waited for."""

from __future__ import annotations

from collections.abc import Collection

from agileml.protocol.events import Setup
from agileml.sync.bounded_staleness import BulkSynchronous


class AllButOne(BulkSynchronous, frozen=True):
    """Completes a clock with all of its shards but one: bulk-synchronous with a backup worker."""

    def is_complete(self, clock: int, delivered: Collection[int]) -> bool:
        return len(delivered) >= max(1, self.shards - 1)


def all_but_one(setup: Setup) -> AllButOne:
    """Returns the barrier of a job, as ``make_barrier`` does."""
    return AllButOne(setup.shards, setup.lag_limit)
