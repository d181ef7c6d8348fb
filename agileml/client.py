"""Talks to a training job for the process that runs its machines: events in, what became of them out.

What is told is repeated until the controller has it in its journal; what the controller says is kept by it
until it is confirmed here. Numbers make both survive a restart of the client's process.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import zmq

from agileml.controller.links import CLIENT
from agileml.data.checkpoint_store import newest_checkpoint
from agileml.job import JobFolder
from agileml.node.checkpoint_store import CheckpointError
from agileml.node.liveness import SilenceTimer
from agileml.node.tier import Tier
from agileml.node.transport.reliable_link import Link
from agileml.protocol.commands import Failed, Finished
from agileml.protocol.endpoints import ControlEnd
from agileml.protocol.events import Event, MachineJoined, MachineLost
from agileml.protocol.telemetry import Upward
from agileml.protocol.wire import control_from_json

_CONTROLLER: Final = "the elasticity controller"


class TrainingClient:
    """The client's end of a job.

    ``told``: how many events earlier clients of this job had told; those not confirmed then have to be told
    again by a client that starts before them. ``heard``: how many messages they had dealt with. So a client
    that keeps a ledger starts with ``told=0`` and tells its recorded events again, or with the number of
    events it knows to be confirmed (``confirmed_count``); and with the number of messages it recorded.
    """

    def __init__(self, folder: Path, told: int = 0, heard: int = 0) -> None:
        self._folder = JobFolder(folder.resolve())
        self._ended = False
        self._bereft = False
        self._was_silent = False
        self._timing = self._folder.read_job().timing
        self._awaited = False
        self._caught: list[Upward] = []
        self._silence = SilenceTimer(time.monotonic(), 2 * self._timing.repeat_s)
        self._context = zmq.Context(1)
        self._control = ControlEnd(
            self._context, self._folder, CLIENT, self._timing.repeat_s, Link(told, heard)
        )

    def send_events(self, *events: Event) -> int:
        """Sends events. Those sent together are planned for together. Returns the last event's number."""
        for event in events:
            if isinstance(event, MachineLost) and event.machine == self._folder.controller_machine:
                self._was_silent = self._was_silent or self.hanging_controller is not None
                self._bereft = not self._ended
            # The first reliable machine carries the controller: before, there is nobody to be silent.
            if isinstance(event, MachineJoined) and event.tier is Tier.RELIABLE and not self._awaited:
                self._awaited = True
                self._silence.mark_heard(_CONTROLLER, self._timing.first_word_s)
            self._control.queue_message(event)
        self._control.flush()
        return self._control.link.last_sent

    @property
    def confirmed_count(self) -> int:
        """The number of events that are in the controller's journal."""
        return self._control.link.last_sent - len(self._control.link.unconfirmed_payloads)

    @property
    def hanging_controller(self) -> str | None:
        """The controller's machine, once it has been silent for so long that it hangs; None before.

        A controller that dies or hangs is restarted by its agent, after ``silence_s`` at the most. Agents
        that heard of none for ``lease_s`` have ended. Where it is silent for twice as long nobody is left.
        """
        waits = self._awaited and not (self._ended or self._bereft)
        if waits and self._silence.silent_s(_CONTROLLER) > 2 * self._timing.lease_s:
            return self._folder.controller_machine
        return None

    def poll(self, timeout_s: float) -> list[Upward]:
        """Returns what the controller said, in order; waits for it up to ``timeout_s``.

        What the last poll returned counts as dealt with, and is confirmed.
        """
        if self._caught:
            caught, self._caught = self._caught, []
            return caught
        self._control.confirm()
        until = time.monotonic() + timeout_s
        while True:
            self._control.flush()
            left_ms = int(1000 * (until - time.monotonic()))
            self._control.socket.poll(max(0, min(left_ms, self._control.wait_ms())))
            awake_at = time.monotonic()
            self._silence.wake_up(awake_at)
            # In this order: what a controller left behind comes before the report that it is gone.
            said = self._receive_upward(awake_at) or self._read_last_words() or self._report_controller_gone()
            self._ended = self._ended or any(isinstance(word, Finished | Failed) for word in said)
            if said or left_ms <= 0:
                return said

    def catch_up(self, timeout_s: float) -> None:
        """Receives all that the controller said while this client was not there; ``poll`` returns it.

        It takes up to ``timeout_s`` where the controller does not answer.
        """
        until = time.monotonic() + timeout_s
        while not self._ended and time.monotonic() < until:
            self._control.flush()
            self._control.socket.poll(self._control.wait_ms())
            awake_at = time.monotonic()
            self._silence.wake_up(awake_at)
            said = self._receive_upward(awake_at) or self._read_last_words()
            self._caught += said
            self._ended = any(isinstance(word, Finished | Failed) for word in said)
            if self._control.heard_at >= awake_at and not self._control.link.has_gap:
                return

    def _receive_upward(self, awake_at: float) -> list[Upward]:
        said = [message for message in self._control.receive() if isinstance(message, Upward)]
        if self._control.heard_at >= awake_at:
            self._silence.mark_heard(_CONTROLLER)
        return said

    def close(self) -> None:
        """Confirms what the last poll returned."""
        self._control.confirm()
        self._control.flush(at_once=True)
        # The last confirmation may still be in the socket.
        self._context.destroy(linger=200)

    def _report_controller_gone(self) -> list[Upward]:
        """Reports once that the controller's machine is gone, and the job with it: nobody else is left to say
        so.
        """
        if not self._bereft or self._ended:
            return []
        setup = self._folder.read_job().setup
        why = f"the elasticity controller is gone with its machine {self._folder.controller_machine}"
        why += ", of which nothing was heard any more" if self._was_silent else ""
        try:
            whole = newest_checkpoint(setup.checkpoints) if setup.checkpoints else None
        except CheckpointError as error:
            return [Failed(f"{why}; {error}", setup.resume)]
        return [Failed(why, whole.folder if whole else setup.resume)]

    def _read_last_words(self) -> list[Upward]:
        """Returns what a controller that has ended could not deliver."""
        if not self._folder.last_words.exists():
            return []
        link, words = self._control.link, json.loads(self._folder.last_words.read_text())
        missed = [word for word in words if word["number"] > link.last_received]
        for word in missed:
            link.mark_replayed(word["number"])
        said = [control_from_json(word["message"]) for word in missed]
        return [message for message in said if isinstance(message, Upward)]
