"""Holds the links of a job's coordinator to the agents of its machines, behind one listening socket.

Who listens writes down what it received, confirms it, and only then acts on it. A hub that is made again from
such a record says nothing to a machine before that has spoken, and so has said what it still lacks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import zmq

from agileml.node.transport.curve_keys import CurveKeys
from agileml.node.transport.packet_codec import PacketCodec
from agileml.node.transport.reliable_link import Link
from agileml.node.transport.sockets import Listener

T = TypeVar("T")
_LAST_WORDS_MS: Final = 200


@dataclass(frozen=True, slots=True)
class Received(Generic[T]):
    """A message of the machine ``sender``, under its ``number``."""

    sender: str
    number: int
    message: T


class LinkHub(Generic[T]):
    """The coordinator's end of all links. ``endpoint``: where it listens, with the port that was chosen."""

    def __init__(self, endpoint: str, keys: CurveKeys | None, repeat_s: float, codec: PacketCodec[T]) -> None:
        """``repeat_s``: seconds between signs of life. ``keys``: of a job on a network."""
        self._context = zmq.Context(1)
        self._poller = zmq.Poller()
        self._listener = Listener(self._context, endpoint, keys, self._poller)
        self._codec = codec
        self._repeat_s = repeat_s
        self._repeat_at = 0.0
        self._links: dict[str, Link[T]] = {}
        self._unconfirmed: set[str] = set()
        self.endpoint = self._listener.endpoint

    def link_to(self, name: str) -> Link[T]:
        """Returns the link to a machine, made where there is none."""
        known = self._links.get(name)
        if known is None:
            # Quiet, as a machine may start much later than it is known: repeating to nobody helps nobody.
            known = self._links[name] = Link(quiet=True)
        return known

    def wait(self, timeout_s: float) -> None:
        """Waits until something comes, at most until the next sign of life is due."""
        due_s = min(timeout_s, self._repeat_at - time.monotonic())
        self._poller.poll(max(0, int(1000 * due_s)))

    def receive(self) -> tuple[frozenset[str], tuple[Received[T], ...]]:
        """Returns who was heard, and what they said, without waiting. Strangers are not listened to.

        Raises WireError for what is no packet of this link.
        """
        heard, messages = set(), []
        for sender, (frame,) in self._listener.receive():
            link = self._links.get(sender)
            if link is None:
                continue
            heard.add(sender)
            packet = self._codec.decode_packet(frame)
            messages += [Received(sender, number, message) for number, message in link.receive(packet)]
        self._unconfirmed |= {message.sender for message in messages}
        return frozenset(heard), tuple(messages)

    def confirm_all(self) -> None:
        """Confirms everything received so far: it is on record."""
        for name in self._unconfirmed:
            self._links[name].confirm()

    def flush(self) -> None:
        """Sends what is new, what confirms, and what is due for repetition."""
        for name, link in self._links.items():
            while (packet := link.next_fresh()) is not None:
                self._unconfirmed.discard(name)
                self._send(name, self._codec.encode_packet(packet))
        for name in self._unconfirmed:
            self._send(name, self._codec.encode_packet(self._links[name].make_confirmation()))
        self._unconfirmed.clear()
        now = time.monotonic()
        if now >= self._repeat_at:
            self._repeat_at = now + self._repeat_s
            for name, link in self._links.items():
                self._send(name, self._codec.encode_packet(link.repeat_in_turn()))

    def close(self) -> None:
        """Sends what is new, and closes the socket."""
        self.flush()
        self._context.destroy(linger=_LAST_WORDS_MS)

    def _send(self, name: str, frame: bytes) -> None:
        self._listener.socket.send_multipart([name.encode(), frame])
