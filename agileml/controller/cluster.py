"""Holds all that the elasticity controller knows, as one frozen value.

Every decision follows from this value, and the value follows from the events. So a restarted controller folds
its journal and continues. This module has the facts and the questions that other modules ask of them;
``invariants`` says what must hold. ``placement``, ``recovery``, ``checkpoints`` and ``announcements`` decide.

Symbols: B is ``consistent``, the clock that every backup holds; N is ``len(partitions)``; S is
``len(shards)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from agileml.controller.machines import MachineRecord, MachineRoster
from agileml.controller.placement.load_model import LoadReports
from agileml.controller.placement.ownership import EDGES, Partition, PartitionStatus, Shard
from agileml.controller.stages import PLACEMENTS
from agileml.protocol.commands import Command
from agileml.protocol.events import Event, Peer, Setup, Stage
from agileml.sync.base import Barrier

Commands: TypeAlias = tuple[Command, ...]
Result: TypeAlias = "tuple[ClusterState, Commands]"


class ImpossibleEvent(RuntimeError):
    """Raised for an event that cannot have happened. The message ends with the events that led here."""


class BrokenInvariant(RuntimeError):
    """Raised for a state that must never be reached. The message ends with the events that led here."""


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
    """The newest complete checkpoint: its clock and folder. An empty folder means initial values, clock 0."""

    clock: int
    folder: str


class CheckpointAttempt(Struct, frozen=True):
    """A checkpoint that is being written.

    ``writing``: the machines that have not reported their part. Once it is empty, ``sealer`` writes the
    manifest.
    """

    number: int
    clock: int
    folder: str
    writing: frozenset[str]
    sealer: str | None = None


class Checkpoints(Struct, frozen=True):
    """The checkpoints that insure the job against the loss of reliable machines."""

    newest: NewestCheckpoint = NewestCheckpoint(0, "")
    attempt: CheckpointAttempt | None = None
    attempts: int = 0
    attempted_clock: int = 0
    """The clock of the last attempt."""
    due: bool = False
    """The next attempt begins as soon as it can, whatever its clock."""


class StageRecord(Struct, frozen=True):
    """The present stage, and what decides the next one."""

    current: Stage = Stage.ONE
    requested: Stage | None = None
    """The stage that the client requested. None leaves the choice to measured costs or thresholds."""
    reached: Stage | None = None
    """The stage whose layout was last completely in place."""
    loads: LoadReports = field(default_factory=LoadReports)
    """The load that servers and workers reported, for automatic stages."""


class InputPlan(Struct, frozen=True):
    """Records whether input may change hands, and how far the last plan for it is carried out."""

    may_move: bool = True
    """A clock has ended, or training was rolled back, and no orders have followed yet."""
    has_news: bool = False
    """Something other than clocks has happened since input could last change hands."""
    preloads: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The shards that each worker should load ahead, as of the last plan or the last arrival since."""
    orders_given: bool = True
    """Every worker has its orders since the last machines became members."""
    version: int = 0
    """The version of the last orders. It grows with every order to a worker."""


class Progress(Struct, frozen=True):
    """Records how far training has come, and how often processes died on the way."""

    reported: tuple[int, int] = (0, 0)
    """The clocks last reported to the client: completed, consistent."""
    furthest_clock: int = 0
    """The highest clock that was ever completed."""
    deaths: int = 0
    """How many servers and workers died on living machines since ``furthest_clock`` last grew."""


class ClusterState(Struct, frozen=True):
    """Holds all that the controller knows; each event makes a new one.

    Partitions and shards are indexed by their numbers. Clocks count from 1, and 0 is the start.
    ``generation`` grows with every roll-back, ``epoch`` with every change of a partition's owner or backup.
    """

    setup: Setup
    barrier: Barrier
    partitions: tuple[Partition, ...]
    shards: tuple[Shard, ...]
    until: int
    """The last clock. A requested stop brings it nearer."""
    phase: TrainingPhase = TrainingPhase.STARTING
    roster: MachineRoster = field(default_factory=MachineRoster)
    stages: StageRecord = field(default_factory=StageRecord)
    plan: InputPlan = field(default_factory=InputPlan)
    generation: int = 0
    epoch: int = 0
    consistent: int = 0
    """B, the clock that all partitions can return to."""
    progress: Progress = field(default_factory=Progress)
    saving: frozenset[str] = frozenset()
    """Machines that have not written their part of the model yet."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
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
            progress=Progress((start, start), furthest_clock=start),
            checkpoints=Checkpoints(NewestCheckpoint(start, setup.resume), attempted_clock=start),
        )

    # ---- questions -----------------------------------------------------------------------------

    @property
    def machines(self) -> Mapping[str, MachineRecord]:
        """The machines of the job by name, in the order in which they joined."""
        return self.roster.machines

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

    def make_peer(self, name: str) -> Peer:
        """Returns the address of a machine's server. Raises BrokenInvariant where it has none."""
        server = self.roster.live_server(name)
        if server is None:
            raise self.broken_invariant(f"machine {name} has no live server")
        return Peer(name, server.endpoint)

    def computing_machines(self) -> tuple[MachineRecord, ...]:
        """Returns the machines that the stage lets compute or, if none of them can, all that can."""
        able = tuple(machine for machine in self.machines.values() if machine.can_compute)
        meant = tuple(
            machine for machine in able if machine.tier in PLACEMENTS[self.stages.current].computing
        )
        return meant or able

    def draining_owners(self) -> frozenset[str]:
        """Returns the owners of input that are leaving and have not pushed their last deltas."""
        owners = {shard.owner for shard in self.shards if shard.owner is not None}
        return frozenset(name for name in owners if name in self.machines and self.machines[name].is_draining)

    def holds_shards(self, name: str) -> bool:
        return any(shard.owner == name for shard in self.shards)

    def holds_state(self, name: str) -> bool:
        return any(name in partition.copy_holders for partition in self.partitions)

    # ---- changes -------------------------------------------------------------------------------

    def with_checkpoints(self, **changed: Any) -> ClusterState:
        """Returns the state with these fields of ``checkpoints`` changed."""
        return replace(self, checkpoints=replace(self.checkpoints, **changed))

    def with_machine(self, machine: MachineRecord) -> ClusterState:
        return replace(self, roster=self.roster.with_machines([machine]))

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
        """Returns ``what``, followed by the latest events, one a line."""
        lines = "\n  ".join(map(str, self.story))
        return f"{what}\nin {self.phase}, generation {self.generation}, epoch {self.epoch}, after\n  {lines}"
