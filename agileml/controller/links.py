"""The elasticity controller with its links, without sockets, files or a clock.

What its process writes down before anything else is a list of entries: who told it what, under which number,
and what was heard together, which is one step. Folding them again gives the same state and every link the
same messages under the same numbers; each peer then says with its next packet which of them it has. So
nothing but the entries is ever kept.

Rule 1: what ``received`` and ``observed`` return is recorded first, and ``act`` is called second.
Rule 2: peers are named ``role/machine/incarnation``, ``agent/machine`` and ``client``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from agileml.controller.cluster import Cluster, Commands
from agileml.controller.state_machine import step
from agileml.controller.stopping import Settling
from agileml.node.transport.reliable_link import Link, Packet
from agileml.protocol.commands import Assign, Command
from agileml.protocol.events import (
    Event,
    MachineLost,
    MachineReleased,
    ServerReady,
    Setup,
    StopRequested,
    WorkerReady,
)
from agileml.protocol.telemetry import (
    EndMachine,
    MachineGivenUp,
    ObjectiveAt,
    ObjectiveReport,
    Objectives,
    Upward,
)

CLIENT: Final = "client"
"""The name of whoever runs the machines."""
SELF: Final = "controller"
"""The name under which the controller's own observations are recorded."""

Word: TypeAlias = Event | Command | ObjectiveReport | ObjectiveAt | MachineGivenUp | EndMachine
Step: TypeAlias = Callable[[Cluster, Sequence[Event]], tuple[Cluster, Commands]]


@dataclass(frozen=True, slots=True)
class Entry:
    """``peer`` told ``event`` under its ``number``."""

    peer: str
    number: int
    event: Word


class Controller:
    """``objective(total, count)`` makes an objective of shards' sums; ``settled_within``: ends the job."""

    def __init__(
        self,
        setup: Setup,
        objective: Callable[[float, float], float],
        settled_within: float | None = None,
        step: Step = step,
    ) -> None:
        self.cluster = Cluster.start(setup)
        self.links: dict[str, Link[Word]] = {}
        self._step = step
        self._objectives = Objectives(setup.shards, objective)
        self._settling = Settling(settled_within)
        self._incarnations: dict[tuple[str, str], int] = {}
        self._observed = 0
        self._live = True

    def replay(self, heard: Iterable[Sequence[Entry]]) -> None:
        """What was recorded, step by step. A link that comes of it waits for its peer to say what it has."""
        self._live = False
        for entries in heard:
            for entry in entries:
                if entry.peer == SELF:
                    self._observed = entry.number
                else:
                    self.link(entry.peer).replayed(entry.number)
            self._fold(entries)
        self._live = True

    def received(self, name: str, packet: Packet[Word]) -> tuple[Entry, ...]:
        """What is new in a packet. The agent of a machine that is gone hears that it is."""
        link = self.link(name)
        new = tuple(Entry(name, number, event) for number, event in link.receive(packet))
        machine = name.removeprefix(agent(""))
        if machine != name and machine in self.cluster.departed and not link.sent:
            link.send(EndMachine(machine))
        return new

    def observed(self, event: Event) -> Entry:
        self._observed += 1
        return Entry(SELF, self._observed, event)

    def act(self, entries: Sequence[Entry]) -> None:
        """They are on record together: confirm them, and queue what they call for on the links."""
        for entry in entries:
            if entry.peer in self.links:
                self.links[entry.peer].confirm()
        self._fold(entries)

    def link(self, name: str) -> Link[Word]:
        known = self.links.get(name)
        if known is None:
            known = self.links[name] = Link(quiet=not self._live)
        return known

    def fresh(self, but: Container[str] = ()) -> Iterator[tuple[str, Packet[Word]]]:
        """What was not sent yet to anybody ``but`` these."""
        for name, link in self.links.items():
            while name not in but and (packet := link.fresh()) is not None:
                yield name, packet

    def agents(self) -> dict[str, Link[Word]]:
        return {name: link for name, link in self.links.items() if name.startswith(agent(""))}

    def _fold(self, entries: Sequence[Entry]) -> None:
        events = [event for entry in entries for event in self._events(entry.event)]
        if not events:
            return
        given_up = dict.fromkeys(self._given_up(entries))
        self.cluster, commands = self._step(self.cluster, events)
        for machine in () if self.cluster.phase.over else given_up:  # where it is over, all of them go
            self.link(CLIENT).send(MachineGivenUp(machine))
        for event in events:
            self._learn(event)
        for command in commands:
            self.link(self._addressee(command)).send(command)

    def _given_up(self, entries: Iterable[Entry]) -> Iterator[str]:
        """The machines that are lost by this, and of which the client does not know it."""
        for entry in entries:
            match entry.event:
                case MachineLost(machine) if entry.peer != CLIENT and machine not in self.cluster.departed:
                    yield machine

    def _events(self, word: Word) -> Iterator[Event]:
        """The word, or what follows from it."""
        if isinstance(word, Event):
            yield word
        elif isinstance(word, ObjectiveReport):
            known = self._objectives.add(word)
            if known is not None:
                self.link(CLIENT).send(known)
                if self._settling.settled_with(known.value):
                    yield StopRequested()
        else:
            raise TypeError(f"{type(word).__name__} is not an event")

    def _learn(self, event: Event) -> None:
        """Which incarnation of a role is spoken to, and whom not to speak to any more."""
        match event:
            case ServerReady(machine, incarnation) | WorkerReady(machine, incarnation):
                role = "server" if isinstance(event, ServerReady) else "worker"
                if incarnation > self._incarnations.get((role, machine), 0):
                    self._hang_up(role, machine)
                    self._incarnations[role, machine] = incarnation
            case MachineLost(machine) | MachineReleased(machine):
                self._hang_up("server", machine)
                self._hang_up("worker", machine)

    def _hang_up(self, role: str, machine: str) -> None:
        incarnation = self._incarnations.pop((role, machine), 0)
        self.links.pop(role_name(role, machine, incarnation), None)

    def _addressee(self, command: Command) -> str:
        if isinstance(command, Upward):
            return CLIENT
        role = "worker" if isinstance(command, Assign) else "server"
        return role_name(role, command.machine, self._incarnations[role, command.machine])


def agent(machine: str) -> str:
    return f"agent/{machine}"


def role_name(role: str, machine: str, incarnation: int) -> str:
    return f"{role}/{machine}/{incarnation}"
