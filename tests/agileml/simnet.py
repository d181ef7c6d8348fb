"""A seeded network of real cores: the controller, servers and workers exchange messages that never leave memory.

Channels keep order per pair of processes; which channel delivers next is chance, and some channels are much
slower than others. A killed process takes with it what was sent to it and a random tail of what it sent; the
notice of its death comes by a channel of its own, so its last words may come later. Everything follows from the
seed: ``run_schedule(seed)`` is a whole story, and the same one every time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agileml import elastic
from agileml.cluster import Cluster, Commands
from agileml.events import (
    Assign,
    Event,
    EvictionWarned,
    Failed,
    Finished,
    Installed,
    JoinedTraining,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ModelSaved,
    Progressed,
    RolledBack,
    SafeToKill,
    ServerLost,
    ServerReady,
    Setup,
    StageChanged,
    StopRequested,
    Tier,
    WorkerLost,
    WorkerReady,
)
from agileml.messages import Matrix, Outgoing, Peer, Reply, Save, Send
from agileml.partition import Shape
from agileml.server import Server
from agileml.worker import Worker
from tests.agileml.toy import Toy

UPWARDS = (SafeToKill, JoinedTraining, StageChanged, RolledBack, Progressed, Finished, Failed)
CONTROLLER, OUTSIDE = "controller", "outside"
Step = Callable[[Cluster, Event], tuple[Cluster, Commands]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule ended."""

    seed: int
    setup: Setup
    faults: tuple[str, ...]
    upwards: Commands
    model: Matrix
    expected: Matrix
    deliveries: int

    @property
    def redone(self) -> tuple[int, ...]:
        return tuple(word.redone for word in self.upwards if isinstance(word, RolledBack))

    @property
    def finished(self) -> bool:
        return any(isinstance(word, Finished) for word in self.upwards)


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
    deliveries: int = 0

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
        for (source, target), queue in self.channels.items():
            if target == process:
                queue.clear()
            elif source == process:
                for _ in range(self.chance.randint(0, len(queue))):
                    queue.pop()

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
        busy = [pair for pair, queue in self.channels.items() if queue]
        computing = [name for name, worker in self.workers.items() if worker.work()]
        choices: list[Any] = [*busy, *computing]
        if not choices:
            return False
        weights = [self.pace[pair] for pair in busy] + [1.0] * len(computing)
        choice = self.chance.choices(choices, weights)[0]
        self.deliveries += 1
        if isinstance(choice, str):
            self.compute(choice)
        else:
            self.deliver(*choice, self.channels[choice].popleft())
        return True

    def compute(self, name: str) -> None:
        worker = self.workers[name]
        work = self.chance.choice(worker.work())
        delta = self.toy.delta(work.shard, work.clock, work.values)
        self.emit(name, worker.computed(work, delta))

    def deliver(self, source: str, target: str, message: Any) -> None:
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


# ---- faults --------------------------------------------------------------------------------------


def join(net: Network) -> None:
    for _ in range(net.chance.randint(1, 3)):
        net.join(Tier.TRANSIENT)


def join_reliable(net: Network) -> None:
    net.join(Tier.RELIABLE)


def _transient(net: Network) -> list[str]:
    return [host.name for host in net.hosts.values() if host.tier is Tier.TRANSIENT]


def warn(net: Network) -> None:
    """A warning in time, of some machines or of all."""
    names = _transient(net)
    chosen = net.chance.sample(names, net.chance.randint(1, len(names))) if names else []
    net.send(OUTSIDE, CONTROLLER, EvictionWarned(tuple(chosen), 120.0))


def warn_late(net: Network) -> None:
    """A warning that is followed by the end, whatever has been moved by then."""
    warn(net)
    for _ in range(net.chance.randint(0, 60)):
        net.act()
    lose(net)


def lose(net: Network) -> None:
    names = _transient(net)
    for name in net.chance.sample(names, net.chance.randint(1, len(names))) if names else []:
        net.kill_machine(name)
        net.send(f"agent of {name}", CONTROLLER, MachineLost(name))


def server_dies(net: Network) -> None:
    """And is started again; its death may be noticed only by that."""
    names = _transient(net)
    if not names:
        return
    host = net.hosts[net.chance.choice(names)]
    net.kill(host.server)
    if net.chance.random() < 0.7:
        net.send(f"agent of {host.name}", CONTROLLER, ServerLost(host.name, host.servers))
    net.start_server(host)


def worker_dies(net: Network) -> None:
    host = net.hosts[net.chance.choice(sorted(net.hosts))]
    net.kill(host.worker)
    if net.chance.random() < 0.7:
        net.send(f"agent of {host.name}", CONTROLLER, WorkerLost(host.name, host.workers))
    net.start_worker(host)


def controller_dies(net: Network) -> None:
    net.restart_controller()


def stop(net: Network) -> None:
    net.send(OUTSIDE, CONTROLLER, StopRequested())


Fault = Callable[[Network], None]
GENTLE: tuple[Fault, ...] = (join, join_reliable, warn, worker_dies, controller_dies, stop)
"""None of these costs a clock."""
FAULTS: tuple[Fault, ...] = (*GENTLE, warn_late, lose, server_dies)


# ---- schedules -----------------------------------------------------------------------------------


def run_schedule(
    seed: int, faults: int = 1, kinds: Sequence[Fault] = FAULTS, step: Step = elastic.step
) -> Outcome:
    """Train the toy to its end while ``faults`` things of these ``kinds`` happen.

    Raises AssertionError, or what the cores raise, when an invariant breaks or progress ends; every message
    names the seed.
    """
    try:
        return _run(random.Random(seed), seed, faults, kinds, step)
    except Exception as error:
        error.add_note(f"seed {seed}, {faults} faults")
        raise


def _run(chance: random.Random, seed: int, faults: int, kinds: Sequence[Fault], step: Step) -> Outcome:
    setup = Setup(
        partitions=chance.randint(1, 4),
        shards=chance.randint(3, 6),
        clocks=chance.randint(4, 7),
        staleness=chance.choice([0, 0, 0, 1, 2]),
        stage3_above=chance.choice([2.0, 15.0]),
        hysteresis=chance.choice([0.0, 0.25]),
    )
    toy = Toy(Shape(9, 2), setup.shards, looks_at_values=setup.staleness == 0)
    net = Network(setup, toy, chance, step)
    for tier in [Tier.RELIABLE] * chance.randint(1, 2) + [Tier.TRANSIENT] * chance.randint(0, 4):
        net.join(tier)
    length = setup.clocks * (30 + 25 * setup.partitions)
    moments = deque(sorted(chance.randint(0, length) for _ in range(faults)))
    happened: list[str] = []
    while not net.cluster.phase.over:
        if moments and net.deliveries >= moments[0]:
            moments.popleft()
            fault = chance.choice(kinds)
            happened.append(f"{fault.__name__} at {net.deliveries}")
            fault(net)
            continue
        net.reap()
        assert net.act() or net.doomed, f"progress ends in {net.cluster.told('nothing is under way')}"
        assert net.deliveries < 100_000, f"no end in {net.cluster.told('livelock')}"
    expected = toy.model(net.cluster.until)
    return Outcome(seed, setup, tuple(happened), tuple(net.upwards), net.model, expected, net.deliveries)
