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
from enum import StrEnum
from typing import Final, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from agileml.controller.machines import Machine, Server
from agileml.controller.placement.load_model import Loads
from agileml.controller.placement.ownership import EDGES, ON_ITS_WAY, Partition, Shard, Standing
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

Commands: TypeAlias = tuple[Command, ...]
Result: TypeAlias = "tuple[Cluster, Commands]"
RoleEvent: TypeAlias = ServerReady | WorkerReady | ServerLost | WorkerLost


class InvalidTransition(RuntimeError):
    """An event that cannot have happened; the message ends with the events that led here."""


class BrokenInvariant(RuntimeError):
    """A state that must never be reached; the message ends with the events that led here."""


class Phase(StrEnum):
    """Of the whole job."""

    STARTING = "starting"  # the partitions are being made, at clock 0 or from a checkpoint
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
    (
        Phase.TRAINING,
        Phase.STARTING,
    ): "the last copy of a partition is gone, and the newest checkpoint has it",
    (Phase.SAVING, Phase.STARTING): "a copy is gone before it was written, and the newest checkpoint has it",
    (
        Phase.STARTING,
        Phase.FAILED,
    ): "the checkpoint cannot be read, the last reliable machine is gone, or processes die over and over",
    (
        Phase.TRAINING,
        Phase.FAILED,
    ): "no copy of a partition is left, no reliable machine, or processes die over and over",
    (Phase.SAVING, Phase.FAILED): "a copy is gone before it was written, or processes die over and over",
}

INVARIANTS: Final[Mapping[int, str]] = {
    1: "while training, every partition has exactly one owner per epoch, and it lives",
    2: "whatever a transient machine serves has its backup on a live reliable machine, or a copy under way",
    3: "while training, every shard was given to exactly one live worker, if there is one",
    4: "B never moves backwards, but to the newest checkpoint when a partition has no copy left",
    5: "nothing completed up to B can be lost: every partition is safe at B or later",
    6: "once events stop, partitions arrive, leaving machines become safe to kill, and clocks complete",
}
"""``state_machine.step`` checks 4, which compares two states; tests check 6, which is about the future."""


class Stored(Struct, frozen=True):
    """The newest whole checkpoint: its clock and folder. Without a folder: initial values, at clock 0."""

    clock: int
    folder: str


class Attempt(Struct, frozen=True):
    """A checkpoint that is being written. ``writing``: whose part is not there yet; then it is sealed."""

    number: int
    clock: int
    folder: str
    writing: frozenset[str]
    sealer: str | None = None


