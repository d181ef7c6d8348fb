"""Wraps sockets around the pure cores: one end of a control link, and a role's data plane. ZeroMQ throughout.

A socket is used by one thread. Sends never block: what cannot be delivered is the business of the links
(control) or of the next assignment (data).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence, Set
from typing import Final, Protocol

import zmq

from agileml.node.transport.array_codec import Buffer
from agileml.node.transport.curve_keys import CurveKeys
from agileml.node.transport.reliable_link import Link
from agileml.node.transport.shared_memory import SharedMemoryLender
from agileml.node.transport.sockets import Listener, has_message, make_socket, receive_frames, send_frames
from agileml.protocol.events import ClockCompleted
from agileml.protocol.messages import Message, Peer, Reply, Send
from agileml.protocol.telemetry import ObjectiveReport
from agileml.protocol.wire import Control, decode_messages, decode_packet, encode_messages, encode_packet

_LOOK_AGAIN_MS: Final = 50
"""The time between two looks for the file in which the controller of a job on a network says where it
listens.
"""
_CAN_WAIT: Final = (ClockCompleted, ObjectiveReport)
"""News that nobody waits for, and that short clocks bring by the thousand."""
_NEWS_EVERY_S: Final = 0.02
"""The time between two packets of nothing but such news; the first after a pause goes at once."""
CONFIRM_WITHIN_S: Final = 0.02
"""How long a confirmation waits for a packet to go with. Well below the time after which anything is
repeated.
"""


class ControllerAddress(Protocol):
    """Where the controller of a job is found: the job's folder (``agileml.job.JobFolder``)."""

    def read_keys(self) -> CurveKeys | None:
        """Returns the keys of a job on a network; None where all processes share one machine."""

    def controller_endpoint(self) -> str | None:
        """Returns where the controller listens; None before it has said so."""


