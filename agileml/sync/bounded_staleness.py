"""Answers for bulk-synchronous and stale-synchronous training: workers are at most s clocks apart.

BSP (Valiant 1990) is s = 0: whoever computes clock c reads exactly the end of c - 1, so the model does not
depend on who was fast. SSP (Ho et al. 2013, section 3; FlexRR, Harlap et al. 2016) lets the fastest worker be
s clocks ahead of the slowest. It sees all of clocks up to c - s - 1, whatever it wrote itself, and as much
more as has come.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from agileml.protocol.events import Setup
from agileml.sync.base import Barrier


class BulkSynchronous(Struct, frozen=True):
    """Ends every clock for all workers together.

    ``shards``: how many deltas complete a clock; ``lag``: the most clocks beyond B that may be started.
    """

    shards: int
    lag: int

    @property
    def shows_pending(self) -> bool:
        return False

    def is_complete(self, clock: int, delivered: Collection[int]) -> bool:
        return len(delivered) >= self.shards

    def is_readable(self, clock: int, completed: int) -> bool:
        return clock <= completed + 1

    def over_clock(self, completed: int) -> int:
        return completed - 1

    def next_clock(self, delivered: int, over: int) -> int:
        return max(delivered, over) + 1

    def is_awaited(self, clock: int, over: int) -> bool:
        # With staleness too: whoever waits for a later clock waits for this one first.
        return clock <= over + 1

    def last_startable(self, backed_up: int) -> int:
        return backed_up + self.lag


class StaleSynchronous(BulkSynchronous, frozen=True):
    """Lets workers be ``staleness`` clocks apart (s); 0 makes it bulk-synchronous.

    Clocks complete as they do there: staleness changes who waits, and not what is summed.
    """

    staleness: int

    @property
    def shows_pending(self) -> bool:
        return self.staleness > 0

    def is_readable(self, clock: int, completed: int) -> bool:
        return clock <= completed + 1 + self.staleness


def make_barrier(setup: Setup) -> Barrier:
    """Returns the barrier of a job. Every process of it makes an equal one."""
    if setup.staleness:
        return StaleSynchronous(setup.shards, setup.lag_limit, setup.staleness)
    return BulkSynchronous(setup.shards, setup.lag_limit)
