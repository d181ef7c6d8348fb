"""Tests how often a link repeats itself, in virtual time: what that costs a slow wire, and a lost packet."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agileml.node.transport.reliable_link import LONGEST_WAIT, Link, Packet

TURN_S = 0.3
LATENCY_S = 0.01
Turn: TypeAlias = Callable[[Link[int]], Packet[int]]


def every_turn(link: Link[int]) -> Packet[int]:
    """Repeats all that is not confirmed, each time."""
    return link.repeat()


@dataclass
class Wire:
    """One end sends, the other confirms at once, which costs nothing. ``lost``: packets, by number."""

    turn: Turn
    payload_s: float
    lost: frozenset[int] = frozenset()
    near: Link[int] = field(default_factory=Link)
    far: Link[int] = field(default_factory=Link)
    arrived_at: dict[int, float] = field(default_factory=dict)
    carried: int = 0
    """Payloads, repeated ones too."""
    free_at: float = 0.0

    def run(self, sends: Sequence[float], until: float) -> Wire:
        turns = [number * TURN_S for number in range(1, int(until / TURN_S) + 1)]
        order = itertools.count()
        agenda: list[tuple[float, int, str, Packet[int]]] = []
        nothing: Packet[int] = Packet(0, 1, ())
        agenda += [(at, next(order), "send", nothing) for at in sends]
        agenda += [(at, next(order), "turn", nothing) for at in turns]
        heapq.heapify(agenda)
        packets = itertools.count(1)
        while agenda:
            now, _, what, packet = heapq.heappop(agenda)
            out = None
            match what:
                case "send":
                    self.near.send(self.near.last_sent + 1)
                    out = self.near.next_fresh()
                case "turn":
                    out = self.turn(self.near)
                case "there":
                    for number, _ in self.far.receive(packet):
                        self.arrived_at[number] = now
                    self.far.confirm()
                    back = self.far.make_confirmation()
                    heapq.heappush(agenda, (now + LATENCY_S, next(order), "back", back))
                case "back":
                    self.near.receive(packet)
            if out is not None:
                self.carried += len(out.payloads)
                self.free_at = max(self.free_at, now) + self.payload_s * len(out.payloads)
                if next(packets) not in self.lost:
                    heapq.heappush(agenda, (self.free_at + LATENCY_S, next(order), "there", out))
        return self


@given(
    st.lists(st.floats(0, 20), min_size=1, max_size=40).map(sorted),
    st.sampled_from([0.0, 0.001, 0.03, 0.2, 1.0]),
)
def test_where_nothing_is_lost_nothing_is_later_and_less_is_carried(
    sends: list[float], payload_s: float
) -> None:
    before, now = (Wire(turn, payload_s).run(sends, 60.0) for turn in (every_turn, Link.repeat_in_turn))
    assert now.arrived_at.keys() == before.arrived_at.keys() == set(range(1, len(sends) + 1))
    assert all(now.arrived_at[number] <= before.arrived_at[number] + 1e-9 for number in now.arrived_at)
    assert now.carried <= before.carried


def test_a_slow_link_is_not_filled_by_repetitions() -> None:
    """It carries a payload in a second and is given one every three: room enough, but for repeating all."""
    sends = [3.0 * number for number in range(40)]
    before, now = (Wire(turn, 1.0).run(sends, 120.0) for turn in (every_turn, Link.repeat_in_turn))
    late_before, late = (
        max(wire.arrived_at[number] - at for number, at in enumerate(sends, start=1))
        for wire in (before, now)
    )
    assert late_before > 60.0
    assert late < 10.0


@pytest.mark.parametrize(("times", "most_s"), [(1, 0.3), (2, 0.9), (3, 2.1), (4, 4.5), (5, 6.9), (6, 9.3)])
def test_a_word_that_is_lost_over_and_over_is_there_well_within_a_notice(times: int, most_s: float) -> None:
    """Its first packet and its repetitions; the signs of life between them arrive."""
    repeated = (1, 3, 7, 15, 23, 31)[: times - 1]
    wire = Wire(Link.repeat_in_turn, 0.0, frozenset([1, *(turn + 1 for turn in repeated)])).run([0.0], 20.0)
    assert wire.arrived_at[1] == pytest.approx(most_s + LATENCY_S)


def test_after_all_is_confirmed_the_next_word_is_repeated_as_soon_as_the_first_was() -> None:
    link: Link[int] = Link()
    link.send(1)
    for _ in range(3 * LONGEST_WAIT):
        link.repeat_in_turn()
    link.receive(Packet(confirmed=1, first=1, payloads=()))
    link.send(2)
    assert link.repeat_in_turn().payloads == (2,)


def test_signs_of_life_are_given_every_turn() -> None:
    link: Link[int] = Link()
    link.send(1)
    link.confirm()
    packets = [link.repeat_in_turn() for _ in range(4 * LONGEST_WAIT)]
    assert len(packets) == 4 * LONGEST_WAIT
    assert [number for number, packet in enumerate(packets, start=1) if packet.payloads] == [
        1,
        3,
        7,
        15,
        23,
        31,
    ]
