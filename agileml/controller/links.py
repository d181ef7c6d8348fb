"""Connects the elasticity controller's state machine to its links, without sockets, files or a clock.

The controller's process records entries before anything else: which peer sent what, under which number, and
which entries make one step. Folding them again gives the same state, and every link the same messages under
the same numbers. Each peer's next packet then confirms which of them it has. So the journal holds entries
alone.

Rule 1: what ``receive_packet`` and ``observe_event`` return is recorded before ``act_on`` is called with it.

Rule 2: peers are named ``role/machine/incarnation``, ``agent/machine`` and ``client``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from agileml.controller.cluster import ClusterState, Commands
from agileml.controller.state_machine import step
from agileml.node.transport.reliable_link import Link, Packet
from agileml.protocol.commands import Assign, Command
from agileml.protocol.events import (
    Event,
    EvictionWarned,
    MachineLost,
    MachineReleased,
    ServerReady,
    Setup,
    StopRequested,
    WorkerReady,
)
from agileml.protocol.telemetry import (
    Control,
    ConvergenceCheck,
    EndMachine,
    EvictionNoticed,
    MachineGivenUp,
    ObjectiveReport,
    ObjectiveSums,
    Upward,
)
from agileml.sync.base import Barrier

CLIENT: Final = "client"
"""The name of the process that runs the machines."""
SELF: Final = "controller"
"""The name under which the controller's own observations are recorded."""

