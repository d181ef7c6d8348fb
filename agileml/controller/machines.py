"""Records what the controller knows about machines and the two processes, or roles, on each.

A role's incarnation tells its processes apart: an event of an earlier one arrives late and says nothing about
the present one. Partitions and shards record what a machine holds; this module does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from agileml.node.tier import Tier
from agileml.protocol.commands import Assign
from agileml.protocol.events import ServerLost, ServerReady, WorkerLost, WorkerReady

RoleEvent: TypeAlias = ServerReady | WorkerReady | ServerLost | WorkerLost


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

    ``cores``: those of its worker; ``notice_s``: real seconds between its eviction warning and its end, 0
    unless it is ``leaving``.
    """

    name: str
    tier: Tier
    cores: int
    server: ServerRecord | None = None
    worker: WorkerRecord | None = None
    dead_server: int = -1
    """The highest incarnation known to be gone. An event of it, or of an earlier one, is stale."""
    dead_worker: int = -1
    proven: bool = False
    """Both roles were up at some time. A role that restarts does not change the ratio of the stage."""
    member: bool = False
    """It counts for the stage, and may get partitions and input; see ``admission``."""
    leaving: bool = False
    notice_s: float = 0.0
    took_part: bool = False
    """The client knows that it joined training."""
    safe: bool = False
    """The client knows that it is safe to kill."""

    @property
    def is_draining(self) -> bool:
        """Whether its worker still has something to finish before the machine leaves."""
        # A worker that came up on a leaving machine has no orders, and nothing to finish.
        return self.leaving and self.worker is not None and self.worker.must_drain

    @property
    def can_compute(self) -> bool:
        return self.member and self.worker is not None and not self.leaving


class MachineRoster(Struct, frozen=True):
    """The machines of a job: those it has, those it had, and roles whose machine is not announced yet."""

    machines: Mapping[str, MachineRecord] = field(default_factory=dict)
    """Machines by name, in the order in which they joined."""
    departed: frozenset[str] = frozenset()
    """Names of machines that were lost or released; none of them comes back."""
    unannounced_roles: tuple[RoleEvent, ...] = ()
    """Events of roles on unknown machines: agents report roles, and the client announces machines."""

    def live_server(self, name: str | None) -> ServerRecord | None:
        """Returns the live server of a machine; None when the machine or its server is gone."""
        machine = self.machines.get(name) if name is not None else None
        return machine.server if machine else None

    def is_reliable(self, name: str | None) -> bool:
        """Whether ``name`` is a live machine of the reliable tier. None and lost machines are not."""
        machine = self.machines.get(name) if name is not None else None
        return machine is not None and machine.tier is Tier.RELIABLE

    def assignable_servers(self, tier: Tier) -> tuple[str, ...]:
        """Returns the machines of a tier that may get partitions, the longest-running first."""
        return tuple(
            machine.name
            for machine in self.machines.values()
            if machine.tier is tier and machine.server and machine.member and not machine.leaving
        )

    def count_participants(self, tier: Tier) -> int:
        """Counts the machines of a tier that count for the stage."""
        members = (machine for machine in self.machines.values() if machine.tier is tier)
        return sum(machine.proven and machine.member and not machine.leaving for machine in members)

    def with_machines(self, machines: Iterable[MachineRecord]) -> MachineRoster:
        """Adds machines, or replaces those of the same name."""
        # A machine that is replaced keeps its place: the order of joining decides who owns what.
        return replace(self, machines={**self.machines, **{machine.name: machine for machine in machines}})

    def without_machine(self, name: str) -> MachineRoster:
        remaining = {key: machine for key, machine in self.machines.items() if key != name}
        return replace(self, machines=remaining, departed=self.departed | {name})
