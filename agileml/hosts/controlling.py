"""The elasticity controller's process: the pure state machine, its journal and its links.

An event is written to the journal before it is confirmed or acted on. A restarted controller folds the
journal through ``step`` again, which gives every link the same messages under the same numbers; each peer
then says with its next packet which of them it has. Nothing but the journal is kept.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final, TextIO

import zmq

from agileml.elastic import Cluster, step
from agileml.events import (
    Assign,
    Command,
    Event,
    Failed,
    Finished,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ServerReady,
    WorkerReady,
)
from agileml.hosts.job import JobFolder
from agileml.hosts.sockets import CLIENT, make_socket
from agileml.link import Link, Packet
from agileml.telemetry import EndMachine, ObjectiveReport, Objectives, Upward
from agileml.wire import Control, control_from_json, control_to_json, decode_packet, encode_packet

_SELF: Final = "controller"
"""Under which the controller's own observations stand in the journal."""
_GOODBYE_S: Final = 2.0


@dataclass(slots=True)
class _Peer:
    link: Link[Control]
    heard_at: float


class ControllerProcess:
    def __init__(self, folder: JobFolder) -> None:
        job = folder.job()
        app = job.make_application()
        self._folder = folder
        self._timing = job.timing
        self._cluster = Cluster.start(job.setup)
        self._objectives = Objectives(job.setup.shards, app.objective)
        self._incarnations: dict[tuple[str, str], int] = {}
        self._peers: dict[str, _Peer] = {}
        self._ending_at: float | None = None
        self._repeat_at = 0.0
        self._seen = 0  # of the controller's own observations
        self._live = False
        self._journal = self._replay()
        self._live = True
        self._context = zmq.Context(1)
        self._socket = make_socket(self._context, zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.bind(folder.controller_endpoint())

    # ---- the journal ---------------------------------------------------------------------------

    def _replay(self) -> TextIO:
        path = self._folder.controller / "journal.jsonl"
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a line that was being written was never acted on
        for line in whole.splitlines():
            entry = json.loads(line)
            if entry["peer"] == _SELF:
                self._seen = entry["number"]
            else:
                self._peer(entry["peer"]).link.replayed(entry["number"])
            self._act(control_from_json(entry["event"]))
        journal = path.open("a")
        journal.truncate(len(whole.encode()))
        now = time.monotonic()
        for peer in self._peers.values():
            peer.heard_at = now
        return journal

    def _record(self, peer: str, number: int, event: Control) -> None:
        entry = {"peer": peer, "number": number, "event": control_to_json(event)}
        self._journal.write(json.dumps(entry) + "\n")

    # ---- what happens --------------------------------------------------------------------------

    def _act(self, event: Control) -> None:
        """Fold one journalled event and queue what it calls for."""
        if isinstance(event, ObjectiveReport):
            known = self._objectives.add(event)
            if known is not None:
                self._peer(CLIENT).link.send(known)
            return
        if not isinstance(event, Event):
            raise TypeError(f"{type(event).__name__} is not an event")
        self._cluster, commands = step(self._cluster, event)
        self._learn(event)
        for command in commands:
            self._dispatch(command)

    def _learn(self, event: Event) -> None:
        """Which incarnation of a role is spoken to, and whom not to speak to any more."""
        match event:
            case MachineJoined(machine):
                # Starting many machines at once takes its time; the first sign of life ends the grace.
                self._peer(_agent(machine)).heard_at = time.monotonic() + self._timing.lease_s
            case ServerReady(machine, incarnation) | WorkerReady(machine, incarnation):
                role = "server" if isinstance(event, ServerReady) else "worker"
                if incarnation > self._incarnations.get((role, machine), 0):
                    self._hang_up(role, machine)
                    self._incarnations[role, machine] = incarnation
            case MachineLost(machine) | MachineReleased(machine):
                self._hang_up("server", machine)
                self._hang_up("worker", machine)

    def _hang_up(self, role: str, machine: str) -> None:
        incarnation = self._incarnations.pop((role, machine), None)
        self._peers.pop(f"{role}/{machine}/{incarnation}", None)

    def _dispatch(self, command: Command) -> None:
        if isinstance(command, Upward):
            if isinstance(command, Finished | Failed):
                self._ending_at = time.monotonic() + self._timing.lease_s
            self._peer(CLIENT).link.send(command)
            return
        role = "worker" if isinstance(command, Assign) else "server"
        incarnation = self._incarnations[role, command.machine]
        self._peer(f"{role}/{command.machine}/{incarnation}").link.send(command)

    def _peer(self, name: str) -> _Peer:
        """A link that is rebuilt from the journal waits for its peer to say what it has."""
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = _Peer(Link(quiet=not self._live), time.monotonic())
        return peer

    # ---- the loop ------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the job is over and its client knows (or is not heard of for a lease)."""
        while not self._over():
            self._exchange()
            self._notice_silence()
        self._say_goodbye()
        self._context.destroy(linger=0)
        self._journal.close()

    def _over(self) -> bool:
        if self._ending_at is None:
            return False
        return not self._peer(CLIENT).link.unconfirmed or time.monotonic() > self._ending_at

    def _exchange(self) -> None:
        """Wait for packets, act on them, and send what is new or due for repetition."""
        self._socket.poll(max(0, int(1000 * (self._repeat_at - time.monotonic())) + 1))
        heard = set()
        while self._socket.poll(0):
            sender, frame = self._socket.recv_multipart()
            heard.add(sender.decode())
            self._take(sender.decode(), frame)
        for name in heard & self._peers.keys():
            self._send(name, self._peers[name].link.confirmation())
        due = time.monotonic() >= self._repeat_at
        if due:
            self._repeat_at = time.monotonic() + self._timing.repeat_s
        for name, peer in self._peers.items():
            while (packet := peer.link.fresh()) is not None:
                self._send(name, packet)
            if due and peer.link.unconfirmed:
                self._send(name, peer.link.repeat())

    def _take(self, name: str, frame: bytes) -> None:
        """One packet: journal, confirm, act."""
        peer = self._peer(name)
        peer.heard_at = time.monotonic()
        new = peer.link.receive(decode_packet(frame))
        for number, event in new:
            self._record(name, number, event)
        self._journal.flush()
        peer.link.confirm()
        for _, event in new:
            self._act(event)
        machine = name.removeprefix(_agent(""))
        if machine != name and machine in self._cluster.departed and not peer.link.sent:
            peer.link.send(EndMachine(machine))

    def _notice_silence(self) -> None:
        now = time.monotonic()
        for machine in tuple(self._cluster.machines):
            if now - self._peer(_agent(machine)).heard_at > self._timing.silence_s:
                self._seen += 1
                self._record(_SELF, self._seen, MachineLost(machine))
                self._journal.flush()
                self._act(MachineLost(machine))

    def _send(self, name: str, packet: Packet[Control]) -> None:
        self._socket.send_multipart([name.encode(), encode_packet(packet)])

    def _say_goodbye(self) -> None:
        """What the client missed goes to a file; every agent is told to end."""
        self._write_last_words()
        alive_since = time.monotonic() - self._timing.silence_s
        agents = {name: peer for name, peer in self._peers.items() if name.startswith(_agent(""))}
        alive = [peer for peer in agents.values() if peer.heard_at > alive_since]
        for name, peer in agents.items():
            peer.link.send(EndMachine(name.removeprefix(_agent(""))))
        until = time.monotonic() + _GOODBYE_S
        while any(peer.link.unconfirmed for peer in alive) and time.monotonic() < until:
            self._exchange()

    def _write_last_words(self) -> None:
        link = self._peer(CLIENT).link
        missed = enumerate(link.unconfirmed, link.sent - len(link.unconfirmed) + 1)
        words = [{"number": number, "message": control_to_json(message)} for number, message in missed]
        unfinished = self._folder.last_words.with_suffix(".part")
        unfinished.write_text(json.dumps(words))
        unfinished.replace(self._folder.last_words)


def _agent(machine: str) -> str:
    return f"agent/{machine}"