class ControlEnd:
    """The end of a control link that connects: from a role, an agent or a client to the controller.

    It may be made before the controller says where it is, and connects as soon as it does.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        controller: ControllerAddress,
        name: str,
        repeat_s: float,
        link: Link[Control] | None = None,
    ) -> None:
        self.socket = make_socket(context, zmq.DEALER, name, controller.read_keys())
        self._controller = controller
        self._connected = False
        self.link: Link[Control] = link or Link()
        self.heard_at = time.monotonic()
        self._repeat_s = repeat_s
        self._repeat_at = 0.0
        self._sent_at = 0.0
        self._send_at = math.inf
        """When what is new, or a confirmation, goes at the latest."""

    def queue_message(self, value: Control) -> None:
        self.link.send(value)
        wait_s = _NEWS_EVERY_S if isinstance(value, _CAN_WAIT) else 0.0
        self._send_at = min(self._send_at, self._sent_at + wait_s)

    def receive(self) -> Iterator[Control]:
        """Yields what has arrived, without waiting."""
        while has_message(self.socket):
            packet = decode_packet(self.socket.recv())
            self.heard_at = time.monotonic()
            for _, payload in self.link.receive(packet):
                self._send_at = min(self._send_at, self.heard_at + CONFIRM_WITHIN_S)
                yield payload

    def confirm(self) -> None:
        """Confirms everything received: it is dealt with."""
        self.link.confirm()

    def flush(self, *, at_once: bool = False) -> None:
        """Sends what is new and due, or everything ``at_once``; and what is due for repetition."""
        if not self._connected and not self._try_connect():
            return
        now = time.monotonic()
        if now >= self._send_at or (at_once and self._send_at < math.inf):
            self._send_at, self._sent_at = math.inf, now
            packets = list(iter(self.link.next_fresh, None)) or [self.link.make_confirmation()]
            for packet in packets:
                self.socket.send(encode_packet(packet))
        if now >= self._repeat_at:
            self.socket.send(encode_packet(self.link.repeat_in_turn()))
            self._repeat_at = now + self._repeat_s

    def wait_ms(self) -> int:
        """Returns how long the caller may wait for messages before the next ``flush`` is due."""
        if not self._connected:
            return _LOOK_AGAIN_MS
        due = min(self._repeat_at, self._send_at)
        return max(0, int(1000 * (due - time.monotonic())) + 1)

    def _try_connect(self) -> bool:
        endpoint = self._controller.controller_endpoint()
        if endpoint is not None:
            self.socket.connect(endpoint)
            self._connected = True
        return self._connected


class DataEnd:
    """Carries requests and transfers between workers and servers.

    ``listen``: where a server binds. Without ``keys`` all ends are on one machine, and lend each other what
    is long. ``endpoint``: where a server is reached.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        name: str,
        poller: zmq.Poller,
        keys: CurveKeys | None,
        listen: str | None = None,
    ) -> None:
        self._context = context
        self._name = name
        self._poller = poller
        self._keys = keys
        self._shared_memory = (
            SharedMemoryLender() if keys is None and SharedMemoryLender.is_possible() else None
        )
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self._opened = 0
        self._unsent: dict[Peer | str, list[Message]] = {}
        self._listener = None if listen is None else Listener(context, listen, keys, poller)
        self.endpoint = "" if self._listener is None else self._listener.endpoint

    def queue_message(self, item: Send | Reply) -> None:
        """Queues a message for the next ``flush``; what goes to one place goes as one message of several
        parts.
        """
        place = item.peer if isinstance(item, Send) else item.to
        self._unsent.setdefault(place, []).append(item.message)

    def flush(self) -> None:
        for place, messages in self._unsent.items():
            frames = encode_messages(messages)
            if self._shared_memory is not None:
                # What a server sends to another on its own becomes part of a model there.
                kept = isinstance(place, Peer) and self._listener is not None
                name = place.endpoint if isinstance(place, Peer) else place
                frames = self._shared_memory.lend_frames(name, frames, kept=kept)
            if isinstance(place, Peer):
                send_frames(self._socket_to(place), frames)
            elif self._listener is not None:
                send_frames(self._listener.socket, [place.encode(), *frames])
        self._unsent.clear()

    def receive(self) -> Iterator[tuple[str, Message]]:
        """Yields what has arrived, without waiting, with its sender's name (servers only know workers'
        names).

        Answers to what came together are flushed together.
        """
        for sender, frames in () if self._listener is None else self._listener.receive():
            yield from ((sender, message) for message in self._decode_messages(sender, frames))
            self.flush()
        for endpoint, socket in tuple(self._peers.items()):
            while has_message(socket):
                yield from (
                    ("", message) for message in self._decode_messages(endpoint, receive_frames(socket))
                )
                self.flush()

    def _decode_messages(self, sender: str, frames: Sequence[Buffer]) -> list[Message]:
        """Returns messages in the order in which they were queued; none where what was lent with them is
        lost.
        """
        found = frames if self._shared_memory is None else self._shared_memory.take_frames(sender, frames)
        return [] if found is None else decode_messages(found)

    @property
    def has_server_sockets(self) -> bool:
        """Whether there are sockets to servers."""
        return bool(self._peers)

    def close_all_but(self, endpoints: Set[str]) -> None:
        """Closes the sockets to servers that are not needed any more."""
        self.flush()
        for endpoint in self._peers.keys() - endpoints:
            if self._shared_memory is not None:
                self._shared_memory.drop_peer(endpoint)
            socket = self._peers.pop(endpoint)
            self._poller.unregister(socket)
            socket.close()

    def _socket_to(self, peer: Peer) -> zmq.Socket[bytes]:
        socket = self._peers.get(peer.endpoint)
        if socket is None:
            # Under a name of its own: a listener drops what comes from a second socket of a name while it
            # has not noticed that the first one was closed.
            self._opened += 1
            socket = self._peers[peer.endpoint] = make_socket(
                self._context, zmq.DEALER, f"{self._name}/{self._opened}", self._keys
            )
            socket.connect(peer.endpoint)
            self._poller.register(socket, zmq.POLLIN)
        return socket
