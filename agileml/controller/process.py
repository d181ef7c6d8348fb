"""The elasticity controller's process: the loop around the pure one, its journal and its sense of time.

An event is written to the journal before it is confirmed or acted on; see ``agileml.controller.links``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from itertools import islice
from typing import Final

import zmq

from agileml.controller.journal import Journal, rules_of
from agileml.controller.links import CLIENT, Controller, Entry, agent
from agileml.job import JobFolder
from agileml.node.liveness import Listening
from agileml.node.transport.reliable_link import Packet
from agileml.node.transport.sockets import Listener
from agileml.protocol.endpoints import CONFIRM_WITHIN_S
from agileml.protocol.events import CheckpointDue, MachineJoined, MachineLost, StopRequested
from agileml.protocol.telemetry import EndMachine
from agileml.protocol.wire import Control, control_to_json, decode_packet, encode_packet

_GOODBYE_S: Final = 2.0
"""For agents to confirm that the job is over; those that do not hear of it end by lease."""
_CLIENT_EVERY_S: Final = 0.02
"""Between two packets for the client, whom every clock sends a word that it acts on seldom."""
_TOGETHER_S: Final = 0.005
"""What comes within it is one step: short clocks bring news by the thousand."""
_AT_ONCE: Final = 256
"""Packets taken before anybody is answered: who hears nothing repeats all it has, which would never end."""


class ControllerProcess:
    def __init__(self, folder: JobFolder, machine: str) -> None:
        job = folder.job()
        self._folder = folder
        self._timing = job.timing
        self._stop_after_s = job.stop.seconds
        self._core = Controller(job.setup, job.make_application().objective, job.stop.delta)
        self._journal = Journal(folder.controller / "journal.jsonl", rules_of())
        self._core.replay(self._journal)
        self._checkpoint_at = time.monotonic()
        self._listening = Listening(self._checkpoint_at, 2 * job.timing.repeat_s, self._core.agents())
        self._ending_at: float | None = None
        self._repeat_at = self._client_at = self._rests_until = 0.0
        self._client_waits = False
        self._unconfirmed: set[str] = set()
        self._confirm_at = math.inf
        self._context = zmq.Context(1)
        self._poller = zmq.Poller()
        listen = folder.controller_endpoint() or folder.endpoint(machine)
        self._listener = Listener(self._context, listen, folder.keys(), self._poller)
        folder.tell_controller_endpoint(self._listener.endpoint)

    def run(self) -> None:
        """Until the job is over and its client knows (or is silent for a lease), or nobody claims it."""
        while not (self._over() or self._unclaimed()):
            self._exchange()
            self._notice_silence()
            self._notice_time()
        self._say_goodbye()
        self._context.destroy(linger=0)
        self._journal.close()

    def _over(self) -> bool:
        if not self._core.cluster.phase.over:
            return False
        if self._ending_at is None:
            self._ending_at = time.monotonic() + self._timing.lease_s
        return not self._core.link(CLIENT).unconfirmed or time.monotonic() > self._ending_at

    def _unclaimed(self) -> bool:
        """Whether whoever started this machine has not said so for so long that it must have died before."""
        if self._core.link(CLIENT).received:
            return False
        return self._listening.silent_s(CLIENT) > self._timing.unclaimed_s

    def _exchange(self) -> None:
        """Wait for packets, act on them, and send what is new or due for repetition.

        Confirmations go along with what there is to say, or after a while.
        """
        due = min(self._repeat_at, self._confirm_at, self._client_at if self._client_waits else math.inf)
        self._poller.poll(max(0, int(1000 * (due - time.monotonic())) + 1))
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        self._rests_until = time.monotonic() + _TOGETHER_S
        self._listening.awake(time.monotonic())
        entries: list[Entry] = []
        for sender, (frame,) in islice(self._listener.receive(), _AT_ONCE):
            self._unconfirmed.add(sender)
            self._listening.heard(sender)
            entries += self._core.received(sender, decode_packet(frame))
        self._act(entries)
        now = time.monotonic()
        if self._unconfirmed:
            self._confirm_at = min(self._confirm_at, now + CONFIRM_WITHIN_S)
        self._client_waits = now < self._client_at
        for name, packet in self._core.fresh(but=(CLIENT,) if self._client_waits else ()):
            self._send(name, packet)
            self._unconfirmed.discard(name)
            if name == CLIENT:
                self._client_at = now + _CLIENT_EVERY_S
        if now >= self._confirm_at:
            self._confirm_at = math.inf
            for name in self._unconfirmed & self._core.links.keys():
                self._send(name, self._core.links[name].confirmation())
            self._unconfirmed.clear()
        if now >= self._repeat_at:
            self._repeat_at = now + self._timing.repeat_s
            for name, link in self._core.links.items():
                if link.unconfirmed:
                    self._send(name, link.again())

    def _act(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self._journal.record(entries)
        self._core.act(entries)
        for entry in entries:
            if isinstance(entry.event, MachineJoined):
                # Starting many machines at once takes its time; the first sign of life ends the grace.
                self._listening.heard(agent(entry.event.machine), self._timing.lease_s)

    def _notice_silence(self) -> None:
        """Of machines, which is their loss."""
        silent = [
            self._core.observed(MachineLost(machine))
            for machine in self._core.cluster.machines
            if self._listening.silent_s(agent(machine)) > self._timing.silence_s
        ]
        self._act(silent)

    def _notice_time(self) -> None:
        if self._stop_after_s is not None and self._trained_s() >= self._stop_after_s:
            self._stop_after_s = None
            self._act((self._core.observed(StopRequested()),))
        every, now = self._timing.checkpoint_s, time.monotonic()
        if every and now - self._checkpoint_at > every:
            self._checkpoint_at = now
            self._act((self._core.observed(CheckpointDue()),))

    def _trained_s(self) -> float:
        """Real seconds since the first clock began; a file keeps the moment for a restarted controller."""
        record = self._folder.controller / "began"
        if not record.exists():
            if not self._core.cluster.begun:
                return 0.0
            record.touch()
        return time.time() - record.stat().st_mtime

    def _send(self, name: str, packet: Packet[Control]) -> None:
        self._listener.socket.send_multipart([name.encode(), encode_packet(packet)])

    def _say_goodbye(self) -> None:
        """What the client missed goes to a file; every agent is told to end, also if it was not heard yet."""
        self._write_last_words()
        for machine in self._core.cluster.machines:
            self._core.link(agent(machine))
        agents, limit_s = self._core.agents(), self._timing.silence_s
        alive = [link for name, link in agents.items() if self._listening.silent_s(name) < limit_s]
        for name, link in agents.items():
            link.send(EndMachine(name.removeprefix(agent(""))))
        until = time.monotonic() + _GOODBYE_S
        while any(link.unconfirmed for link in alive) and time.monotonic() < until:
            self._exchange()

    def _write_last_words(self) -> None:
        link = self._core.link(CLIENT)
        missed = enumerate(link.unconfirmed, link.sent - len(link.unconfirmed) + 1)
        words = [{"number": number, "message": control_to_json(message)} for number, message in missed]
        unfinished = self._folder.last_words.with_suffix(".part")
        unfinished.write_text(json.dumps(words))
        unfinished.replace(self._folder.last_words)
