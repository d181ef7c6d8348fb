"""A wire in memory between real server and worker cores, delivering in order; and a toy application."""

from __future__ import annotations

from collections import deque

import numpy as np

from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.commands import Assign, Route
from agileml.protocol.events import ClockCompleted, Event, Setup
from agileml.protocol.messages import Notice, Outgoing, Patch, Peer, Push, Reply, Save, Send, Snapshot
from agileml.server.server import Server, ServerCommand
from agileml.sync.base import Barrier
from agileml.sync.bounded_staleness import make_barrier
from agileml.worker.worker import ShardWork, Worker

SHAPE = Shape(rows=11, columns=2)


def peer(machine: str) -> Peer:
    return Peer(machine, f"mem://{machine}")


def initial(rows: Rows) -> Matrix:
    """Start values that differ by row."""
    return np.stack([rows, -rows], axis=1).astype(np.float32)


def shard_rows(shard: int) -> Rows:
    """A shard reads its own row and two that others share."""
    return np.unique(np.array([shard % SHAPE.rows, 9, 10], np.int64))


def toy_delta(shard: int, clock: int, values: Matrix) -> Patch:
    """Depends on what was read, so that a wrong version shows; rounding shows a wrong order of sums."""
    rows = shard_rows(shard)
    delta = (np.sin(values) * np.float32(0.1) + np.float32(shard + clock) / 7).astype(np.float32)
    return Patch(rows, delta)


def serial(setup: Setup, clocks: int) -> Matrix:
    """The same computation without any machinery, for staleness 0."""
    model = initial(np.arange(SHAPE.rows))
    for clock in range(1, clocks + 1):
        deltas = [toy_delta(shard, clock, model[shard_rows(shard)]) for shard in range(setup.shards)]
        total = np.zeros_like(model)
        for delta in deltas:
            total[delta.rows] += delta.values
        model = model + total
    return model


class Fabric:
    """Servers and workers joined in memory. Events are collected; nothing decides anything here.

    ``slow_backups``: ranges for them stay in ``late`` until ``catch_up``. ``loses``: kinds of messages that
    go astray between two that live on.
    """

    def __init__(self, setup: Setup, machines: tuple[str, ...], barrier: Barrier | None = None) -> None:
        self.setup = setup
        self.barrier = barrier or make_barrier(setup)
        self.servers = {name: Server(peer(name), setup, self.barrier, SHAPE, initial) for name in machines}
        self.workers: dict[str, Worker] = {}
        self.events: list[Event] = []
        self.saved: dict[int, Matrix] = {}
        self.snapshots: dict[int, Snapshot] = {}
        self._wire: deque[tuple[str, Send | Reply]] = deque()
        self.slow_backups = False
        self.late: list[tuple[str, Send | Reply]] = []
        self.loses: tuple[type, ...] = ()
        self.sent: list[object] = []

    def add_worker(self, machine: str) -> Worker:
        worker = Worker(machine, 1, self.setup.partitions, SHAPE.columns, shard_rows, self.barrier)
        self.workers[machine] = worker
        return worker

    def command(self, command: ServerCommand) -> None:
        self.take(command.machine, self.servers[command.machine].handle_command(command))

    def assign(self, assign: Assign) -> None:
        self.take(assign.machine, self.workers[assign.machine].take_assignment(assign))

    def take(self, origin: str, outgoing: tuple[Outgoing, ...]) -> None:
        for item in outgoing:
            if isinstance(item, Send):
                self.sent.append(item.message)
            if isinstance(item, Send | Reply) and isinstance(item.message, self.loses):
                continue
            if self.slow_backups and isinstance(item, Send) and isinstance(item.message, Push):
                self.late.append((origin, item))
            elif isinstance(item, Send | Reply):
                self._wire.append((origin, item))
            elif isinstance(item, Save):
                self.saved |= {partition: values.copy() for partition, values in item.partitions}
            elif isinstance(item, Snapshot):
                self.snapshots[item.clock] = item
            else:
                self.events.append(item)

    def deliver(self) -> None:
        """Until the wire is empty."""
        while self._wire:
            origin, item = self._wire.popleft()
            if isinstance(item, Send):
                server = self.servers.get(item.peer.machine)
                if server is not None:
                    self.take(item.peer.machine, server.handle_message(origin, item.message))
            elif isinstance(item.message, Notice):
                if item.to in self.servers:
                    self.take(item.to, self.servers[item.to].handle_message(origin, item.message))
            elif item.to in self.workers:
                self.take(item.to, self.workers[item.to].handle_answer(item.message))

    def look_back(self) -> None:
        """So much time passes for everybody that whatever had no answer is asked after."""
        for _ in range(2):
            for cores in (self.servers, self.workers):
                for name, core in cores.items():
                    self.take(name, core.retry_unanswered())
            self.deliver()

    def catch_up(self) -> None:
        """The backups are as fast as the others from now on."""
        self.slow_backups = False
        self._wire.extend(self.late)
        self.late = []
        self.deliver()

    def compute_one(self, machine: str) -> bool:
        """One shard of the worker's clock; False when there is nothing to compute."""
        pieces = self.workers[machine].take_work()
        for work in pieces[:1]:
            self.compute(machine, work)
        return bool(pieces)

    def compute(self, machine: str, work: ShardWork) -> None:
        delta = toy_delta(work.shard, work.clock, work.values)
        self.take(machine, self.workers[machine].take_result(work, delta))
        self.deliver()

    def run(self) -> None:
        """Until nobody can go on."""
        self.deliver()
        while sum(self.compute_one(machine) for machine in self.workers):
            self.deliver()

    def completed(self, partition: int) -> list[int]:
        done = [event for event in self.events if isinstance(event, ClockCompleted)]
        return [event.clock for event in done if event.partition == partition]

    def model(self) -> Matrix:
        """Returns the saved model, put together. All of it must be saved: fresh memory may hold an earlier
        model.
        """
        assert self.saved.keys() == set(range(self.setup.partitions))
        model = np.empty((SHAPE.rows, SHAPE.columns), np.float32)
        for partition, values in self.saved.items():
            model[partition :: self.setup.partitions] = values
        return model


def assignment(
    fabric: Fabric,
    machine: str,
    shards: tuple[int, ...],
    owners: tuple[str, ...],
    *,
    epochs: tuple[int, ...] = (1, 1),
    version: int = 1,
    generation: int = 0,
    clock: int = 1,
    drain: bool = False,
) -> Assign:
    routes = tuple(
        Route(p, owner, peer(owner).endpoint, epoch)
        for p, (owner, epoch) in enumerate(zip(owners, epochs, strict=True))
    )
    until, notice = fabric.setup.clocks, 30.0 if drain else 0.0
    return Assign(machine, generation, version, routes, shards, clock, until, drain, notice)
