"""Sockets around the pure cores: one end of a control link, and a role's data plane. ZeroMQ throughout.

A socket is used by one thread. Sends never block: what cannot be delivered is the business of the links
(control) or of the next assignment (data).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence, Set
from typing import Final

import zmq

from agileml.job import JobFolder
from agileml.node.transport.array_codec import Buffer
from agileml.node.transport.curve_keys import Doorkeeper, Keys
from agileml.node.transport.reliable_link import Link
from agileml.node.transport.shared_memory import Lending
from agileml.protocol.events import ClockCompleted
from agileml.protocol.messages import Message, Peer, Reply, Send
from agileml.protocol.telemetry import ObjectiveReport
from agileml.protocol.wire import Control, decode, decode_packet, encode, encode_packet

_IN: Final = int(zmq.POLLIN)
_LOOK_AGAIN_MS: Final = 50
"""For the file in which the controller of a job on a network says where it listens."""
_CAN_WAIT: Final = (ClockCompleted, ObjectiveReport)
"""News that nobody waits for, and that short clocks bring by the thousand."""
_NEWS_EVERY_S: Final = 0.02
"""Between two packets of nothing but such news; the first after a pause goes at once."""
CONFIRM_WITHIN_S: Final = 0.02
"""For a confirmation that has nothing to go with. Well below the time after which anything is repeated."""
_VANISHED_AFTER_S: Final = 30
"""Many times what a packet takes on a slow link with long queues."""


def make_socket(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, name: str = "", keys: Keys | None = None
) -> zmq.Socket[bytes]:
    """Unbounded queues; nothing lingers after close; comes back soon to a peer that was restarted.

    ``keys``: of a job on a network, whose links are encrypted and end when the other machine vanished without
    a word (from one that lost its power comes no TCP reset). A ROUTER listens.
    """
    made = context.socket(kind)
    made.setsockopt(zmq.SNDHWM, 0)
    made.setsockopt(zmq.RCVHWM, 0)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RECONNECT_IVL, 20)
    made.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    if name:
        made.setsockopt(zmq.IDENTITY, name.encode())
    if keys is not None:
        keys.secure(made, listens=kind == zmq.ROUTER)
        made.setsockopt(zmq.IPV6, int(kind != zmq.ROUTER))
        end_with_silence(made, _VANISHED_AFTER_S)
    return made


def end_with_silence(socket: zmq.Socket[bytes], after_s: int) -> None:
    """End its connections to machines from which there was no sign of life for so long.

    Any packet is one, and kernels ask for them. ZeroMQ has heartbeats of its own, but to those only whole
    frames are signs: an array that takes longer to arrive would be cut off, sent again, and cut off again.
    A call that nobody takes for so long is made anew, since a kernel asks again at ever longer intervals.
    """
    socket.setsockopt(zmq.CONNECT_TIMEOUT, 1000 * after_s)
    socket.setsockopt(zmq.TCP_MAXRT, 1000 * after_s)  # of what is under way
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)  # while there is nothing
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, max(1, after_s // 3))
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, max(1, after_s // 6))
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 4)


def bound_to(socket: zmq.Socket[bytes]) -> str:
    """Where a socket listens, with the port that the system chose."""
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b"\0").decode()


def has_message(socket: zmq.Socket[bytes]) -> bool:
    """Whether one can be received at once. A tenth of what ``socket.poll(0)`` costs, which makes a poller."""
    events = socket.getsockopt(zmq.EVENTS)
    return isinstance(events, int) and bool(events & _IN)


def send_frames(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """As one message; long frames are not copied, and must not change until they are sent.

    Half of what ``send_multipart`` costs, which looks at all of them twice; so does the next.
    """
    last = len(frames) - 1
    for number, frame in enumerate(frames):
        copy = len(frame) < zmq.COPY_THRESHOLD
        socket.send(frame, zmq.SNDMORE if number < last else 0, copy=copy)


def receive_frames(socket: zmq.Socket[bytes]) -> list[memoryview]:
    """Of one message that is there, without a copy."""
    frame = socket.recv(copy=False)
    frames = [frame.buffer]
    while frame.more:
        frame = socket.recv(copy=False)
        frames.append(frame.buffer)
    return frames


class Listener:
    """The ROUTER socket that peers call. ``endpoint``: where, with the port that the system chose."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        keys: Keys | None,
        poller: zmq.Poller,
    ) -> None:
        """A name that calls again takes over from the connection that had it, which may be dead unnoticed."""
        self._doorkeeper = None if keys is None else Doorkeeper(context, keys)
        self.socket = make_socket(context, zmq.ROUTER, keys=keys)
        self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if "[" in endpoint:
            self.socket.setsockopt(zmq.IPV6, 1)
        self.socket.bind(endpoint)
        self.endpoint = bound_to(self.socket)
        poller.register(self.socket, zmq.POLLIN)
        if self._doorkeeper is not None:
            poller.register(self._doorkeeper.socket, zmq.POLLIN)

    def receive(self) -> Iterator[tuple[str, list[memoryview]]]:
        """What has come, without waiting, and the name of who sent it."""
        if self._doorkeeper is not None:
            self._doorkeeper.answer()
        while has_message(self.socket):
            sender, *frames = receive_frames(self.socket)
            yield str(sender, "utf-8"), frames


