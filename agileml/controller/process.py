"""Runs the elasticity controller's process: the loop around the pure controller, its journal and its clock.

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

from agileml.controller.journal import ControllerJournal, hash_rules
from agileml.controller.links import CLIENT, Controller, Entry, agent_name
from agileml.job import JobFolder
from agileml.node.liveness import SilenceTimer
from agileml.node.transport.link_end import CONFIRM_WITHIN_S
from agileml.node.transport.reliable_link import Packet
from agileml.node.transport.sockets import Listener
from agileml.protocol.events import CheckpointDue, MachineJoined, MachineLost, StopRequested
from agileml.protocol.telemetry import Control, EndMachine
from agileml.protocol.wire import control_to_json, decode_packet, encode_packet
from agileml.sync.bounded_staleness import make_barrier

_GOODBYE_S: Final = 2.0
"""How long agents have to confirm that the job is over. The others end when their lease does."""
_CLIENT_EVERY_S: Final = 0.02
"""The time between two packets for the client, which receives every clock but seldom acts on it."""
_TOGETHER_S: Final = 0.005
"""Packets that arrive within this time make one step: short clocks bring reports by the thousand."""
_AT_ONCE: Final = 256
"""The most packets taken before answers go out. Peers without an answer repeat all they have, for ever."""


class ControllerProcess:
    def __init__(self, folder: JobFolder, machine: str) -> None:
        job = folder.read_job()
        self._folder = folder
        self._timing = job.timing
        self._stop_after_s = job.stop.seconds
        objective = job.make_application().objective
        self._core = Controller(job.setup, make_barrier(job.setup), objective, job.stop.delta)
        self._journal = ControllerJournal(folder.controller_folder / "journal.jsonl", hash_rules())
        self._core.replay_journal(self._journal)
        self._checkpoint_at = time.monotonic()
        self._silence = SilenceTimer(self._checkpoint_at, 2 * job.timing.repeat_s, self._core.agent_links())
        self._ending_at: float | None = None
        self._repeat_at = self._client_at = self._rests_until = 0.0
        self._client_waits = False
        self._unconfirmed: set[str] = set()
        self._confirm_at = math.inf
        self._context = zmq.Context(1)
        self._poller = zmq.Poller()
        listen = folder.coordinator_endpoint() or folder.machine_endpoint(machine)
        self._listener = Listener(self._context, listen, folder.read_keys(), self._poller)
        folder.write_coordinator_endpoint(self._listener.endpoint)

    def run(self) -> None:
        """Runs until the job is over and the client knows (or is silent for a lease), or no client comes."""
        while not (self._is_over() or self._is_unclaimed()):
            self._exchange_packets()
            self._notice_silence()
            self._notice_time()
        self._say_goodbye()
        self._context.destroy(linger=0)
        self._journal.close()

    def _is_over(self) -> bool:
        if not self._core.cluster.phase.is_over:
            return False
        if self._ending_at is None:
            self._ending_at = time.monotonic() + self._timing.lease_s
            self._folder.record_finish(time.time())
        return not self._core.link_to(CLIENT).unconfirmed_payloads or time.monotonic() > self._ending_at

    def _is_unclaimed(self) -> bool:
        """Whether the client has been silent from the start, for so long that it must have died."""
        if self._core.link_to(CLIENT).last_received:
            return False
        return self._silence.silent_s(CLIENT) > self._timing.unclaimed_s

    def _exchange_packets(self) -> None:
        """Waits for packets, acts on them, and sends what is new or due for repetition."""
        due = min(self._repeat_at, self._confirm_at, self._client_at if self._client_waits else math.inf)
        self._poller.poll(max(0, int(1000 * (due - time.monotonic())) + 1))
        # Packets gather meanwhile: one step and one line of the journal serve all of them.
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        self._rests_until = time.monotonic() + _TOGETHER_S
        # Before any packet is read: a controller that stood still for a minute would otherwise take that time
        # for silence, and declare every machine lost.
        self._silence.wake_up(time.monotonic())
        entries: list[Entry] = []
        for sender, (frame,) in islice(self._listener.receive(), _AT_ONCE):
            self._unconfirmed.add(sender)
            self._silence.mark_heard(sender)
            entries += self._core.receive_packet(sender, decode_packet(frame))
        self._act_on(entries)
        now = time.monotonic()
        # Confirmations travel with other packets where there are any, and alone after a while.
        if self._unconfirmed:
            self._confirm_at = min(self._confirm_at, now + CONFIRM_WITHIN_S)
        self._client_waits = now < self._client_at
        for name, packet in self._core.fresh_packets(but=(CLIENT,) if self._client_waits else ()):
            self._send_packet(name, packet)
            self._unconfirmed.discard(name)
            if name == CLIENT:
                self._client_at = now + _CLIENT_EVERY_S
        if now >= self._confirm_at:
            self._confirm_at = math.inf
            for name in self._unconfirmed & self._core.links.keys():
                self._send_packet(name, self._core.links[name].make_confirmation())
            self._unconfirmed.clear()
        if now >= self._repeat_at:
            self._repeat_at = now + self._timing.repeat_s
            for name, link in self._core.links.items():
                if link.unconfirmed_payloads:
                    self._send_packet(name, link.repeat_in_turn())

    def _act_on(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        # The record comes first. A controller killed between the two has sent and confirmed nothing that its
        # successor would not know.
        self._journal.record_step(entries)
        self._core.act_on(entries)
        for entry in entries:
            if isinstance(entry.event, MachineJoined):
                # Many machines that start at once take long; the first sign of life ends this grace.
                self._silence.mark_heard(agent_name(entry.event.machine), self._timing.lease_s)

    def _notice_silence(self) -> None:
        """Declares machines lost whose agents have been silent for too long."""
        silent = [
            self._core.observe_event(MachineLost(machine))
            for machine in self._core.cluster.machines
            if self._silence.silent_s(agent_name(machine)) > self._timing.silence_s
        ]
        self._act_on(silent)

    def _notice_time(self) -> None:
        if self._stop_after_s is not None and self._trained_s() >= self._stop_after_s:
            self._stop_after_s = None
            self._act_on((self._core.observe_event(StopRequested()),))
        every, now = self._timing.checkpoint_s, time.monotonic()
        if every and now - self._checkpoint_at > every:
            self._checkpoint_at = now
            self._act_on((self._core.observe_event(CheckpointDue()),))

    def _trained_s(self) -> float:
        """Returns the real seconds since the first clock began."""
        # The date of a file keeps the moment for a restarted controller. The journal has no times, so that
        # folding it gives the same state whenever that happens.
        record = self._folder.controller_folder / "began"
        if not record.exists():
            if not self._core.cluster.has_begun:
                return 0.0
            record.touch()
        return time.time() - record.stat().st_mtime

    def _send_packet(self, name: str, packet: Packet[Control]) -> None:
        self._listener.socket.send_multipart([name.encode(), encode_packet(packet)])

    def _say_goodbye(self) -> None:
        """Writes what the client missed to a file, and orders every agent to end."""
        # Before the agents end: they take the machine of this controller with them.
        self._write_last_words()
        # Agents that never reported have no link yet, and must end too.
        for machine in self._core.cluster.machines:
            self._core.link_to(agent_name(machine))
        agents, limit_s = self._core.agent_links(), self._timing.silence_s
        alive = [link for name, link in agents.items() if self._silence.silent_s(name) < limit_s]
        for name, link in agents.items():
            link.send(EndMachine(name.removeprefix(agent_name(""))))
        until = time.monotonic() + _GOODBYE_S
        while any(link.unconfirmed_payloads for link in alive) and time.monotonic() < until:
            self._exchange_packets()

    def _write_last_words(self) -> None:
        link = self._core.link_to(CLIENT)
        missed = enumerate(link.unconfirmed_payloads, link.last_sent - len(link.unconfirmed_payloads) + 1)
        words = [{"number": number, "message": control_to_json(message)} for number, message in missed]
        # Renamed when complete, so that the client never reads half a file.
        unfinished = self._folder.last_words.with_suffix(".part")
        unfinished.write_text(json.dumps(words))
        unfinished.replace(self._folder.last_words)
