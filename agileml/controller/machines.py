"""Records what the controller knows about one machine and the two processes on it.

A role's incarnation tells its processes apart: words and deaths of an earlier one come late and say nothing
about the present one. What a machine holds is recorded with partitions and shards, not here.
"""

from __future__ import annotations

from msgspec import Struct

from agileml.node.tier import Tier
from agileml.protocol.commands import Assign


class ServerRecord(Struct, frozen=True):
    """The server process that is up. A machine whose server died has none until the next one is up."""

    incarnation: int
    endpoint: str
    """Where workers and other servers reach it."""


class WorkerRecord(Struct, frozen=True):
    """The worker process that is up, its last orders, and what it reported."""

    incarnation: int
    orders: Assign | None = None
    """The last orders sent to it; None before it takes part."""
    drained: bool = False
    loaded: frozenset[int] = frozenset()
    """The shards that it reported to have in memory."""
    full: bool = False
    """It reported that it has no room for the rest."""

    @property
    def must_drain(self) -> bool:
        """Whether it may have a clock in hand that is worth finishing when its machine leaves."""
        return self.orders is not None and not self.drained


class MachineRecord(Struct, frozen=True):
    """A machine from the moment it joined until it is lost or released.

    ``cores``: of its worker; ``notice_s``: seconds from the warning until it is taken, where it is
    ``leaving``.
    """

    name: str
    tier: Tier
    cores: int
    server: ServerRecord | None = None
    worker: WorkerRecord | None = None
    dead_server: int = -1
    """The highest incarnation known to be gone. A late word from it, or from an earlier one, is stale."""
    dead_worker: int = -1
    proven: bool = False
    """Both roles were up at some time. A role that restarts does not change the ratio of the stage."""
    member: bool = False
    """It counts for the stage, and may be given partitions and input; see ``admission``."""
    leaving: bool = False
    notice_s: float = 0.0
    took_part: bool = False
    """It was reported to have joined training."""
    safe: bool = False
    """It was reported to be safe to kill."""

    @property
    def is_draining(self) -> bool:
        """Whether its worker still has something to finish. One that came up on a leaving machine has no
        orders.
        """
        return self.leaving and self.worker is not None and self.worker.must_drain

    @property
    def can_compute(self) -> bool:
        return self.member and self.worker is not None and not self.leaving
