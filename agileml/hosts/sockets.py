"""Sockets around the pure cores: one end of a control link, and a role's data plane. ZeroMQ throughout.

A socket is used by one thread. Sends never block: what cannot be delivered is the business of the links
(control) or of the next assignment (data).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Set
from typing import Any, Final

import zmq

from agileml.link import Link
from agileml.messages import Message, Peer, Reply, Send
from agileml.wire import Control, decode, decode_packet, encode, encode_packet

CLIENT: Final = "client"
"""The name under which whoever runs the machines calls the controller."""


def make_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, name: str = "") -> zmq.Socket[bytes]:
    """Unbounded queues; nothing lingers after close; comes back soon to a peer that was restarted."""
    made = context.socket(kind)
    made.setsockopt(zmq.SNDHWM, 0)
    made.setsockopt(zmq.RCVHWM, 0)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RECONNECT_IVL, 20)
    made.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    if name:
        made.setsockopt(zmq.IDENTITY, name.encode())
    return made


class ControlEnd:
    """The end of a control link that calls: of a role, an agent or a client, to the controller."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        name: str,
        repeat_s: float,
        link: Link[Control] | None = None,
    ) -> None:
        self.socket = make_socket(context, zmq.DEALER, name)
        self.socket.connect(endpoint)
        self.link: Link[Control] = link or Link()
        self.heard_at = time.monotonic()
        self._repeat_s = repeat_s
        self._repeat_at = 0.0
        self._must_confirm = False

    def tell(self, value: Control) -> None:
        self.link.send(value)

    def receive(self) -> Iterator[Control]:
        """What has come, without waiting."""
        while self.socket.poll(0):
            packet = decode_packet(self.socket.recv())
            self.heard_at = time.monotonic()
            for _, payload in self.link.receive(packet):
                self._must_confirm = True
                yield payload

    def confirm(self) -> None:
        """Everything received is finished with."""
        self.link.confirm()

    def flush(self) -> None:
        """Send what is new, and what is due for repetition."""
        while (packet := self.link.fresh()) is not None:
            self.socket.send(encode_packet(packet))
            self._must_confirm = False
        if self._must_confirm:
            self.socket.send(encode_packet(self.link.confirmation()))
            self._must_confirm = False
        if time.monotonic() >= self._repeat_at:
            self.socket.send(encode_packet(self.link.repeat()))
            self._repeat_at = time.monotonic() + self._repeat_s

    def wait_ms(self) -> int:
        """How long one may wait for messages before the next ``flush`` is due."""
        return max(0, int(1000 * (self._repeat_at - time.monotonic())) + 1)


class DataEnd:
    """Requests and transfers between workers and servers. ``listen``: a server's own endpoint."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        name: str,
        poller: zmq.Poller,
        listen: str | None = None,
    ) -> None:
        self._context = context
        self._name = name
        self._poller = poller
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self._listening: zmq.Socket[bytes] | None = None
        if listen is not None:
            self._listening = make_socket(context, zmq.ROUTER)
            self._listening.bind(listen)
            poller.register(self._listening, zmq.POLLIN)

    def send(self, outgoing: Send | Reply) -> None:
        frames: list[Any] = list(encode(outgoing.message))
        if isinstance(outgoing, Send):
            self._to(outgoing.peer).send_multipart(frames, copy=False)
        elif self._listening is not None:
            self._listening.send_multipart([outgoing.to.encode(), *frames], copy=False)

    def receive(self) -> Iterator[tuple[str, Message]]:
        """What has come, without waiting, with the name of who sent it (servers only know workers' names)."""
        while self._listening is not None and self._listening.poll(0):
            sender, *frames = self._listening.recv_multipart(copy=False)
            yield sender.bytes.decode(), decode([frame.buffer for frame in frames])
        for socket in tuple(self._peers.values()):
            while socket.poll(0):
                frames = socket.recv_multipart(copy=False)
                yield "", decode([frame.buffer for frame in frames])

    def keep_only(self, endpoints: Set[str]) -> None:
        """Close the sockets to servers that are not asked any more."""
        for endpoint in self._peers.keys() - endpoints:
            socket = self._peers.pop(endpoint)
            self._poller.unregister(socket)
            socket.close()

    def _to(self, peer: Peer) -> zmq.Socket[bytes]:
        socket = self._peers.get(peer.endpoint)
        if socket is None:
            socket = self._peers[peer.endpoint] = make_socket(self._context, zmq.DEALER, self._name)
            socket.connect(peer.endpoint)
            self._poller.register(socket, zmq.POLLIN)
        return socket
