"""A seeded network of real cores: controller, servers and workers exchange messages that stay in memory.

Channels keep order per pair of processes; which channel delivers next is chance, and some channels are
much slower than others. A killed process takes with it what was sent to it and a random tail of what it
sent; the notice of its death comes by a channel of its own, so its last words may come later.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from agileml.cluster import Cluster, Commands
from agileml.events import (
    Assign,
    Event,
    Failed,
    Finished,
    Installed,
    JoinedTraining,
    MachineJoined,
    MachineReleased,
    ModelSaved,
    Progressed,
    RolledBack,
    SafeToKill,
    ServerReady,
    Setup,
    StageChanged,
    Tier,
    WorkerReady,
)
from agileml.messages import Matrix, Outgoing, Peer, Reply, Save, Send
from agileml.server import Server
from agileml.worker import Worker
from tests.agileml.toy import Toy

UPWARDS = (SafeToKill, JoinedTraining, StageChanged, RolledBack, Progressed, Finished, Failed)
CONTROLLER, OUTSIDE = "controller", "outside"
Step = Callable[[Cluster, Event], tuple[Cluster, Commands]]


@dataclass(slots=True)
class Host:
    """What really runs on a machine, whatever the controller believes."""

    name: str
    tier: Tier
    servers: int = 0
    workers: int = 0

    @property
    def server(self) -> str:
        """The process of the present incarnation; its name serves as its endpoint as well."""
        return f"{self.name}:server:{self.servers}"

    @property
    def worker(self) -> str:
        return f"{self.name}:worker:{self.workers}"


@dataclass(slots=True)
class Network:
    setup: Setup
    toy: Toy
    chance: random.Random
    step: Step
    cluster: Cluster = field(init=False)
    journal: list[Event] = field(default_factory=list)
    upwards: list[Any] = field(default_factory=list)
    hosts: dict[str, Host] = field(default_factory=dict)
    joined: int = 0
    servers: dict[str, Server] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    channels: dict[tuple[str, str], deque[Any]] = field(default_factory=dict)
    pace: dict[tuple[str, str], float] = field(default_factory=dict)
    installed: dict[tuple[int, int], str] = field(default_factory=dict)
    doomed: set[str] = field(default_factory=set)
    model: Matrix = field(init=False)
    actions: int = 0

    def __post_init__(self) -> None:
        self.cluster = Cluster.start(self.setup)
        self.model = np.full((self.toy.shape.rows, self.toy.shape.columns), np.nan, np.float32)

    # ---- machines ------------------------------------------------------------------------------

    def join(self, tier: Tier) -> None:
        name = f"{tier.value[0]}{self.joined}"
        self.joined += 1
        self.hosts[name] = host = Host(name, tier)
        self.send(OUTSIDE, CONTROLLER, MachineJoined(name, tier, self.chance.choice([1, 2, 4])))
        self.start_server(host)
        self.start_worker(host)

    def start_server(self, host: Host) -> None:
        host.servers += 1
        me = Peer(host.name, host.server)
        self.servers[host.server] = Server(me, self.setup, self.toy.shape, self.toy.initial)
        self.send(host.server, CONTROLLER, ServerReady(host.name, host.servers, host.server))

    def start_worker(self, host: Host) -> None:
        host.workers += 1
        columns, partitions = self.toy.shape.columns, self.setup.partitions
        self.workers[host.worker] = Worker(host.name, host.workers, partitions, columns, self.toy.rows)
        self.send(host.worker, CONTROLLER, WorkerReady(host.name, host.workers))

    def kill(self, process: str) -> None:
        """At once; a random tail of what it sent is lost with it."""
        self.servers.pop(process, None)
        self.workers.pop(process, None)
        for (source, target), queue in tuple(self.channels.items()):
            if process not in (source, target):
                continue
            for _ in range(len(queue) if target == process else self.chance.randint(0, len(queue))):
                queue.pop()
            if not queue:
                del self.channels[source, target]

    def kill_machine(self, name: str) -> None:
        host = self.hosts.pop(name)
        self.kill(host.server)
        self.kill(host.worker)
        self.doomed.discard(name)

    # ---- messages ------------------------------------------------------------------------------

    def send(self, source: str, target: str, message: object) -> None:
        self.channels.setdefault((source, target), deque()).append(message)
        self.pace.setdefault((source, target), self.chance.choice([0.05, 0.5, 1.0, 1.0, 4.0]))

    def act(self) -> bool:
        """Deliver one message or compute one shard, by chance; False when nothing is left to do."""
        deliveries = [(partial(self.deliver, *pair), self.pace[pair]) for pair in self.channels]
        computations = [
            (partial(self.compute, name), 1.0) for name, worker in self.workers.items() if worker.work()
        ]
        choices = deliveries + computations
        if not choices:
            return False
        actions, weights = zip(*choices, strict=True)
        self.chance.choices(actions, weights)[0]()
        self.actions += 1
        return True

    def compute(self, name: str) -> None:
        worker = self.workers[name]
        work = self.chance.choice(worker.work())
        delta = self.toy.delta(work.shard, work.clock, work.values)
        self.emit(name, worker.computed(work, delta))

    def deliver(self, source: str, target: str) -> None:
        queue = self.channels[source, target]
        message = queue.popleft()
        if not queue:
            del self.channels[source, target]
        if target == CONTROLLER:
            self.tell(message)
        elif target in self.servers:
            server = self.servers[target]
            done = server.command(message) if source == CONTROLLER else server.handle(source, message)
            self.emit(target, done)
        elif target in self.workers:
            worker = self.workers[target]
            done = worker.assign(message) if source == CONTROLLER else worker.handle(message)
            self.emit(target, done)

    def emit(self, source: str, outgoing: Sequence[Outgoing]) -> None:
        for item in outgoing:
            match item:
                case Send(peer, message):
                    self.send(source, peer.endpoint, message)
                case Reply(to, message):
                    self.send(source, to, message)
                case Save():
                    self.save(source, item)
                case _:
                    if isinstance(item, Installed):
                        first = self.installed.setdefault((item.partition, item.epoch), source)
                        assert first == source, f"{first} and {source} both own {item}"
                    self.send(source, CONTROLLER, item)

    def save(self, source: str, item: Save) -> None:
        for partition, values in item.partitions:
            self.model[partition :: self.setup.partitions] = values
        self.send(source, CONTROLLER, ModelSaved(source.split(":")[0], "model"))

    # ---- the controller ------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        self.journal.append(event)
        self.cluster, commands = self.step(self.cluster, event)
        self.cluster.check()
        for command in commands:
            if isinstance(command, UPWARDS):
                self.upwards.append(command)
                if isinstance(command, SafeToKill):
                    self.doomed.add(command.machine)
                continue
            machine = self.cluster.machines[command.machine]
            role = machine.worker if isinstance(command, Assign) else machine.server
            assert role is not None, f"{command} to a role that is gone"
            kind = "worker" if isinstance(command, Assign) else "server"
            self.send(CONTROLLER, f"{machine.name}:{kind}:{role.incarnation}", command)

    def restart_controller(self) -> None:
        """What was sent is kept until acknowledged, so nothing but the state has to be rebuilt."""
        rebuilt = Cluster.start(self.setup)
        for event in self.journal:
            rebuilt, _ = self.step(rebuilt, event)
        assert rebuilt == self.cluster
        self.cluster = rebuilt

    def reap(self) -> None:
        """Take away, sooner or later, the machines that are safe to kill."""
        for name in sorted(self.doomed):
            if name in self.hosts and self.chance.random() < 0.2:
                self.kill_machine(name)
                self.send(OUTSIDE, CONTROLLER, MachineReleased(name))
