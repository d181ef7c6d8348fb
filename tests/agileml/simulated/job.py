"""A controller under test with a data plane that does what it is told, when the test lets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from agileml.controller.cluster import ClusterState
from agileml.controller.invariants import check_invariants
from agileml.controller.state_machine import step
from agileml.node.tier import Tier
from agileml.protocol.commands import (
    Assign,
    BackUp,
    Command,
    Create,
    Handover,
    Restore,
    SaveModel,
    SealCheckpoint,
    WriteCheckpoint,
)
from agileml.protocol.events import (
    BackedUp,
    CheckpointSealed,
    CheckpointWritten,
    ClockCompleted,
    Drained,
    Event,
    EvictionWarned,
    Installed,
    Loaded,
    MachineJoined,
    ModelSaved,
    ServerReady,
    Setup,
    WorkerReady,
)
from agileml.sync.bounded_staleness import make_barrier

C = TypeVar("C")
RELIABLE, TRANSIENT = Tier.RELIABLE, Tier.TRANSIENT


def only(kind: type[C], commands: Sequence[Command]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


class Job:
    """``answers`` are the words under way to the controller."""

    def __init__(
        self, partitions: int = 4, shards: int = 8, clocks: int = 20, **settings: float | str
    ) -> None:
        setup = Setup(partitions, shards, clocks, **settings)  # type: ignore[arg-type]
        self.cluster = ClusterState.from_setup(setup, make_barrier(setup))
        self.answers: list[Event] = []

    def tell(self, *events: Event) -> list[Command]:
        """One after the other."""
        return [command for event in events for command in self.tell_together(event)]

    def tell_together(self, *events: Event) -> list[Command]:
        """Tells events that are heard of at once."""
        self.cluster, commands = step(self.cluster, events)
        check_invariants(self.cluster)
        self.answers += [word for command in commands if (word := self._answer(command)) is not None]
        return list(commands)

    def settle(self) -> list[Command]:
        """Let everything under way arrive, and what follows from it."""
        commands: list[Command] = []
        while self.answers:
            commands += self.tell(self.answers.pop(0))
        return commands

    def up(self, *names: str, cores: int = 2) -> list[Command]:
        """Machines join and arrive; those named r... are reliable."""
        commands: list[Command] = []
        for name in names:
            tier = RELIABLE if name.startswith("r") else TRANSIENT
            commands += self.tell(
                MachineJoined(name, tier, cores), ServerReady(name, 1, f"at {name}"), WorkerReady(name, 1)
            )
            commands += self.settle()
        return commands

    def complete(self, clock: int, *, back_up: bool = True) -> list[Command]:
        """Every serving server completes ``clock``; the backups get it, or not yet."""
        commands: list[Command] = []
        generation = self.cluster.generation
        for partition in self.cluster.partitions:
            commands += self.tell(ClockCompleted(partition.owner or "", partition.number, generation, clock))
            if back_up and partition.backup is not None:
                commands += self.tell(BackedUp(partition.backup, partition.number, generation, clock))
        return commands

    def next_clock(self) -> list[Command]:
        """The clock in hand ends: whoever has come and loaded its input becomes a member."""
        commands = self.complete(self.cluster.completed_clock + 1)
        return commands + self.settle()

    def load(self) -> list[Command]:
        """Let only the input arrive that workers load."""
        loaded = [word for word in self.answers if isinstance(word, Loaded)]
        self.answers = [word for word in self.answers if not isinstance(word, Loaded)]
        return self.tell(*loaded)

    @property
    def owners(self) -> list[str | None]:
        return [partition.owner for partition in self.cluster.partitions]

    def shards(self, machine: str) -> int:
        return sum(shard.owner == machine for shard in self.cluster.shards)

    def _answer(self, command: Command) -> Event | None:
        match command:
            case Create(machine, partition, epoch, clock=clock):
                return Installed(machine, partition, epoch, clock)
            case BackUp(partition=partition, target=target, epoch=epoch):
                return Installed(
                    target.machine, partition, epoch, self.cluster.partitions[partition].completed
                )
            case WriteCheckpoint(machine, attempt):
                return CheckpointWritten(machine, attempt)
            case SealCheckpoint(machine, attempt):
                return CheckpointSealed(machine, attempt)
            case Handover(partition=partition, target=target, epoch=epoch):
                return Installed(target, partition, epoch, self.cluster.partitions[partition].completed)
            case Restore(partition=partition, target=target, epoch=epoch, clock=clock):
                return Installed(target, partition, epoch, clock)
            case Assign(machine=machine, drain=True):
                worker = self.cluster.machines[machine].worker
                generation = self.cluster.generation
                return None if worker is None else Drained(machine, worker.incarnation, generation, ())
            case Assign(machine=machine, shards=shards, preload=preload):
                worker = self.cluster.machines[machine].worker
                if worker is None or worker.loaded >= {*shards, *preload}:
                    return None
                loaded = worker.loaded.union(shards, preload)
                return Loaded(machine, worker.incarnation, tuple(sorted(loaded)))
            case SaveModel(machine, generation):
                return ModelSaved(machine, generation, "model")
        return None


def two_actives() -> Job:
    """Stage 2, clock 3 completed and clock 2 backed up."""
    job = Job()
    job.up("r0", "t1", "t2", "t3")
    job.complete(1)
    job.complete(2)
    job.complete(3, back_up=False)
    return job


def one_on_its_way() -> tuple[Job, Handover]:
    """Stage 2: the only partition is on its way from t1, which leaves, to t2; t3 and t4 are there as well."""
    job = Job(partitions=1)
    job.up("r0", "t1", "t2", "t3", "t4")
    job.complete(1, back_up=False)
    (handover,) = only(Handover, job.tell(EvictionWarned(("t1",), 120.0)))
    assert (handover.machine, handover.target) == ("t1", "t2")
    job.answers.clear()
    return job, handover
