"""Wraps sockets around the pure cores: one end of a control link, and a role's data plane. ZeroMQ throughout.

A socket is used by one thread. Sends never block: what cannot be delivered is the business of the links
(control) or of the next assignment (data).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

import zmq

from agileml.node.transport.curve_keys import CurveKeys
from agileml.node.transport.link_end import CoordinatorAddress, LinkEnd
from agileml.node.transport.packet_codec import Buffer
from agileml.node.transport.reliable_link import Link
from agileml.node.transport.shared_memory import SharedMemoryLender
from agileml.node.transport.sockets import Listener, has_message, make_socket, receive_frames, send_frames
from agileml.protocol import wire
from agileml.protocol.events import ClockCompleted
from agileml.protocol.messages import Message, Peer, Reply, Send
from agileml.protocol.telemetry import Control, ObjectiveReport
from agileml.protocol.wire import decode_messages, encode_messages

_CAN_WAIT: Final = (ClockCompleted, ObjectiveReport)
"""News that nobody waits for, and that short clocks bring by the thousand."""


class ControlEnd(LinkEnd[Control]):
    """The end of a control link that connects: from a role, an agent or a client to the controller."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        controller: CoordinatorAddress,
        name: str,
        repeat_s: float,
        link: Link[Control] | None = None,
    ) -> None:
        super().__init__(context, controller, name, repeat_s, wire, link, _CAN_WAIT)


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
