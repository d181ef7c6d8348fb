"""What the controller keeps about one machine and the two processes on it.

A role's incarnation tells its processes apart: words and deaths of an earlier one come late and say
nothing about the present one. What a machine holds is written on partitions and shards, not here.
"""

from __future__ import annotations

from msgspec import Struct

from agileml.node.tier import Tier
from agileml.protocol.commands import Assign


class Server(Struct, frozen=True):
    """The process that is up; a machine whose server died has none until the next one is."""

    incarnation: int
    endpoint: str
    """Where workers and other servers reach it."""


class Worker(Struct, frozen=True):
    """The process that is up, what it was told to do, and what it said of itself."""

    incarnation: int
    orders: Assign | None = None
    """What it was told last; None before it takes part."""
    drained: bool = False
    loaded: frozenset[int] = frozenset()
    """The shards that it said it has in memory."""
    full: bool = False
    """It said that it has no room for the rest."""

    @property
    def must_drain(self) -> bool:
        """Whether it may have a clock in hand that is worth finishing when its machine leaves."""
        return self.orders is not None and not self.drained


class Machine(Struct, frozen=True):
    """From the moment it joined until it is lost or released. ``cores``: of its worker; ``notice_s``: from
    the warning until it is taken, in seconds, where it is ``leaving``.
    """

    name: str
    tier: Tier
    cores: int
    server: Server | None = None
    worker: Worker | None = None
    dead_server: int = -1
    """The highest incarnation known to be gone: a late word from it or an earlier one is stale."""
    dead_worker: int = -1
    proven: bool = False
    """Both roles were up at some time. A role that restarts does not change the ratio of the stage."""
    member: bool = False
    """Counts for the stage, and may be given partitions and input; see ``admission``."""
    leaving: bool = False
    notice_s: float = 0.0
    took_part: bool = False
    """Said to have joined training."""
    safe: bool = False
    """Said to be safe to kill."""

    @property
    def drains(self) -> bool:
        """A worker that came up on a leaving machine has no orders, and nothing to finish."""
        return self.leaving and self.worker is not None and self.worker.must_drain

    @property
    def can_compute(self) -> bool:
        return self.member and self.worker is not None and not self.leaving
