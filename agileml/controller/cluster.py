"""Holds all that the elasticity controller knows, as one value.

Everything it decides follows from this value, which follows from the events it was told: a restarted
controller folds its journal and goes on. Here are the facts, and the questions that can be asked of them;
``invariants`` says what must hold of them. What follows is decided in ``placement``, ``recovery``,
``checkpoints`` and ``announcements``.

Symbols: B is ``consistent``, the clock that every backup holds; N is ``len(partitions)``; S is
``len(shards)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from agileml.controller.machines import MachineRecord, ServerRecord
from agileml.controller.placement.load_model import LoadReports
from agileml.controller.placement.ownership import EDGES, Partition, PartitionStatus, Shard
from agileml.controller.stages import PLACEMENTS
from agileml.node.tier import Tier
from agileml.protocol.commands import Command
from agileml.protocol.events import (
    Event,
    Peer,
    ServerLost,
    ServerReady,
    Setup,
    Stage,
    WorkerLost,
    WorkerReady,
)
from agileml.sync.base import Barrier

Commands: TypeAlias = tuple[Command, ...]
Result: TypeAlias = "tuple[ClusterState, Commands]"
RoleEvent: TypeAlias = ServerReady | WorkerReady | ServerLost | WorkerLost


class ImpossibleEvent(RuntimeError):
    """An event that cannot have happened. The message ends with the events that led here."""


class BrokenInvariant(RuntimeError):
    """A state that must never be reached. The message ends with the events that led here."""


class TrainingPhase(StrEnum):
    """The phase of the whole job."""

    STARTING = "starting"  # the partitions are being made, at clock 0 or from a checkpoint
    TRAINING = "training"
    SAVING = "saving"  # all clocks are done; the reliable machines write the model
    FINISHED = "finished"
    FAILED = "failed"  # state that existed nowhere else is gone

    @property
    def is_over(self) -> bool:
        return self in (TrainingPhase.FINISHED, TrainingPhase.FAILED)


PHASE_EDGES: Final[Mapping[tuple[TrainingPhase, TrainingPhase], str]] = {
    (TrainingPhase.STARTING, TrainingPhase.TRAINING): "every partition was made and is served",
    (TrainingPhase.TRAINING, TrainingPhase.SAVING): "the last clock is completed and backed up",
    (TrainingPhase.SAVING, TrainingPhase.FINISHED): "every reliable machine wrote its part",
    (
        TrainingPhase.TRAINING,
        TrainingPhase.STARTING,
    ): "the last copy of a partition is gone, and the newest checkpoint has it",
    (
        TrainingPhase.SAVING,
        TrainingPhase.STARTING,
    ): "a copy is gone before it was written, and the newest checkpoint has it",
    (
        TrainingPhase.STARTING,
        TrainingPhase.FAILED,
    ): "the checkpoint cannot be read, the last reliable machine is gone, or processes die over and over",
    (
        TrainingPhase.TRAINING,
        TrainingPhase.FAILED,
    ): "no copy of a partition is left, no reliable machine, or processes die over and over",
    (
        TrainingPhase.SAVING,
        TrainingPhase.FAILED,
    ): "a copy is gone before it was written, or processes die over and over",
}


class NewestCheckpoint(Struct, frozen=True):
    """The newest complete checkpoint: its clock and folder. Without a folder: initial values, at clock 0."""

    clock: int
    folder: str


class CheckpointAttempt(Struct, frozen=True):
    """A checkpoint that is being written. ``writing``: the machines whose part is not there yet. When it is
    empty, ``sealer`` writes the manifest.
    """

    number: int
    clock: int
    folder: str
    writing: frozenset[str]
    sealer: str | None = None


class Checkpoints(Struct, frozen=True):
    """What is kept against the loss of reliable machines, and what is being written."""

    newest: NewestCheckpoint = NewestCheckpoint(0, "")
    attempt: CheckpointAttempt | None = None
    attempts: int = 0
    attempted_clock: int = 0
    """The clock of the last attempt."""
    due: bool = False
    """The next attempt begins as soon as it can, whatever its clock."""


class ClusterState(Struct, frozen=True):
    """Holds all that the controller knows; each event makes a new one.

    Partitions and shards stand at their numbers. Clocks count from 1, and 0 is the start. ``consistent`` is
    B, the clock that all can return to. ``generation`` grows with every roll-back, ``epoch`` with every
    change of who serves what, ``version`` with every order to a worker.
    """

    setup: Setup
    barrier: Barrier
    partitions: tuple[Partition, ...]
    shards: tuple[Shard, ...]
    until: int
    """The last clock. A stop brings it nearer."""
    phase: TrainingPhase = TrainingPhase.STARTING
    machines: Mapping[str, MachineRecord] = field(default_factory=dict)
    """Machines by name, in the order in which they joined."""
    stage: Stage = Stage.ONE
    requested_stage: Stage | None = None
    """The stage that whoever runs the machines decided on. None leaves it to costs or thresholds."""
    loads: LoadReports = field(default_factory=LoadReports)
    """What servers and workers reported that a clock costs, for automatic stages."""
    reached_stage: Stage | None = None
    """The stage whose layout was last completely in place."""
    input_may_move: bool = True
    """Input may change hands: a clock has ended, or training was sent back, and no orders came of it yet."""
    has_news: bool = False
    """Something other than clocks has happened since input could last change hands."""
    preloads: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The shards that each worker should load ahead, as of the last plan or the last arrival since."""
    orders_given: bool = True
    """The machines that became members last have their orders, and so has everybody else."""
    generation: int = 0
    epoch: int = 0
    version: int = 0
    consistent: int = 0
    progress: tuple[int, int] = (0, 0)
    """The clocks last reported upwards: completed, consistent."""
    saving: frozenset[str] = frozenset()
    """Machines whose part of the model is not written yet."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    unannounced_roles: tuple[RoleEvent, ...] = ()
    """Roles that reported before their machine was announced: the two come over different channels."""
    departed: frozenset[str] = frozenset()
    furthest_clock: int = 0
    """The highest clock that was ever completed."""
    deaths: int = 0
    """How many servers and workers died, while their machine lived on, since ``furthest_clock`` last grew."""
    story: tuple[Event, ...] = ()
    """The latest events, for error messages."""

    @classmethod
    def from_setup(cls, setup: Setup, barrier: Barrier) -> Self:
        """Returns a job without machines. Raises ValueError where the setup describes no job."""
        setup.require_valid()
        start = setup.start
        return cls(
            setup,
            barrier,
            partitions=tuple(Partition.absent_at(number, start) for number in range(setup.partitions)),
            shards=(Shard(),) * setup.shards,
            until=setup.clocks,
            consistent=start,
            progress=(start, start),
            checkpoints=Checkpoints(NewestCheckpoint(start, setup.resume), attempted_clock=start),
            furthest_clock=start,
        )

    # ---- questions -----------------------------------------------------------------------------

    @property
    def completed_clock(self) -> int:
        """The highest clock that every partition has completed."""
        return min(partition.completed for partition in self.partitions)

    @property
    def has_begun(self) -> bool:
        """Whether any clock may have been worked on."""
        return self.phase is not TrainingPhase.STARTING or self.generation > 0

    @property
    def all_served(self) -> bool:
        """Whether no partition is missing or on its way."""
        return all(partition.status is PartitionStatus.SERVED for partition in self.partitions)

    def live_server(self, name: str | None) -> ServerRecord | None:
        """Returns the live server of a machine; None when the machine or its server is gone."""
        machine = self.machines.get(name) if name is not None else None
        return machine.server if machine else None

    def server_endpoint(self, name: str) -> str:
        server = self.live_server(name)
        if server is None:
            raise self.broken_invariant(f"{name} has no server to speak of")
        return server.endpoint

    def assignable_servers(self, tier: Tier) -> tuple[str, ...]:
        """Returns the machines of a tier that may be given partitions, the longest-running first."""
        return tuple(
            machine.name
            for machine in self.machines.values()
            if machine.tier is tier and machine.server and machine.member and not machine.leaving
        )

    def computing_machines(self) -> tuple[MachineRecord, ...]:
        """Returns the machines that the stage lets compute or, if none of them can, all that can."""
        able = tuple(machine for machine in self.machines.values() if machine.can_compute)
        meant = tuple(machine for machine in able if machine.tier in PLACEMENTS[self.stage].computing)
        return meant or able

    def count_participants(self, tier: Tier) -> int:
        """Counts the machines of a tier that count for the stage."""
        members = (machine for machine in self.machines.values() if machine.tier is tier)
        return sum(machine.proven and machine.member and not machine.leaving for machine in members)

    def draining_owners(self) -> frozenset[str]:
        """Returns the owners of input that are leaving and have not pushed their last deltas."""
        owners = {shard.owner for shard in self.shards if shard.owner is not None}
        return frozenset(name for name in owners if name in self.machines and self.machines[name].is_draining)

    def holds_shards(self, name: str) -> bool:
        return any(shard.owner == name for shard in self.shards)

    def holds_state(self, name: str) -> bool:
        return any(name in partition.copy_holders for partition in self.partitions)

    def is_reliable(self, name: str | None) -> bool:
        """Whether ``name`` is a live machine of the reliable tier. None and lost machines are not."""
        machine = self.machines.get(name) if name is not None else None
        return machine is not None and machine.tier is Tier.RELIABLE

    def make_peer(self, name: str) -> Peer:
        return Peer(name, self.server_endpoint(name))

    # ---- changes -------------------------------------------------------------------------------

    def with_checkpoints(self, **changed: Any) -> ClusterState:
        """Returns the state with these fields of ``checkpoints`` changed."""
        return replace(self, checkpoints=replace(self.checkpoints, **changed))

    def with_machine(self, machine: MachineRecord) -> ClusterState:
        # A machine that is replaced keeps its place in the order of joining.
        return replace(self, machines={**self.machines, machine.name: machine})

    def without_machine(self, name: str) -> ClusterState:
        remaining = {key: machine for key, machine in self.machines.items() if key != name}
        return replace(self, machines=remaining, departed=self.departed | {name})

    def with_partitions(self, changed: Iterable[Partition]) -> ClusterState:
        """Replaces partitions by number. Raises BrokenInvariant where no edge leads from old to new."""
        new = {partition.number: partition for partition in changed}
        for number, after in new.items():
            before = self.partitions[number]
            if before.status is not after.status and (before.status, after.status) not in EDGES:
                raise self.broken_invariant(f"no edge leads from {before} to {after}")
        return replace(self, partitions=tuple(new.get(old.number, old) for old in self.partitions))

    # ---- errors --------------------------------------------------------------------------------

    def broken_invariant(self, what: str) -> BrokenInvariant:
        return BrokenInvariant(self.with_story(what))

    def with_story(self, what: str) -> str:
        """Returns ``what``, followed by the story so far."""
        lines = "\n  ".join(map(str, self.story))
        return f"{what}\nin {self.phase}, generation {self.generation}, epoch {self.epoch}, after\n  {lines}"
