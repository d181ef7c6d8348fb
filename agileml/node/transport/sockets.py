"""Makes ZeroMQ sockets as every process here uses them: unbounded, encrypted on a network, never blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import zmq

from agileml.node.transport.curve_keys import CurveAuthenticator, CurveKeys
from agileml.node.transport.packet_codec import Buffer

_IN: Final = int(zmq.POLLIN)


_VANISHED_AFTER_S: Final = 30
"""Many times what a packet takes on a slow link with long queues."""


def make_socket(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, name: str = "", keys: CurveKeys | None = None
) -> zmq.Socket[bytes]:
    """Makes a socket with unbounded queues, which drops them on close, and reconnects soon to a restarted
    peer.

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
        keys.secure_socket(made, listens=kind == zmq.ROUTER)
        made.setsockopt(zmq.IPV6, int(kind != zmq.ROUTER))
        end_with_silence(made, _VANISHED_AFTER_S)
    return made


def end_with_silence(socket: zmq.Socket[bytes], after_s: int) -> None:
    """Ends the socket's connections to machines that gave no sign of life for so long.

    Any packet is one, and kernels ask for them. ZeroMQ has heartbeats of its own, but to those only whole
    frames are signs: an array that takes longer to arrive would be cut off, sent again, and cut off again. A
    connection attempt that nobody accepts for so long is made anew, since a kernel asks again at ever longer
    intervals.
    """
    socket.setsockopt(zmq.CONNECT_TIMEOUT, 1000 * after_s)
    socket.setsockopt(zmq.TCP_MAXRT, 1000 * after_s)  # of what is under way
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)  # while there is nothing
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, max(1, after_s // 3))
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, max(1, after_s // 6))
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 4)


def listening_endpoint(socket: zmq.Socket[bytes]) -> str:
    """Returns where a socket listens, with the port that the system chose."""
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b"\0").decode()


def has_message(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message can be received at once. This costs a tenth of ``socket.poll(0)``, which makes a
    poller.
    """
    events = socket.getsockopt(zmq.EVENTS)
    return isinstance(events, int) and bool(events & _IN)


def send_frames(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """Sends frames as one message. Long frames are not copied, and must not change until they are sent.

    It costs half of ``send_multipart``, which looks at all of them twice; so does ``receive_frames``.
    """
    last = len(frames) - 1
    for number, frame in enumerate(frames):
        copy = len(frame) < zmq.COPY_THRESHOLD
        socket.send(frame, zmq.SNDMORE if number < last else 0, copy=copy)


def receive_frames(socket: zmq.Socket[bytes]) -> list[memoryview]:
    """Returns the frames of one message that is there, without a copy."""
    frame = socket.recv(copy=False)
    frames = [frame.buffer]
    while frame.more:
        frame = socket.recv(copy=False)
        frames.append(frame.buffer)
    return frames


class Listener:
    """The ROUTER socket that peers connect to. ``endpoint``: where, with the port that the system chose."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        keys: CurveKeys | None,
        poller: zmq.Poller,
    ) -> None:
        """A peer that connects again takes over its name from its old connection, which may be dead
        unnoticed.
        """
        self._doorkeeper = None if keys is None else CurveAuthenticator(context, keys)
        self.socket = make_socket(context, zmq.ROUTER, keys=keys)
        # Without it a peer that connects again is refused for as long as its dead connection goes unnoticed.
        self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if "[" in endpoint:
            self.socket.setsockopt(zmq.IPV6, 1)
        self.socket.bind(endpoint)
        self.endpoint = listening_endpoint(self.socket)
        poller.register(self.socket, zmq.POLLIN)
        if self._doorkeeper is not None:
            poller.register(self._doorkeeper.socket, zmq.POLLIN)

    def receive(self) -> Iterator[tuple[str, list[memoryview]]]:
        """Yields what has arrived, without waiting, with its sender's name."""
        if self._doorkeeper is not None:
            self._doorkeeper.answer_requests()
        while has_message(self.socket):
            sender, *frames = receive_frames(self.socket)
            yield str(sender, "utf-8"), frames
