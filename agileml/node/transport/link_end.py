"""Connects a machine's process to the one that coordinates its job, over a link that loses nothing.

A socket is used by one thread. Sends never block: what cannot be delivered is repeated by the link.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

import zmq

from agileml.node.transport.curve_keys import CurveKeys
from agileml.node.transport.packet_codec import PacketCodec
from agileml.node.transport.reliable_link import Link
from agileml.node.transport.sockets import has_message, make_socket

T = TypeVar("T")
_LOOK_AGAIN_MS: Final = 50
"""The time between two looks whether the coordinator of a job on a network has said where it listens."""
_NEWS_EVERY_S: Final = 0.02
"""The time between two packets of nothing but news that can wait; the first after a pause goes at once."""
_AWAY_TURNS: Final = 3
"""A coordinator that was silent for so many turns was away, or is another process."""
CONFIRM_WITHIN_S: Final = 0.02
"""How long a confirmation waits for a packet to go with. Well below the time after which anything is
repeated.
"""


class CoordinatorAddress(Protocol):
    """Where a job's coordinator is found: the job's folder, or what a machine was given when it started."""

    def read_keys(self) -> CurveKeys | None:
        """Returns the keys of a job on a network; None where all processes share one machine."""

    def coordinator_endpoint(self) -> str | None:
        """Returns where the coordinator listens; None before it has said so."""


class LinkEnd(Generic[T]):
    """The end of a link that connects: from a machine's process, or a client, to the coordinator.

    It may be made before the coordinator says where it is, and connects as soon as it does.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        coordinator: CoordinatorAddress,
        name: str,
        repeat_s: float,
        codec: PacketCodec[T],
        link: Link[T] | None = None,
        can_wait: tuple[type, ...] = (),
    ) -> None:
        """``repeat_s``: seconds between signs of life. ``can_wait``: news that nobody waits for, and that may
        come by the thousand.
        """
        self.socket = make_socket(context, zmq.DEALER, name, coordinator.read_keys())
        self._coordinator = coordinator
        self._codec = codec
        self._can_wait = can_wait
        self._connected = False
        self.link: Link[T] = link or Link()
        self.heard_at = time.monotonic()
        self._repeat_s = repeat_s
        self._repeat_at = 0.0
        self._sent_at = 0.0
        self._send_at = math.inf
        """When what is new, or a confirmation, goes at the latest."""

    def queue_message(self, value: T) -> None:
        self.link.send(value)
        wait_s = _NEWS_EVERY_S if isinstance(value, self._can_wait) else 0.0
        self._send_at = min(self._send_at, self._sent_at + wait_s)

    def receive(self) -> Iterator[T]:
        """Yields what has arrived, without waiting."""
        while has_message(self.socket):
            packet = self._codec.decode_packet(self.socket.recv())
            if time.monotonic() - self.heard_at > _AWAY_TURNS * self._repeat_s:
                self._repeat_at = 0.0
                self.link.repeat_soon()
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
                self.socket.send(self._codec.encode_packet(packet))
        if now >= self._repeat_at:
            self.socket.send(self._codec.encode_packet(self.link.repeat_in_turn()))
            self._repeat_at = now + self._repeat_s

    def wait_ms(self) -> int:
        """Returns how long the caller may wait for messages before the next ``flush`` is due."""
        if not self._connected:
            return _LOOK_AGAIN_MS
        due = min(self._repeat_at, self._send_at)
        return max(0, int(1000 * (due - time.monotonic())) + 1)

    def _try_connect(self) -> bool:
        endpoint = self._coordinator.coordinator_endpoint()
        if endpoint is not None:
            self.socket.connect(endpoint)
            self._connected = True
        return self._connected
