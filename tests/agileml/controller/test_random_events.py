"""The controller alone against anything that may happen, with a data plane that answers late or never."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agileml.controller.cluster import TrainingPhase
from agileml.controller.machines import MachineRecord
from agileml.controller.placement.ownership import Partition, PartitionStatus
from agileml.protocol.events import (
    BackedUp,
    ClockCompleted,
    EvictionWarned,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ServerLost,
    ServerReady,
    StopRequested,
    WorkerLost,
    WorkerReady,
)
from tests.agileml.simulated.job import RELIABLE, TRANSIENT, Job


class Anything(RuleBasedStateMachine):
    """``Job.tell`` checks the invariants after every event."""

    def __init__(self) -> None:
        super().__init__()
        self.job = Job(partitions=3, shards=5, clocks=9, stage3_above=2.0)
        self.names = 0
        self.highest = 0

    @initialize()
    def starts_on_a_reliable_machine(self) -> None:
        self.job.up("r0")

    def pick(self, data: st.DataObject, machines: list[MachineRecord]) -> MachineRecord:
        return data.draw(st.sampled_from(machines))

    @property
    def transient(self) -> list[MachineRecord]:
        return [machine for machine in self.job.cluster.machines.values() if machine.tier is TRANSIENT]

    @rule(cores=st.sampled_from([1, 2, 8]), reliable=st.integers(0, 4).map(lambda roll: roll == 0))
    def join(self, cores: int, reliable: bool) -> None:
        self.names += 1
        name = f"m{self.names}"
        self.job.tell(
            MachineJoined(name, RELIABLE if reliable else TRANSIENT, cores),
            ServerReady(name, 1, f"at {name}"),
            WorkerReady(name, 1),
        )

    @precondition(lambda self: self.job.answers)
    @rule(data=st.data())
    def something_under_way_arrives(self, data: st.DataObject) -> None:
        """In any order, and late words of machines that are gone as well."""
        self.job.tell(self.job.answers.pop(data.draw(st.integers(0, len(self.job.answers) - 1))))

    @precondition(lambda self: self.transient)
    @rule(data=st.data())
    def warn(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.sampled_from([machine.name for machine in self.transient]), min_size=1))
        self.job.tell(EvictionWarned(tuple(sorted(chosen)), 120.0))

    @precondition(lambda self: self.transient)
    @rule(data=st.data())
    def a_transient_machine_goes(self, data: st.DataObject) -> None:
        machine = self.pick(data, self.transient)
        gone = MachineReleased if machine.safe else MachineLost
        self.job.tell(gone(machine.name))

    @precondition(lambda self: self.transient)
    @rule(data=st.data(), noticed=st.booleans())
    def a_server_restarts(self, data: st.DataObject, noticed: bool) -> None:
        machine = self.pick(data, self.transient)
        incarnation = machine.dead_server + 1 if machine.server is None else machine.server.incarnation
        if noticed:
            self.job.tell(ServerLost(machine.name, incarnation))
        self.job.tell(ServerReady(machine.name, incarnation + 1, f"again at {machine.name}"))

    @rule(data=st.data(), noticed=st.booleans())
    def a_worker_restarts(self, data: st.DataObject, noticed: bool) -> None:
        machine = self.pick(data, list(self.job.cluster.machines.values()))
        incarnation = machine.dead_worker + 1 if machine.worker is None else machine.worker.incarnation
        if noticed:
            self.job.tell(WorkerLost(machine.name, incarnation))
        self.job.tell(WorkerReady(machine.name, incarnation + 1))

    @property
    def served(self) -> list[Partition]:
        training = self.job.cluster.phase is TrainingPhase.TRAINING
        return [p for p in self.job.cluster.partitions if training and p.status is PartitionStatus.SERVED]

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def a_partition_completes_a_clock(self, data: st.DataObject) -> None:
        cluster = self.job.cluster
        partition = data.draw(st.sampled_from(self.served))
        clock = min(partition.completed, cluster.completed_clock) + 1
        self.job.tell(ClockCompleted(partition.owner or "", partition.number, cluster.generation, clock))

    @precondition(lambda self: self.lagging)
    @rule(data=st.data())
    def a_backup_catches_up(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(self.lagging))
        generation = self.job.cluster.generation
        self.job.tell(BackedUp(partition.backup or "", partition.number, generation, max(partition.safe) + 1))

    @property
    def lagging(self) -> list[Partition]:
        return [p for p in self.job.cluster.partitions if p.backup is not None and max(p.safe) < p.completed]

    @precondition(lambda self: self.job.cluster.completed_clock > 4)
    @rule()
    def stop(self) -> None:
        self.job.tell(StopRequested())

    @invariant()
    def what_is_consistent_stays_so(self) -> None:
        assert self.job.cluster.consistent >= self.highest
        self.highest = self.job.cluster.consistent

    def teardown(self) -> None:
        """Once events stop, everything arrives where it should be, and every leaving machine may go."""
        self.job.settle()
        cluster = self.job.cluster
        assert cluster.phase is not TrainingPhase.FAILED
        if cluster.phase is TrainingPhase.TRAINING:
            assert cluster.all_served
            assert cluster.stages.reached is cluster.stages.current
        assert all(machine.safe for machine in cluster.machines.values() if machine.leaving)


Anything.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnything: Any = Anything.TestCase
