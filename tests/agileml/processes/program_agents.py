"""Both ends of a command job's links, for tests that play one of them."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import zmq

from agileml.node.programs import messages as m
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.transport.link_end import LinkEnd
from agileml.node.transport.link_hub import LinkHub

LIMIT_S = 60.0


def described(command: str, folder: Path, store: str = "") -> m.ProgramDescription:
    """A program without files, setup or secrets; checkpoints go to ``store``, or into ``folder``."""
    return m.ProgramDescription("job", "run", "", command, None, {}, (), store or str(folder / "store"))


class PlayedSupervisor:
    """Orders machines about, and hears what they say."""

    def __init__(self, folder: ProgramFolder, *machines: str) -> None:
        endpoint = folder.coordinator_endpoint()
        assert endpoint is not None
        self._hub: LinkHub[m.Message] = LinkHub(endpoint, folder.read_keys(), 0.3, m.CODEC)
        folder.write_coordinator_endpoint(self._hub.endpoint)
        for machine in machines:
            self._hub.link_to(machine)
        self._heard: list[m.Message] = []

    def order(self, machine: str, order: m.Order) -> None:
        self._hub.link_to(machine).send(order)
        self._hub.flush()

    def heard(self) -> list[m.Message]:
        """All that was said so far, by whichever machine."""
        _, messages = self._hub.receive()
        self._heard += [received.message for received in messages]
        self._hub.confirm_all()
        self._hub.flush()
        return self._heard

    def close(self) -> None:
        self._hub.close()


class PlayedAgent:
    """Says what an agent would say, and takes orders."""

    def __init__(self, folder: ProgramFolder, machine: str) -> None:
        self._context = zmq.Context(1)
        self._end: LinkEnd[m.Message] = LinkEnd(self._context, folder, machine, 0.1, m.CODEC)
        self.orders: deque[m.Message] = deque()

    def say(self, *words: m.Word) -> None:
        for word in words:
            self._end.queue_message(word)
        self.turn()

    def turn(self) -> None:
        """Sends what is due, and takes what has come."""
        self._end.flush()
        self.orders.extend(self._end.receive())
        self._end.confirm()

    @property
    def is_confirmed(self) -> bool:
        """Whether all that it said is on record at the other end."""
        return not self._end.link.unconfirmed_payloads

    def close(self) -> None:
        self._end.flush(at_once=True)
        self._context.destroy(linger=200)
