"""Training in virtual time: the real cores on machines whose links have a capacity and whose work takes time.

Controller, servers, workers and their links are those that processes run; what is made up is how long things
take. A machine's link carries so many bytes a second each way: a message leaves after those before it, takes
``LATENCY_S``, and arrives behind what is arriving already. Messages within a machine cost nothing but a
moment. Words to and from the controller are small and only take ``LATENCY_S``; the controller is busy for
``DECIDING_S`` with all that has come by then. A shard takes a core ``shard_s``. Nothing is left to chance, so
an experiment of minutes takes seconds and says the same every time. Messages are lost where it says so.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from agileml.controller.invariants import check_invariants
from agileml.controller.links import CLIENT, Controller, Entry, agent_name, role_name
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.node.tier import Tier
from agileml.node.transport.reliable_link import Link, Packet
from agileml.protocol.commands import Assign, Finished, Progressed, RolledBack, StageChanged
from agileml.protocol.events import Event, Loaded, MachineJoined, ServerReady, Setup, WorkerReady
from agileml.protocol.messages import (
    Answer,
    EndOfLife,
    Install,
    Message,
    Notice,
    Outgoing,
    Patch,
    Peer,
    Push,
    Read,
    ReadDone,
    Reply,
    Request,
    Send,
    Transfer,
    Update,
)
from agileml.protocol.meters import ServerMeter, WorkerMeter
from agileml.protocol.telemetry import Upward
from agileml.server.server import Server
from agileml.sync.bounded_staleness import make_barrier
from agileml.worker.worker import ShardWork, Worker

LATENCY_S: Final = 0.002
DECIDING_S: Final = 0.002
LOADING_S: Final = 0.05
"""What a worker takes to read a shard of the input."""
_PART_BYTES: Final = 100
"""What describes a part of a message."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A model of ``rows`` x ``columns`` float32, of which each shard touches ``touched`` rows a clock."""

    rows: int
    columns: int
    touched: int

    @property
    def shape(self) -> Shape:
        return Shape(self.rows, self.columns)

    def initial(self, rows: Rows) -> Matrix:
        return np.zeros((len(rows), self.columns), np.float32)

    def of_shard(self, shard: int) -> Rows:
        chosen = np.random.default_rng([7, shard]).choice(self.rows, self.touched, replace=False)
        return np.sort(chosen).astype(np.int64)


def size(message: Message) -> int:
    """Bytes on the wire: arrays, and a little for what describes them."""
    match message:
        case Read(parts=parts):
            return sum(part.rows.nbytes for part in parts) + _PART_BYTES * len(parts)
        case Update(parts=parts):
            deltas = [delta.patch for part in parts for delta in part.deltas]
            return _of_patches(deltas) + _PART_BYTES * len(parts)
        case ReadDone(values=values):
            return values.nbytes + _PART_BYTES
        case Push(patch=patch):
            return _of_patches([patch]) + _PART_BYTES
        case Install(values=values, undo=undo, pending=pending):
            patches = [step.patch for step in undo] + [late.delta.patch for late in pending]
            return values.nbytes + _of_patches(patches) + _PART_BYTES
        case EndOfLife(undo=undo, pending=pending):
            return _of_patches([step.patch for step in undo] + [late.delta.patch for late in pending])
    return _PART_BYTES


def _of_patches(patches: Iterable[Patch]) -> int:
    return sum(patch.rows.nbytes + patch.values.nbytes for patch in patches)


@dataclass(slots=True)
class _Machine:
    """``sends_from``, ``takes_from``: when its link has room for the next message out, and in."""

    name: str
    tier: Tier
    server: Server
    worker: Worker
    server_meter: ServerMeter
    worker_meter: WorkerMeter
    sends_from: float = 0.0
    takes_from: float = 0.0
    computes: bool = False
    loaded: set[int] = field(default_factory=set)
    wanted: frozenset[int] = frozenset()


