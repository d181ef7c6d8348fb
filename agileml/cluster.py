"""What the elasticity controller knows, as one value.

Everything it ever decides follows from this value, which follows from the events it was told: a
restarted controller folds its journal and goes on. Here are the facts, the questions that can be asked
of them and the invariants they must keep; what follows from them is decided in ``moves``, ``recovery``,
``assignments`` and ``announcements``.

Symbols: B is ``consistent``, the clock that every backup holds; N is ``len(partitions)``; S is
``len(shards)``; s is ``setup.staleness``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Self, TypeAlias

from agileml.events import (
    Command,
    Event,
    ServerLost,
    ServerReady,
    Setup,
    Stage,
    Tier,
    WorkerLost,
    WorkerReady,
)
from agileml.holdings import EDGES, ON_ITS_WAY, Partition, Shard, Standing
from agileml.machines import Machine, Server
from agileml.stages import PLACEMENTS

Commands: TypeAlias = tuple[Command, ...]
Result: TypeAlias = "tuple[Cluster, Commands]"
RoleEvent: TypeAlias = ServerReady | WorkerReady | ServerLost | WorkerLost


class InvalidTransition(RuntimeError):
    """An event that cannot have happened; the message ends with the events that led here."""


class BrokenInvariant(RuntimeError):
    """A state that must never be reached; the message ends with the events that led here."""


class Phase(StrEnum):
    """Of the whole job."""

    STARTING = "starting"  # some partition was never served yet
    TRAINING = "training"
    SAVING = "saving"  # all clocks are done; the reliable machines write the model
    FINISHED = "finished"
    FAILED = "failed"  # state that existed nowhere else is gone

    @property
    def over(self) -> bool:
        return self in (Phase.FINISHED, Phase.FAILED)


PHASE_EDGES: Final[Mapping[tuple[Phase, Phase], str]] = {
    (Phase.STARTING, Phase.TRAINING): "every partition was made and is served",
    (Phase.TRAINING, Phase.SAVING): "the last clock is completed and backed up",
    (Phase.SAVING, Phase.FINISHED): "every reliable machine wrote its part",
    (Phase.TRAINING, Phase.FAILED): "the only copy of a partition is gone, or the only backup",
    (Phase.SAVING, Phase.FAILED): "a copy is gone before it was written",
}

INVARIANTS: Final[Mapping[int, str]] = {
    1: "while training, every partition has exactly one owner per epoch, and it lives",
    2: "whatever a transient machine serves has its backup on a live reliable machine",
    3: "while training, every shard was given to exactly one live worker, if there is one",
    4: "B never moves backwards",
    5: "nothing completed up to B can be lost: every partition is safe at B or later",
    6: "once events stop, partitions arrive, leaving machines become safe to kill, and clocks complete",
}
"""4 speaks of two states and is checked by ``elastic.step``; 6 of what comes, and is checked by the tests."""


@dataclass(frozen=True, slots=True)
class Cluster:
    setup: Setup
    partitions: tuple[Partition, ...]
    shards: tuple[Shard, ...]
    until: int
    """The last clock; a stop brings it nearer."""
    phase: Phase = Phase.STARTING
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """In the order in which they joined."""
    stage: Stage = Stage.ONE
    reached: Stage | None = None
    """The stage whose layout was last completely in place."""
    generation: int = 0
    epoch: int = 0
    version: int = 0
    consistent: int = 0
    progress: tuple[int, int] = (0, 0)
    """The clocks last reported upwards: completed, consistent."""
    saving: frozenset[str] = frozenset()
    """Whose part of the model is not written yet."""
    strangers: tuple[RoleEvent, ...] = ()
    """Roles that reported before their machine was announced: the two come by different channels."""
    departed: frozenset[str] = frozenset()
    story: tuple[Event, ...] = ()
    """The latest events, for error messages."""

    @classmethod
    def start(cls, setup: Setup) -> Self:
        """A job without machines. Raises ValueError where the setup describes no job."""
        if min(setup.partitions, setup.shards, setup.clocks) < 1 or setup.staleness < 0:
            raise ValueError(
                f"a job needs partitions, shards and clocks, and a staleness of at least 0: {setup}"
            )
        return cls(
            setup,
            partitions=tuple(Partition(number) for number in range(setup.partitions)),
            shards=(Shard(),) * setup.shards,
            until=setup.clocks,
        )

    # ---- questions -----------------------------------------------------------------------------

    @property
    def completed(self) -> int:
        """The highest clock that every partition has completed."""
        return min(partition.completed for partition in self.partitions)

    @property
    def settled(self) -> bool:
        return all(partition.standing is Standing.SERVED for partition in self.partitions)

    def server(self, name: str | None) -> Server | None:
        """The live server of a machine; None when the machine or its server is gone."""
        machine = self.machines.get(name) if name is not None else None
        return machine.server if machine else None

    def endpoint(self, name: str) -> str:
        server = self.server(name)
        if server is None:
            raise self.broken(f"{name} has no server to speak of")
        return server.endpoint

    def servers(self, tier: Tier) -> tuple[str, ...]:
        """Machines of a tier that may be given partitions, the longest-running first."""
        return tuple(
            machine.name
            for machine in self.machines.values()
            if machine.tier is tier and machine.server and not machine.leaving
            if machine.proven or tier is Tier.RELIABLE
        )

    def workers(self) -> tuple[Machine, ...]:
        """Machines that the stage lets compute, and if none of them can, all that can."""
        able = tuple(machine for machine in self.machines.values() if machine.can_compute)
        meant = tuple(machine for machine in able if machine.tier in PLACEMENTS[self.stage].computing)
        return meant or able

    def taking_part(self, tier: Tier) -> int:
        """How many machines of a tier count for the stage."""
        members = (machine for machine in self.machines.values() if machine.tier is tier)
        return sum(machine.proven and not machine.leaving for machine in members)

    def holds_shards(self, name: str) -> bool:
        return any(shard.owner == name for shard in self.shards)

    def holds_state(self, name: str) -> bool:
        return any(name in (p.owner, p.source, p.backup) for p in self.partitions)

    # ---- changes -------------------------------------------------------------------------------

    def with_machine(self, machine: Machine) -> Cluster:
        return replace(self, machines={**self.machines, machine.name: machine})

    def without_machine(self, name: str) -> Cluster:
        remaining = {key: machine for key, machine in self.machines.items() if key != name}
        return replace(self, machines=remaining, departed=self.departed | {name})

    def with_partitions(self, changed: Iterable[Partition]) -> Cluster:
        """Replace partitions by number. Raises BrokenInvariant where no edge leads from old to new."""
        new = {partition.number: partition for partition in changed}
        for number, after in new.items():
            before = self.partitions[number]
            if before.standing is not after.standing and (before.standing, after.standing) not in EDGES:
                raise self.broken(f"no edge leads from {before} to {after}")
        return replace(self, partitions=tuple(new.get(old.number, old) for old in self.partitions))

    # ---- errors --------------------------------------------------------------------------------

    def broken(self, what: str) -> BrokenInvariant:
        return BrokenInvariant(self.told(what))

    def violated(self, invariant: int, how: str) -> BrokenInvariant:
        return self.broken(f"invariant {invariant}, {INVARIANTS[invariant]}: {how}")

    def told(self, what: str) -> str:
        """``what``, with the story so far."""
        lines = "\n  ".join(map(str, self.story))
        return f"{what}\nin {self.phase}, generation {self.generation}, epoch {self.epoch}, after\n  {lines}"

    def check(self) -> None:
        """Raise BrokenInvariant, with the story, unless INVARIANTS hold, as they do after every step."""
        if self.phase is Phase.TRAINING:
            for partition in self.partitions:
                self._check_owner(partition)
                self._check_backup(partition)
            self._check_shards()
        for partition in self.partitions:
            if not self.consistent <= partition.safe_clock <= partition.completed:
                raise self.violated(5, f"B is {self.consistent}, {partition}")
        for machine in self.machines.values():
            if machine.safe and (self.holds_shards(machine.name) or self.holds_state(machine.name)):
                raise self.broken(f"{machine.name} was said to be safe to kill, and it is not")

    def _check_owner(self, partition: Partition) -> None:
        if partition.standing not in ON_ITS_WAY | {Standing.SERVED} or self.server(partition.owner) is None:
            raise self.violated(1, f"{partition}")
        if partition.standing is Standing.MOVING and self.server(partition.source) is None:
            raise self.violated(1, f"nobody sends {partition}")

    def _check_backup(self, partition: Partition) -> None:
        owner = self.machines[partition.owner or ""]
        if partition.backup is None:
            if owner.tier is not Tier.RELIABLE:
                raise self.violated(2, f"{partition}")
        elif self.machines[partition.backup].tier is not Tier.RELIABLE or not self.server(partition.backup):
            raise self.violated(2, f"{partition}")

    def _check_shards(self) -> None:
        if not self.workers():
            return
        for number, shard in enumerate(self.shards):
            machine = self.machines.get(shard.owner or "")
            worker = machine.worker if machine else None
            if (
                worker is None
                or worker.drained
                or worker.orders is None
                or number not in worker.orders.shards
            ):
                raise self.violated(3, f"shard {number}: {shard}")
