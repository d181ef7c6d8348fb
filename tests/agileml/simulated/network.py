"""A seeded network of real cores: controller, servers and workers exchange messages that stay in memory.

Which channel delivers next is chance, and some channels are much slower than others. What goes to and from
the controller travels in packets of the real links, which are lost, come twice and overtake each other;
between workers and servers order is kept, as connections do, but a message may come twice, or be lost with
its connection; then time passes at both ends, until they have nothing left to ask after. A killed
process takes with it what was sent to it and a random tail of what it sent. The controller records what it
hears before it acts on it, and may die in between.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from agileml.controller import state_machine
from agileml.controller.cluster import ClusterState
from agileml.controller.invariants import check_invariants
from agileml.controller.links import CLIENT, Controller, Entry, Step, agent_name, role_name
from agileml.node.arrays import Matrix
from agileml.node.tier import Tier
from agileml.node.transport.reliable_link import Link, Packet
from agileml.protocol.commands import Assign, DropCheckpoints, SafeToKill, SealCheckpoint
from agileml.protocol.events import (
    CheckpointRefused,
    CheckpointSealed,
    CheckpointWritten,
    Event,
    Installed,
    Loaded,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ModelSaved,
    ServerReady,
    Setup,
    WorkerReady,
)
from agileml.protocol.messages import Outgoing, Peer, Reply, Save, Send, Snapshot
from agileml.server.server import Server
from agileml.sync.base import Barrier
from agileml.sync.bounded_staleness import make_barrier
from agileml.worker.worker import Worker
from tests.agileml.simulated.toy import Toy

CONTROLLER = "controller"
SILENCE = ":silence"
"""What the controller notices by itself, after a while."""
DISK = ":disk"
"""A server writes in the background: through a channel to a disk of its own, which dies with it."""
LOST, TWICE, OVERTAKEN = 0.04, 0.04, 0.04
"""How often that becomes of a packet; a message between workers and servers does not overtake others."""
HEARD_WITH_THE_NEXT: Final = 0.3
"""How often the controller receives more before it acts."""
TIMES_TO_NOTICE: Final = 3
"""So often has time to pass for a process, to be sure that there is nothing it misses."""
FEW: Final = 3
"""Messages under way, whatever becomes of them: the time after which one asks is long beside theirs."""


@dataclass(slots=True)
class Host:
    """The processes that really run on a machine, whatever the controller believes."""

    name: str
    tier: Tier
    servers: int = 0
    workers: int = 0

    @property
    def server(self) -> str:
        """The process of the present incarnation; its name serves as its endpoint as well."""
        return role_name("server", self.name, self.servers)

    @property
    def worker(self) -> str:
        return role_name("worker", self.name, self.workers)


@dataclass(slots=True)
class Network:
    setup: Setup
    toy: Toy
    chance: random.Random
    step: Step = state_machine.step
    server: type[Server] = Server
    worker: type[Worker] = Worker
    barrier_of: Callable[[Setup], Barrier] = make_barrier
    controller: Controller = field(init=False)
    journal: list[tuple[Entry, ...]] = field(default_factory=list)
    """What was heard together."""
    links: dict[str, Link[Any]] = field(default_factory=dict)
    """The ends that call the controller."""
    late: set[tuple[str, str]] = field(default_factory=set)
    """Channels on which something unconfirmed is due for repetition."""
    bereft: dict[str, int] = field(default_factory=dict)
    """Processes at the ends of connections that lost something, and how often time has to pass yet."""
    dies_acting: bool = False
    """The controller, the next time that it has recorded something."""
    upwards: list[Any] = field(default_factory=list)
    hosts: dict[str, Host] = field(default_factory=dict)
    joined: int = 0
    servers: dict[str, Server] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    channels: dict[tuple[str, str], deque[Any]] = field(default_factory=dict)
    pace: dict[tuple[str, str], float] = field(default_factory=dict)
    installed: dict[tuple[int, int], str] = field(default_factory=dict)
    loaded: dict[str, set[int]] = field(default_factory=dict)
    doomed: set[str] = field(default_factory=set)
    stored: dict[str, dict[int, Matrix]] = field(default_factory=dict)
    """Folders of checkpoints, whole or not: what no death reaches."""
    sealed: set[str] = field(default_factory=set)
    disk_is_full: bool = False
    model: Matrix = field(init=False)
    heard: list[Entry] = field(default_factory=list)
    """What the controller has received and not recorded yet, since more was there to be received."""
    actions: int = 0

    def __post_init__(self) -> None:
        self.controller = self._make_controller()
        self.model = np.full((self.toy.shape.rows, self.toy.shape.columns), np.nan, np.float32)

    def _make_controller(self) -> Controller:
        return Controller(self.setup, self.barrier_of(self.setup), max, step=self.step)

    @property
    def cluster(self) -> ClusterState:
        return self.controller.cluster

    # ---- machines ------------------------------------------------------------------------------

    def join(self, tier: Tier, many: int = 1) -> None:
        """Announced together; their processes come up by themselves."""
        hosts = [Host(f"{tier.value[0]}{self.joined + number}", tier) for number in range(many)]
        self.joined += many
        self.hosts |= {host.name: host for host in hosts}
        self.tell(CLIENT, *(MachineJoined(host.name, tier, self.chance.choice([1, 2, 4])) for host in hosts))
        for host in hosts:
            self.start_server(host)
            self.start_worker(host)

    def start_server(self, host: Host) -> None:
        host.servers += 1
        me = Peer(host.name, host.server)
        self.servers[host.server] = self.server(
            me,
            self.setup,
            self.barrier_of(self.setup),
            self.toy.shape,
            self.toy.initial,
            self.read_stored,
        )
        self.tell(host.server, ServerReady(host.name, host.servers, host.server))

    def start_worker(self, host: Host) -> None:
        host.workers += 1
        columns, partitions = self.toy.shape.columns, self.setup.partitions
        self.loaded[host.worker] = set()
        barrier = self.barrier_of(self.setup)
        self.workers[host.worker] = self.worker(
            host.name, host.workers, partitions, columns, self.toy.rows, barrier
        )
        self.tell(host.worker, WorkerReady(host.name, host.workers))

    def kill(self, process: str) -> None:
        """At once; a random tail of what it sent is lost with it, and what it had yet to write."""
        self.channels.pop((process, process + DISK), None)
        self.servers.pop(process, None)
        self.workers.pop(process, None)
        self.links.pop(process, None)
        self.bereft.pop(process, None)
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
        self.kill(agent_name(name))
        self.doomed.discard(name)

    def notice_silence(self, machine: str) -> None:
        self.send(machine + SILENCE, CONTROLLER, MachineLost(machine))

    # ---- messages ------------------------------------------------------------------------------

    def send(self, source: str, target: str, message: object) -> None:
        self.channels.setdefault((source, target), deque()).append(message)
        self.pace.setdefault((source, target), self.chance.choice([0.05, 0.5, 1.0, 1.0, 4.0]))

    def act(self) -> bool:
        """Deliver one message or compute one shard, by chance; False when nothing is left to do."""
        pairs, late, still = list(self.channels), sorted(self.late), self._still()
        able = [(name,) for name, worker in self.workers.items() if worker.computable_count]
        heard = [()] if self.heard else []
        weights = [self.pace[pair] for pair in pairs]
        weights += [1.0] * len(able) + [0.3] * len(late) + [0.05] * len(still) + [1.0] * len(heard)
        if not weights:
            return False
        (number,) = self.chance.choices(range(len(weights)), weights)
        choices: tuple[tuple[Callable[..., None], Sequence[tuple[str, ...]]], ...] = (
            *((self.deliver, pairs), (self.compute, able), (self.repeat, late)),
            *((self.look_back, still), (self.take_in, heard)),
        )
        for action, each in choices:
            if number < len(each):
                action(*each[number])
                break
            number -= len(each)
        self.actions += 1
        return True

    def compute(self, name: str) -> None:
        worker = self.workers[name]
        work = self.chance.choice(worker.take_work())
        delta = self.toy.delta(work.shard, work.clock, work.values)
        self.emit(name, worker.take_result(work, delta))

    def deliver(self, source: str, target: str) -> None:
        queue = self.channels[source, target]
        message = queue.popleft()
        if isinstance(message, Packet):
            message = self._mishap(queue, message, source, target)
        elif not target.endswith(DISK) and not source.endswith(SILENCE):
            message = self._lose(queue, message, source, target)
        if not queue:
            del self.channels[source, target]
        if message is None:
            return
        if target == CONTROLLER:
            self._hear(source, message)
        elif target.endswith(DISK):
            self.write(source, *message)
        elif source == CONTROLLER:
            self._obey(target, message)
        elif target in self.servers:
            self.emit(target, self.servers[target].handle_message(source, message))
        elif target in self.workers:
            self.emit(target, self.workers[target].handle_answer(message))

    def _lose(self, queue: deque[Any], message: Any, source: str, target: str) -> Any:
        """The message, unless it is lost between two that live on; it may come again."""
        fate = self.chance.random()
        if fate < LOST:
            self.bereft |= dict.fromkeys((source, target), TIMES_TO_NOTICE)
            return None
        if fate < LOST + TWICE:
            queue.appendleft(message)
        return message

    def _still(self) -> list[tuple[str]]:
        """Returns processes that have lost something, with little on its way from and to them."""
        if not self.bereft:
            return []
        under_way = dict.fromkeys(sorted(self.bereft), 0)
        for pair, queue in self.channels.items():
            for process in pair:
                if process in under_way:
                    under_way[process] += len(queue)
        return [(process,) for process, number in under_way.items() if number <= FEW]

    def look_back(self, process: str) -> None:
        """Time passes for it, and does so until there is nothing that it has to ask after."""
        core = self.servers.get(process) or self.workers.get(process)
        asked = core.retry_unanswered() if core is not None else ()
        self.bereft[process] = TIMES_TO_NOTICE if asked else self.bereft[process] - 1
        if not self.bereft[process]:
            del self.bereft[process]
        self.emit(process, asked)

    def _mishap(self, queue: deque[Any], packet: Packet[Any], source: str, target: str) -> Packet[Any] | None:
        """The packet to deliver in its stead, if any."""
        fate = self.chance.random()
        if fate < LOST:
            self.late.add((source, target))
            return None
        if fate < LOST + TWICE:
            queue.appendleft(packet)
        elif fate < LOST + TWICE + OVERTAKEN and queue:
            self.late.add((source, target))  # links leave a gap for the repetition to fill
            queue.append(packet)
            packet = queue.popleft()
        return packet

    def load(self, name: str, orders: Assign) -> None:
        """Read what is wanted, or some of it, and sometimes make room by dropping what is not."""
        loaded, wanted = self.loaded[name], {*orders.shards, *orders.preload}
        before = set(loaded)
        loaded |= {shard for shard in sorted(wanted) if self.chance.random() < 0.9}
        if self.chance.random() < 0.2:
            loaded &= wanted
        if loaded != before:
            _, machine, incarnation = name.split("/")
            self.tell(
                name, Loaded(machine, int(incarnation), tuple(sorted(loaded)), full=not wanted <= loaded)
            )

    def emit(self, source: str, outgoing: Sequence[Outgoing]) -> None:
        for item in outgoing:
            match item:
                case Send(peer, message):
                    self.send(source, peer.endpoint, message)
                case Reply(to, message):
                    self.send(source, to, message)
                case Save():
                    self.save(source, item)
                case Snapshot(attempt, folder, clock, partitions):
                    self.check_snapshot(item)
                    for piece in range(len(partitions)):
                        part = Snapshot(attempt, folder, clock, partitions[piece : piece + 1])
                        self.send(source, source + DISK, (part, piece + 1 == len(partitions)))
                case _:
                    if isinstance(item, Installed):
                        first = self.installed.setdefault((item.partition, item.epoch), source)
                        assert first == source, f"{first} and {source} both own {item}"
                    self.tell(source, item)

    def save(self, source: str, item: Save) -> None:
        for partition, values in item.partitions:
            self.model[partition :: self.setup.partitions] = values
        self.tell(source, ModelSaved(source.split("/")[1], item.generation, "model"))

    # ---- checkpoints ---------------------------------------------------------------------------

    def check_snapshot(self, item: Snapshot) -> None:
        expected = self.toy.model(item.clock)
        for partition, values in item.partitions:
            assert np.array_equal(values, expected[partition :: self.setup.partitions]), f"{item} is not B"

    def write(self, source: str, piece: Snapshot, last: bool) -> None:
        """One partition; the disk may refuse it."""
        machine = source.split("/")[1]
        if self.disk_is_full:
            self.disk_is_full = False
            self.tell(source, CheckpointRefused(machine, piece.attempt, "the disk is full"))
            self.channels.pop((source, source + DISK), None)
            return
        self.stored.setdefault(piece.folder, {}).update(piece.partitions)
        if last:
            self.tell(source, CheckpointWritten(machine, piece.attempt))

    def keep(self, target: str, command: SealCheckpoint | DropCheckpoints) -> None:
        if isinstance(command, DropCheckpoints):
            for folder in [name for name in self.stored if _attempt(name) < command.attempt]:
                del self.stored[folder]
                self.sealed.discard(folder)
            return
        parts, expected = self.stored[command.folder], self.toy.model(command.clock)
        assert len(parts) == self.setup.partitions, f"{command} of half a model"
        for partition, values in parts.items():
            assert np.array_equal(values, expected[partition :: self.setup.partitions]), f"{command}: {parts}"
        self.sealed.add(command.folder)
        self.tell(target, CheckpointSealed(command.machine, command.attempt))

    def read_stored(self, folder: str, partition: int) -> Matrix:
        assert folder in self.sealed, f"{folder} is not whole"
        return self.stored[folder][partition].copy()

    # ---- the controller ------------------------------------------------------------------------

    def tell(self, source: str, *events: Event) -> None:
        """In one packet, by a link of the source's own, which keeps them until they are confirmed."""
        link = self.links.setdefault(source, Link())
        for event in events:
            link.send(event)
        self._send_fresh(source, CONTROLLER, link)

    def _send_fresh(self, source: str, target: str, link: Link[Any]) -> None:
        while (packet := link.next_fresh()) is not None:
            self.send(source, target, packet)

    def repeat(self, source: str, target: str) -> None:
        self.late.discard((source, target))
        link = self.controller.links.get(target) if source == CONTROLLER else self.links.get(source)
        if link is not None:
            self.send(source, target, link.repeat())

    def _hear(self, source: str, message: Any) -> None:
        if isinstance(message, Packet):
            entries = self.controller.receive_packet(source, message)
            if not entries and message.payloads:  # it lacks a confirmation
                self.send(CONTROLLER, source, self.controller.links[source].make_confirmation())
        else:
            entries = (self.controller.observe_event(message),)
        self.heard += entries
        waits = isinstance(message, Packet) and self.chance.random() < HEARD_WITH_THE_NEXT
        if not (entries and waits):
            self.take_in()

    def take_in(self) -> None:
        """Record what was heard, and act on it."""
        entries, self.heard = tuple(self.heard), []
        if entries:
            self.journal.append(entries)
        if self.dies_acting and entries:
            self.dies_acting = False
            self.restart_controller(acted=False)
            return
        self.controller.act_on(entries)
        check_invariants(self.cluster)
        for name, packet in self.controller.fresh_packets():
            self.send(CONTROLLER, name, packet)

    def _obey(self, target: str, packet: Packet[Any]) -> None:
        link = self.links.get(target)
        if link is None:
            return
        new = link.receive(packet)
        for _, command in new:
            if target == CLIENT:
                self.upwards.append(command)
                if isinstance(command, SafeToKill):
                    self.doomed.add(command.machine)
            elif isinstance(command, Assign):
                self.emit(target, self.workers[target].take_assignment(command))
                self.load(target, command)
            elif isinstance(command, SealCheckpoint | DropCheckpoints):
                self.keep(target, command)
            elif target in self.servers:
                self.emit(target, self.servers[target].handle_command(command))
        link.confirm()
        if packet.payloads and not new:
            self.send(target, CONTROLLER, link.make_confirmation())

    def last_words(self) -> None:
        """What the client had not heard when the job was over."""
        said, heard = self.controller.link_to(CLIENT), self.links[CLIENT].last_received
        backlog = enumerate(said.unconfirmed_payloads, said.last_sent - len(said.unconfirmed_payloads) + 1)
        self.upwards += [word for number, word in backlog if number > heard]

    def restart_controller(self, *, acted: bool = True) -> None:
        """All that was under way is lost, and all that is remembered is what was recorded.

        ``acted``: the one before had acted on all of it.
        """
        for pair in [pair for pair in self.channels if CONTROLLER in pair and not pair[0].endswith(SILENCE)]:
            del self.channels[pair]
        self.heard.clear()
        before, self.controller = self.controller, self._make_controller()
        self.controller.replay_journal(self.journal)
        assert not acted or before.cluster == self.cluster
        self.late = {(source, CONTROLLER) for source in self.links}

    def reap(self) -> None:
        """Take away, sooner or later, the machines that are safe to kill."""
        for name in sorted(self.doomed):
            if name in self.hosts and self.chance.random() < 0.2:
                self.kill_machine(name)
                self.tell(CLIENT, MachineReleased(name))


def _attempt(folder: str) -> int:
    """Returns the number at the end of its name; for another job's folder, one that
    this job may never drop.
    """
    run, name = folder.split("/")
    return int(name.rsplit("-", 1)[1]) if run == "run" else 10**9