class Timed:
    """A job in virtual time. ``shard_s``: core-seconds of a shard; ``link_bytes_per_s``: each way.

    ``ask_after_s``: see ``hosts.job.Timing``; None where nothing is lost, and nobody needs to ask.
    """

    def __init__(
        self,
        setup: Setup,
        traffic: Traffic,
        shard_s: float,
        link_bytes_per_s: float,
        ask_after_s: float | None = None,
    ) -> None:
        self.setup = setup
        self.now = 0.0
        self.completed_at: dict[int, float] = {}
        self.heard: list[tuple[float, Upward]] = []
        self.controller = Controller(setup, make_barrier(setup), max)
        self.steps = 0
        self.carried: Counter[type] = Counter()
        """Messages between machines, by kind."""
        self._to_lose: Counter[type] = Counter()
        self._ask_after_s = ask_after_s
        self._traffic, self._shard_s, self._rate = traffic, shard_s, link_bytes_per_s
        self._rows = {shard: traffic.of_shard(shard) for shard in range(setup.shards)}
        self._delta = np.ones((traffic.touched, traffic.columns), np.float32)
        self._machines: dict[str, _Machine] = {}
        self._links: dict[str, Link[Any]] = {CLIENT: Link()}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._told: list[Entry] = []

    # ---- what the experimenter does ------------------------------------------------------------

    def add(self, *names: str, every_s: float = 0.0) -> None:
        """Announce machines; their processes come up one after the other. Names with r are reliable."""
        self.tell(*(MachineJoined(name, _tier(name), 1) for name in names))
        for number, name in enumerate(names):
            self._after(every_s * (number + 1), partial(self._start, name))

    def lose(self, kind: type, times: int) -> None:
        """The next so many messages of a kind that go from one machine to another do not arrive."""
        self._to_lose[kind] += times

    def tell(self, *events: Event) -> None:
        self._say(CLIENT, events)

    def run(self, until: Callable[[], bool], at_most_s: float = 10_000.0) -> None:
        """Raises AssertionError when it does not come about in ``at_most_s``."""
        limit = self.now + at_most_s
        while not until():
            assert self._queue, self.controller.cluster.with_story("nothing is under way")
            self.now, _, action = heapq.heappop(self._queue)
            assert self.now < limit, self.controller.cluster.with_story(f"not within {at_most_s} s")
            action()

    def reach(self, clock: int) -> None:
        self.run(lambda: clock in self.completed_at)

    def clock_seconds(self, first: int, last: int) -> list[float]:
        """Returns how long each of the clocks ``first`` to ``last`` took."""
        return [self.completed_at[clock] - self.completed_at[clock - 1] for clock in range(first, last + 1)]

    def next_clocks(self, settle: int, measure: int) -> list[float]:
        first = self.clock + settle
        self.reach(first + measure)
        return self.clock_seconds(first + 1, first + measure)

    @property
    def clock(self) -> int:
        """The last one that was completed."""
        return max(self.completed_at, default=0)

    @property
    def stages(self) -> list[StageChanged]:
        return [word for _, word in self.heard if isinstance(word, StageChanged)]

    @property
    def redone(self) -> list[RolledBack]:
        return [word for _, word in self.heard if isinstance(word, RolledBack)]

    def remove(self, *names: str) -> None:
        """The machines are gone, and what was on its way to them."""
        for name in names:
            del self._machines[name]
            for role in (role_name("server", name, 1), role_name("worker", name, 1), agent_name(name)):
                self._links.pop(role, None)

    # ---- machines ------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        setup, traffic = self.setup, self._traffic
        me = Peer(name, f"mem://{name}")
        self._machines[name] = _Machine(
            name,
            _tier(name),
            Server(me, setup, make_barrier(setup), traffic.shape, traffic.initial),
            Worker(name, 1, setup.partitions, traffic.columns, self._rows.__getitem__, make_barrier(setup)),
            ServerMeter(name, 1, self.now),
            WorkerMeter(name, 1, self.now),
        )
        self._say(role_name("server", name, 1), (ServerReady(name, 1, me.endpoint),))
        self._say(role_name("worker", name, 1), (WorkerReady(name, 1),))
        if self._ask_after_s is not None:
            self._after(self._ask_after_s, partial(self._look_back, name, self._ask_after_s))

    def _look_back(self, name: str, every_s: float) -> None:
        machine = self._machines.get(name)
        if machine is not None:
            self._emit(machine, "worker", machine.worker.retry_unanswered())
            self._emit(machine, "server", machine.server.retry_unanswered())
            self._after(every_s, partial(self._look_back, name, every_s))

    def _emit(self, machine: _Machine, role: str, outgoing: Iterable[Outgoing]) -> None:
        for item in outgoing:
            if role == "worker":
                machine.worker_meter.note_request(item)
            else:
                machine.server_meter.count_sent(item)
            match item:
                case Send(peer, message):
                    arrives = partial(self._serve, peer.machine, machine.name, role, message)
                    self._carry(machine, peer.machine, arrives, message)
                case Reply(to, message):
                    self._carry(machine, to.split("/")[1], partial(self._answer, to, message), message)
                case event if isinstance(event, Event):
                    self._say(role_name(role, machine.name, 1), (event,))
        if role == "worker":
            machine.worker_meter.set_clock(machine.worker.current_clock, self.now)
            self._compute(machine)

    def _carry(self, source: _Machine, to: str, arrives: Callable[[], None], message: Message) -> None:
        target = self._machines.get(to)
        if target is None:
            return
        if target is source:
            self._after(LATENCY_S / 10, arrives)
            return
        self.carried[type(message)] += 1
        if self._to_lose[type(message)]:
            self._to_lose[type(message)] -= 1
            return
        takes_s = size(message) / self._rate
        leaves = max(self.now, source.sends_from)
        source.sends_from = leaves + takes_s
        self._at(leaves + LATENCY_S, partial(self._take, to, arrives, takes_s))

    def _take(self, to: str, arrives: Callable[[], None], takes_s: float) -> None:
        """Its first byte is there: it arrives behind what is arriving already."""
        target = self._machines.get(to)
        if target is not None:
            target.takes_from = max(self.now, target.takes_from) + takes_s
            self._at(target.takes_from, arrives)

    def _serve(self, to: str, sender: str, role: str, message: Request | Transfer) -> None:
        machine = self._machines.get(to)
        if machine is None:
            return
        machine.server_meter.count_received(message)
        self._emit(machine, "server", machine.server.handle_message(role_name(role, sender, 1), message))
        self._report(machine, "server", machine.server_meter.make_report(self.now))

    def _answer(self, to: str, message: Answer | Notice) -> None:
        role, name, _ = to.split("/")
        machine = self._machines.get(name)
        if machine is None:
            return
        if isinstance(message, Notice):
            self._emit(machine, "server", machine.server.handle_message(role, message))
            return
        machine.worker_meter.note_answer(message, self.now)
        self._emit(machine, "worker", machine.worker.handle_answer(message))

    def _compute(self, machine: _Machine) -> None:
        """One shard at a time: a machine has one core here."""
        work = () if machine.computes else machine.worker.take_work(1)
        if work:
            machine.computes = True
            self._after(self._shard_s, partial(self._computed, machine, work[0]))

    def _computed(self, machine: _Machine, work: ShardWork) -> None:
        if machine.name not in self._machines:
            return
        machine.computes = False
        machine.worker_meter.count_computed(1, self._shard_s)
        delta = Patch(self._rows[work.shard], self._delta)
        self._emit(machine, "worker", machine.worker.take_result(work, delta))
        self._report(machine, "worker", machine.worker_meter.make_report(self.now))

    def _report(self, machine: _Machine, role: str, load: Event | None) -> None:
        if load is not None and self.setup.automatic:
            self._say(role_name(role, machine.name, 1), (load,))

    def _load(self, machine: _Machine, orders: Assign) -> None:
        """All that is wanted and not there, in the background; told when it is."""
        machine.wanted = frozenset((*orders.shards, *orders.preload))
        missing = machine.wanted - machine.loaded
        if missing:
            self._after(LOADING_S * len(missing), partial(self._loaded, machine, machine.wanted))

    def _loaded(self, machine: _Machine, wanted: frozenset[int]) -> None:
        if machine.name in self._machines and wanted == machine.wanted:
            machine.loaded |= wanted
            told = Loaded(machine.name, 1, tuple(sorted(machine.loaded)))
            self._say(role_name("worker", machine.name, 1), (told,))

    # ---- the controller ------------------------------------------------------------------------

    def _say(self, source: str, events: Iterable[Event]) -> None:
        link = self._links.setdefault(source, Link())
        for event in events:
            link.send(event)
        while (packet := link.next_fresh()) is not None:
            self._after(LATENCY_S, partial(self._hear, source, packet))

    def _hear(self, source: str, packet: Packet[Any]) -> None:
        """Makes one step of what comes while the controller is busy, with what it does next."""
        if not self._told:
            self._after(DECIDING_S, self._decide)
        self._told += self.controller.receive_packet(source, packet)

    def _decide(self) -> None:
        told, self._told = self._told, []
        self.controller.act_on(told)
        check_invariants(self.controller.cluster)
        self.steps += 1
        for name, sent in tuple(self.controller.fresh_packets()):
            self._after(LATENCY_S, partial(self._obey, name, sent))

    def _obey(self, name: str, packet: Packet[Any]) -> None:
        link = self._links.get(name)
        if link is None:
            return
        for _, command in link.receive(packet):
            if name == CLIENT:
                self._note(command)
                continue
            machine = self._machines[name.split("/")[1]]
            if isinstance(command, Assign):
                self._load(machine, command)
                self._emit(machine, "worker", machine.worker.take_assignment(command))
            elif name.startswith("server/"):
                self._emit(machine, "server", machine.server.handle_command(command))

    def _note(self, word: Upward) -> None:
        self.heard.append((self.now, word))
        if isinstance(word, Progressed | Finished):
            for clock in range(self.clock + 1, word.clock + 1):
                self.completed_at[clock] = self.now

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._at(self.now + seconds, action)

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (moment, next(self._numbers), action))


def _tier(name: str) -> Tier:
    return Tier.RELIABLE if name.startswith("r") else Tier.TRANSIENT