class ControlEnd:
    """The end of a control link that calls: of a role, an agent or a client, to the controller.

    It may be made before the controller says where it is, and calls as soon as it does.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        folder: JobFolder,
        name: str,
        repeat_s: float,
        link: Link[Control] | None = None,
    ) -> None:
        self.socket = make_socket(context, zmq.DEALER, name, folder.keys())
        self._folder = folder
        self._connected = False
        self.link: Link[Control] = link or Link()
        self.heard_at = time.monotonic()
        self._repeat_s = repeat_s
        self._repeat_at = 0.0
        self._sent_at = 0.0
        self._send_at = math.inf
        """When what is new, or a confirmation, goes at the latest."""

    def tell(self, value: Control) -> None:
        self.link.send(value)
        wait_s = _NEWS_EVERY_S if isinstance(value, _CAN_WAIT) else 0.0
        self._send_at = min(self._send_at, self._sent_at + wait_s)

    def receive(self) -> Iterator[Control]:
        """What has come, without waiting."""
        while has_message(self.socket):
            packet = decode_packet(self.socket.recv())
            self.heard_at = time.monotonic()
            for _, payload in self.link.receive(packet):
                self._send_at = min(self._send_at, self.heard_at + CONFIRM_WITHIN_S)
                yield payload

    def confirm(self) -> None:
        """Everything received is finished with."""
        self.link.confirm()

    def flush(self, *, at_once: bool = False) -> None:
        """Send what is new and due, or everything ``at_once``; and what is due for repetition."""
        if not self._connected and not self._connect():
            return
        now = time.monotonic()
        if now >= self._send_at or (at_once and self._send_at < math.inf):
            self._send_at, self._sent_at = math.inf, now
            packets = list(iter(self.link.fresh, None)) or [self.link.confirmation()]
            for packet in packets:
                self.socket.send(encode_packet(packet))
        if now >= self._repeat_at:
            self.socket.send(encode_packet(self.link.again()))
            self._repeat_at = now + self._repeat_s

    def wait_ms(self) -> int:
        """How long one may wait for messages before the next ``flush`` is due."""
        if not self._connected:
            return _LOOK_AGAIN_MS
        due = min(self._repeat_at, self._send_at)
        return max(0, int(1000 * (due - time.monotonic())) + 1)

    def _connect(self) -> bool:
        endpoint = self._folder.controller_endpoint()
        if endpoint is not None:
            self.socket.connect(endpoint)
            self._connected = True
        return self._connected


class DataEnd:
    """Requests and transfers between workers and servers. ``listen``: where a server binds.

    Without ``keys`` all ends are on one machine, and lend each other what is long.

    ``endpoint``: where a server is reached.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        name: str,
        poller: zmq.Poller,
        keys: Keys | None,
        listen: str | None = None,
    ) -> None:
        self._context = context
        self._name = name
        self._poller = poller
        self._keys = keys
        self._lending = Lending() if keys is None and Lending.possible() else None
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self._opened = 0
        self._unsent: dict[Peer | str, list[Message]] = {}
        self._listener = None if listen is None else Listener(context, listen, keys, poller)
        self.endpoint = "" if self._listener is None else self._listener.endpoint

    def put(self, item: Send | Reply) -> None:
        """To be sent with the next ``flush``; what goes to one place goes as one message of several parts."""
        place = item.peer if isinstance(item, Send) else item.to
        self._unsent.setdefault(place, []).append(item.message)

    def flush(self) -> None:
        for place, messages in self._unsent.items():
            frames = encode(messages)
            if self._lending is not None:
                # What a server sends to another by itself becomes part of a model there.
                kept = isinstance(place, Peer) and self._listener is not None
                name = place.endpoint if isinstance(place, Peer) else place
                frames = self._lending.sent(name, frames, kept=kept)
            if isinstance(place, Peer):
                send_frames(self._to(place), frames)
            elif self._listener is not None:
                send_frames(self._listener.socket, [place.encode(), *frames])
        self._unsent.clear()

    def receive(self) -> Iterator[tuple[str, Message]]:
        """What has come, without waiting, with the name of who sent it (servers only know workers' names).

        Answers to what came together are flushed together.
        """
        for sender, frames in () if self._listener is None else self._listener.receive():
            yield from ((sender, message) for message in self._messages(sender, frames))
            self.flush()
        for endpoint, socket in tuple(self._peers.items()):
            while has_message(socket):
                yield from (("", message) for message in self._messages(endpoint, receive_frames(socket)))
                self.flush()

    def _messages(self, sender: str, frames: Sequence[Buffer]) -> list[Message]:
        """In the order in which they were put; none where what was lent with them is lost."""
        found = frames if self._lending is None else self._lending.received(sender, frames)
        return [] if found is None else decode(found)

    @property
    def calls(self) -> bool:
        """Whether there are sockets to servers."""
        return bool(self._peers)

    def keep_only(self, endpoints: Set[str]) -> None:
        """Close the sockets to servers that are not asked any more."""
        self.flush()
        for endpoint in self._peers.keys() - endpoints:
            if self._lending is not None:
                self._lending.forget(endpoint)
            socket = self._peers.pop(endpoint)
            self._poller.unregister(socket)
            socket.close()

    def _to(self, peer: Peer) -> zmq.Socket[bytes]:
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
