"""Delivers messages once and in order, although packets and processes may be lost. Sans I/O.

Both ends number what they send, keep it until the other end confirms it, and repeat it when told to.
Confirmations are cumulative and explicit: an end confirms what it has made durable (or finished with), never
merely what it received. An end that is rebuilt from a journal sends again under the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Payload = TypeVar("Payload")

_BATCH = 256
"""The most payloads in one packet: repeating a long backlog costs many packets, each of bounded size."""
LONGEST_WAIT: Final = 8
"""The most turns between two repetitions. At 0.3 s each a warning that is lost five times in a row has cost 7
s of its 30; a backlog whose confirmation takes its time on a slow link goes out every 2.4 s.
"""


@dataclass(frozen=True, slots=True)
class Packet(Generic[Payload]):
    """Consecutive payloads numbered from ``first``. Everything up to ``confirmed`` came the other way."""

    confirmed: int
    first: int
    payloads: tuple[Payload, ...]


class Link(Generic[Payload]):
    """One end of a link. Numbers start at 1.

    ``sent``: the last number used before (a rebuilt end that keeps no backlog goes on after it);
    ``received``: the last number confirmed before; ``quiet``: send no payloads until the other end has
    spoken, and so has said what it still lacks (for an end rebuilt with its whole history as backlog).
    """

    def __init__(self, sent: int = 0, received: int = 0, *, quiet: bool = False) -> None:
        self._backlog: list[Payload] = []
        self._dropped = sent  # numbers up to here are confirmed
        self._offered = sent  # numbers up to here were sent at least once
        self._received = received
        self._confirmed = received
        self._quiet = quiet
        self._lacks = False
        self._turns = 0  # since anything was confirmed or repeated
        self._wait = 1

    @property
    def last_sent(self) -> int:
        """The last number given out."""
        return self._dropped + len(self._backlog)

    @property
    def unconfirmed_payloads(self) -> tuple[Payload, ...]:
        return tuple(self._backlog)

    @property
    def last_received(self) -> int:
        """The last number received."""
        return self._received

    @property
    def has_gap(self) -> bool:
        """Whether the other end has sent more than was received, as its last packet showed."""
        return self._lacks

    def send(self, payload: Payload) -> None:
        self._backlog.append(payload)

    def receive(self, packet: Packet[Payload]) -> tuple[tuple[int, Payload], ...]:
        """Returns what is new, in order, with its numbers. A gap is left for the repetition to fill."""
        self._quiet = False
        confirmed = min(max(packet.confirmed, self._dropped), self.last_sent)
        if confirmed > self._dropped:
            self._turns = 0
        del self._backlog[: confirmed - self._dropped]
        self._dropped = confirmed
        if not self._backlog:
            self._wait = 1
        self._offered = max(self._offered, confirmed)
        self._lacks = packet.first > self._received + 1
        if self._lacks:
            return ()
        # Repetitions overlap what is known; only the rest is new.
        new = tuple(enumerate(packet.payloads, packet.first))[self._received + 1 - packet.first :]
        self._received += len(new)
        return new

    def mark_replayed(self, number: int) -> None:
        """Records that a payload under this number is in the journal: it was received and is durable."""
        self._received = self._confirmed = max(self._received, number)

    def confirm(self) -> None:
        """Confirms, with the next packet, that everything received so far is durable."""
        self._confirmed = self._received

    def next_fresh(self) -> Packet[Payload] | None:
        """Returns what was never sent; None when there is nothing."""
        return None if self._quiet or self._offered >= self.last_sent else self._make_packet(self._offered)

    def make_confirmation(self) -> Packet[Payload]:
        """Returns a packet with only what is confirmed, as a sign of life."""
        return Packet(self._confirmed, self._offered + 1, ())

    def repeat_in_turn(self) -> Packet[Payload]:
        """Returns a sign of life or, when its turn has come, ``repeat``. Call it in turns as far apart as
        signs of life.

        Where nothing was confirmed for one turn all is repeated, then after 2, 4 and so on up to
        ``LONGEST_WAIT``: a link that is slow carries each repetition behind all the others. Once all is
        confirmed this begins anew.
        """
        self._turns = self._turns + 1 if self.unconfirmed_payloads else 0
        if self._turns < self._wait:
            return self.make_confirmation()
        self._turns, self._wait = 0, min(2 * self._wait, LONGEST_WAIT)
        return self.repeat()

    def repeat_soon(self) -> None:
        """Repeats all that is unconfirmed in the next turn: the other end is back after a silence."""
        self._turns, self._wait = 1, 1

    def repeat(self) -> Packet[Payload]:
        """Returns everything unconfirmed, up to a bound."""
        return (
            Packet(self._confirmed, self._dropped + 1, ())
            if self._quiet
            else self._make_packet(self._dropped)
        )

    def _make_packet(self, after: int) -> Packet[Payload]:
        start = after - self._dropped
        payloads = tuple(self._backlog[start : start + _BATCH])
        self._offered = max(self._offered, after + len(payloads))
        return Packet(self._confirmed, after + 1, payloads)