class Cluster(Struct, frozen=True):
    """All that the controller knows; each event makes a new one.

    Partitions and shards stand at their numbers.
    Clocks count from 1, and 0 is the start. ``consistent`` is B, the clock that all can return to.
    ``generation`` grows with every roll-back, ``epoch`` with every change of who serves what, ``version``
    with every order to a worker.
    """

    setup: Setup
    partitions: tuple[Partition, ...]
    shards: tuple[Shard, ...]
    until: int
    """The last clock; a stop brings it nearer."""
    phase: Phase = Phase.STARTING
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """In the order in which they joined."""
    stage: Stage = Stage.ONE
    wanted: Stage | None = None
    """The stage that whoever runs the machines decided on; None leaves it to the thresholds."""
    loads: Loads = field(default_factory=Loads)
    """What a clock costs, for automatic stages."""
    reached: Stage | None = None
    """The stage whose layout was last completely in place."""
    turn: bool = True
    """A clock has ended, or training was sent back, and no orders came of it: input may change hands."""
    news: bool = False
    """Something other than clocks has happened since input could change hands last."""
    ahead: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """What each worker should load ahead, as of the last plan or of whoever came since."""
    planned: bool = True
    """Those who were made members last have their orders, as has everybody else."""
    generation: int = 0
    epoch: int = 0
    version: int = 0
    consistent: int = 0
    progress: tuple[int, int] = (0, 0)
    """The clocks last reported upwards: completed, consistent."""
    saving: frozenset[str] = frozenset()
    """Whose part of the model is not written yet."""
    stored: Stored = Stored(0, "")
    attempt: Attempt | None = None
    attempts: int = 0
    attempted: int = 0
    """The clock of the last attempt."""
    checkpoint_due: bool = False
    strangers: tuple[RoleEvent, ...] = ()
    """Roles that reported before their machine was announced: the two come by different channels."""
    departed: frozenset[str] = frozenset()
    furthest: int = 0
    """The highest clock that was ever completed."""
    deaths: int = 0
    """Of servers and workers whose machine lived on, since ``furthest`` grew."""
    story: tuple[Event, ...] = ()
    """The latest events, for error messages."""

    @classmethod
    def start(cls, setup: Setup) -> Self:
        """A job without machines. Raises ValueError where the setup describes no job."""
        setup.check()
        start = setup.start
        return cls(
            setup,
            partitions=tuple(Partition.absent(number, start) for number in range(setup.partitions)),
            shards=(Shard(),) * setup.shards,
            until=setup.clocks,
            consistent=start,
            progress=(start, start),
            stored=Stored(start, setup.resume),
            attempted=start,
            furthest=start,
        )

    # ---- questions -----------------------------------------------------------------------------

    @property
    def completed(self) -> int:
        """The highest clock that every partition has completed."""
        return min(partition.completed for partition in self.partitions)

    @property
    def begun(self) -> bool:
        """Whether any clock may have been worked on."""
        return self.phase is not Phase.STARTING or self.generation > 0

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
            if machine.tier is tier and machine.server and machine.member and not machine.leaving
        )

    def workers(self) -> tuple[Machine, ...]:
        """Machines that the stage lets compute, and if none of them can, all that can."""
        able = tuple(machine for machine in self.machines.values() if machine.can_compute)
        meant = tuple(machine for machine in able if machine.tier in PLACEMENTS[self.stage].computing)
        return meant or able

    def taking_part(self, tier: Tier) -> int:
        """How many machines of a tier count for the stage."""
        members = (machine for machine in self.machines.values() if machine.tier is tier)
        return sum(machine.proven and machine.member and not machine.leaving for machine in members)

    def draining(self) -> frozenset[str]:
        """Owners of input that leave, and have not pushed their last deltas."""
        owners = {shard.owner for shard in self.shards if shard.owner is not None}
        return frozenset(name for name in owners if name in self.machines and self.machines[name].drains)

    def holds_shards(self, name: str) -> bool:
        return any(shard.owner == name for shard in self.shards)

    def holds_state(self, name: str) -> bool:
        return any(name in partition.holders for partition in self.partitions)

    def is_reliable(self, name: str | None) -> bool:
        """Whether it is a machine of the reliable tier; not so for nobody, or for one that is gone."""
        machine = self.machines.get(name) if name is not None else None
        return machine is not None and machine.tier is Tier.RELIABLE

    def peer(self, name: str) -> Peer:
        return Peer(name, self.endpoint(name))

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
            if self.consistent not in partition.safe or max(partition.safe) > partition.completed:
                raise self.violated(5, f"B is {self.consistent}, {partition}")
        if self.stored.clock > self.consistent:
            raise self.violated(5, f"B is {self.consistent}, {self.stored}")
        for machine in self.machines.values():
            if machine.safe and (self.holds_shards(machine.name) or self.holds_state(machine.name)):
                raise self.broken(f"{machine.name} was said to be safe to kill, and it is not")

    def _check_owner(self, partition: Partition) -> None:
        if partition.standing not in ON_ITS_WAY | {Standing.SERVED} or self.server(partition.owner) is None:
            raise self.violated(1, f"{partition}")
        if partition.standing is Standing.MOVING and self.server(partition.source) is None:
            raise self.violated(1, f"nobody sends {partition}")

    def _check_backup(self, partition: Partition) -> None:
        heir = partition.heir.machine if partition.heir else None
        for name in (partition.backup, heir):
            if name is not None and not (self.is_reliable(name) and self.server(name)):
                raise self.violated(2, f"{partition}")
        if self.is_reliable(partition.owner) or partition.backup or heir:
            return
        # There is nobody to send a copy to, or it is sent once it is served.
        if self.servers(Tier.RELIABLE) and partition.standing is Standing.SERVED:
            raise self.violated(2, f"{partition}")

    def _check_shards(self) -> None:
        """Orders wait for partitions on their way, and the input of the drained for the last who drains."""
        if not self.workers() or not self.settled:
            return
        draining = self.draining()
        for number, shard in enumerate(self.shards):
            if shard.owner is None and draining:
                continue
            machine = self.machines.get(shard.owner or "")
            worker = machine.worker if machine else None
            if (
                worker is None
                or worker.drained
                or worker.orders is None
                or number not in worker.orders.shards
            ):
                raise self.violated(3, f"shard {number}: {shard}")