Step: TypeAlias = Callable[[ClusterState, Sequence[Event]], tuple[ClusterState, Commands]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in the journal: ``peer`` sent ``event`` under its ``number``."""

    peer: str
    number: int
    event: Control


class Controller:
    """Folds entries into the cluster's state, and queues the commands on links.

    ``objective(total, count)`` makes an objective of the shards' sums; ``settled_within``: the ``delta`` of
    ``ConvergenceCheck``.
    """

    def __init__(
        self,
        setup: Setup,
        barrier: Barrier,
        objective: Callable[[float, float], float],
        settled_within: float | None = None,
        step: Step = step,
    ) -> None:
        self.cluster = ClusterState.from_setup(setup, barrier)
        self.links: dict[str, Link[Control]] = {}
        self._step = step
        self._objectives = ObjectiveSums(setup.shards, objective)
        self._convergence = ConvergenceCheck(settled_within)
        self._incarnations: dict[tuple[str, str], int] = {}
        self._observed = 0
        self._live = True

    def replay_journal(self, heard: Iterable[Sequence[Entry]]) -> None:
        """Folds the recorded steps. Links made by this send nothing before their peers have reported."""
        # Every message since the start of the job is in the backlogs again. Peers confirm what they have with
        # their next packet; until then, sending would repeat the whole history.
        self._live = False
        for entries in heard:
            for entry in entries:
                if entry.peer == SELF:
                    self._observed = entry.number
                else:
                    self.link_to(entry.peer).mark_replayed(entry.number)
            self._fold_entries(entries)
        self._live = True

    def receive_packet(self, name: str, packet: Packet[Control]) -> tuple[Entry, ...]:
        """Returns the new entries in a packet. Orders the agent of a departed machine to end it."""
        link = self.link_to(name)
        new = tuple(Entry(name, number, event) for number, event in link.receive(packet))
        machine = name.removeprefix(agent_name(""))
        # An agent that was cut off for long comes back to a job that has given it up. Its machine costs money
        # until it ends. Once is enough: the link repeats the order.
        if machine != name and machine in self.cluster.roster.departed and not link.last_sent:
            link.send(EndMachine(machine))
        return new

    def observe_event(self, event: Event) -> Entry:
        self._observed += 1
        return Entry(SELF, self._observed, event)

    def act_on(self, entries: Sequence[Entry]) -> None:
        """Confirms entries that are on record together, and queues the commands that they call for."""
        # Only here, after the record: a sender drops what is confirmed, and a controller killed before the
        # record would never see it again.
        for entry in entries:
            if entry.peer in self.links:
                self.links[entry.peer].confirm()
        self._fold_entries(entries)

    def link_to(self, name: str) -> Link[Control]:
        known = self.links.get(name)
        if known is None:
            known = self.links[name] = Link(quiet=not self._live)
        return known

    def fresh_packets(self, but: Container[str] = ()) -> Iterator[tuple[str, Packet[Control]]]:
        """Yields packets of what was never sent, each with the name of its peer, to all ``but`` these."""
        for name, link in self.links.items():
            while name not in but and (packet := link.next_fresh()) is not None:
                yield name, packet

    def agent_links(self) -> dict[str, Link[Control]]:
        return {name: link for name, link in self.links.items() if name.startswith(agent_name(""))}

    def _fold_entries(self, entries: Sequence[Entry]) -> None:
        events = [event for entry in entries for event in self._derive_events(entry.event)]
        if not events:
            return
        # Before the step, which moves these machines to ``departed``.
        given_up = dict.fromkeys(self._machines_given_up(entries))
        self.cluster, commands = self._step(self.cluster, events)
        # Once the job is over the client ends all machines anyway.
        for machine in () if self.cluster.phase.is_over else given_up:
            self.link_to(CLIENT).send(MachineGivenUp(machine))
        for notice in self._notices_of_machines(entries):
            self.link_to(CLIENT).send(notice)
        # Before the commands are queued: they are meant for the processes that these events announce. On the
        # link of a dead incarnation nobody would ever receive them.
        for event in events:
            self._learn_incarnation(event)
        for command in commands:
            self.link_to(self._find_addressee(command)).send(command)

    def _machines_given_up(self, entries: Iterable[Entry]) -> Iterator[str]:
        """Yields the machines that are lost by these entries without the client's knowledge."""
        for entry in entries:
            match entry.event:
                case MachineLost(machine) if (
                    entry.peer != CLIENT and machine not in self.cluster.roster.departed
                ):
                    yield machine

    @staticmethod
    def _notices_of_machines(entries: Iterable[Entry]) -> Iterator[EvictionNoticed]:
        """Yields the eviction warnings that machines reported, which may precede the client's own."""
        for entry in entries:
            match entry.event:
                case EvictionWarned(machines, notice_s) if entry.peer != CLIENT:
                    for machine in machines:
                        yield EvictionNoticed(machine, notice_s)

    def _derive_events(self, message: Control) -> Iterator[Event]:
        """Yields the message if it is an event, else the events that follow from it."""
        if isinstance(message, Event):
            yield message
        elif isinstance(message, ObjectiveReport):
            known = self._objectives.add_report(message)
            if known is not None:
                self.link_to(CLIENT).send(known)
                if self._convergence.has_converged(known.value):
                    yield StopRequested()
        else:
            raise TypeError(f"the controller received a {type(message).__name__}, which is not an event")

    def _learn_incarnation(self, event: Event) -> None:
        """Notes which incarnation of a role to talk to, and closes the links to those that are gone."""
        match event:
            case ServerReady(machine, incarnation) | WorkerReady(machine, incarnation):
                role = "server" if isinstance(event, ServerReady) else "worker"
                # A late report of an earlier incarnation must not bring its link back.
                if incarnation > self._incarnations.get((role, machine), 0):
                    self._hang_up(role, machine)
                    self._incarnations[role, machine] = incarnation
            case MachineLost(machine) | MachineReleased(machine):
                self._hang_up("server", machine)
                self._hang_up("worker", machine)

    def _hang_up(self, role: str, machine: str) -> None:
        incarnation = self._incarnations.pop((role, machine), 0)
        self.links.pop(role_name(role, machine, incarnation), None)

    def _find_addressee(self, command: Command) -> str:
        if isinstance(command, Upward):
            return CLIENT
        role = "worker" if isinstance(command, Assign) else "server"
        return role_name(role, command.machine, self._incarnations[role, command.machine])


def agent_name(machine: str) -> str:
    return f"agent/{machine}"


def role_name(role: str, machine: str, incarnation: int) -> str:
    return f"{role}/{machine}/{incarnation}"
