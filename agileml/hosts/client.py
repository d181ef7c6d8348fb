"""How whoever runs the machines talks to a training job: events in, what became of them out.

What is told is repeated until the controller has it in its journal; what the controller says is kept by it
until it is confirmed here. Numbers make both survive a restart of the client's process.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import zmq

from agileml.commands import Failed, Finished
from agileml.controller import CLIENT
from agileml.events import Event, MachineLost
from agileml.hosts.job import JobFolder
from agileml.hosts.sockets import ControlEnd
from agileml.hosts.stored import newest
from agileml.link import Link
from agileml.telemetry import Upward
from agileml.wire import control_from_json


class TrainingClient:
    """``told``: how many events earlier clients of this job had told; those not confirmed then have to be
    told again by a client that starts before them. ``heard``: how many messages they had dealt with.

    So a client that keeps a ledger starts with ``told=0`` and tells its recorded events again, or with the
    number of events it knows to be confirmed (``confirmed``); and with the number of messages it recorded.
    """

    def __init__(self, folder: Path, told: int = 0, heard: int = 0) -> None:
        self._folder = JobFolder(folder.resolve())
        self._ended = False
        self._bereft = False
        self._context = zmq.Context(1)
        self._control = ControlEnd(
            self._context,
            self._folder,
            CLIENT,
            self._folder.job().timing.repeat_s,
            Link(told, heard),
        )

    def tell(self, *events: Event) -> int:
        """What is told together is planned for together. Returns the last event's number."""
        for event in events:
            if isinstance(event, MachineLost) and event.machine == self._folder.controller_machine:
                self._bereft = not self._ended
            self._control.tell(event)
        self._control.flush()
        return self._control.link.sent

    @property
    def confirmed(self) -> int:
        """The number of events that are in the controller's journal."""
        return self._control.link.sent - len(self._control.link.unconfirmed)

    def poll(self, timeout_s: float) -> list[Upward]:
        """What the controller said, in order; waits for it up to ``timeout_s``.

        What the last poll returned counts as dealt with, and is confirmed.
        """
        self._control.confirm()
        until = time.monotonic() + timeout_s
        while True:
            self._control.flush()
            left_ms = int(1000 * (until - time.monotonic()))
            self._control.socket.poll(max(0, min(left_ms, self._control.wait_ms())))
            said = [message for message in self._control.receive() if isinstance(message, Upward)]
            said = said or self._last_words() or self._obituary()
            self._ended = self._ended or any(isinstance(word, Finished | Failed) for word in said)
            if said or left_ms <= 0:
                return said

    def close(self) -> None:
        """Confirms what the last poll returned."""
        self._control.confirm()
        self._control.flush(at_once=True)
        self._context.destroy(linger=200)

    def _obituary(self) -> list[Upward]:
        """Once: nobody else is left to say that the controller's machine is gone, and the job with it."""
        if not self._bereft or self._ended:
            return []
        setup = self._folder.job().setup
        whole = newest(setup.checkpoints) if setup.checkpoints else None
        why = f"the elasticity controller is gone with its machine {self._folder.controller_machine}"
        return [Failed(why, whole.folder if whole else setup.resume)]

    def _last_words(self) -> list[Upward]:
        """What a controller that has ended could not deliver."""
        if not self._folder.last_words.exists():
            return []
        link, words = self._control.link, json.loads(self._folder.last_words.read_text())
        missed = [word for word in words if word["number"] > link.received]
        for word in missed:
            link.replayed(word["number"])
        said = [control_from_json(word["message"]) for word in missed]
        return [message for message in said if isinstance(message, Upward)]
