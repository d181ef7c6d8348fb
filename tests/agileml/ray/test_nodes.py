"""Tests which nodes become machines, and when they are warned: pure, without Ray."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agileml.node.tier import Tier
from agileml.protocol.events import EvictionWarned, MachineJoined
from agileml.ray.nodes import UNHURRIED_S, Node, Roster

RELIABLE, SPOT = {"tier": "reliable"}, {"tier": "transient", "allocation": "a1"}


def seated(*nodes: Node) -> Roster:
    """All of them have a machine that runs, since time 0."""
    roster, new = Roster().seat_nodes(nodes, 0.0)
    for seat in new:
        roster, _ = roster.join_machine(seat.machine)
    return roster


def test_labelled_nodes_get_machines_reliable_ones_first() -> None:
    nodes = [
        Node("t" * 56, 2, SPOT),
        Node("r" * 56, 4, RELIABLE),
        Node("o" * 56, 8, {"ray.io/market-type": "on-demand"}),
        Node("head", 8, {}),
        Node("no CPUs", 0, RELIABLE),
        Node("leaving", 2, SPOT, drains_at=100.0),
    ]
    roster, new = Roster().seat_nodes(nodes, 0.0)
    assert [(seat.machine, seat.tier) for seat in new] == [
        ("reliable-oooooooooooo", Tier.RELIABLE),
        ("reliable-rrrrrrrrrrrr", Tier.RELIABLE),
        ("a1-tttttttttttt", Tier.TRANSIENT),
    ]
    assert roster.seat_nodes(nodes, 1.0) == (roster, ())
    _, joined = roster.join_machine("a1-tttttttttttt")
    assert joined == MachineJoined("a1-tttttttttttt", Tier.TRANSIENT, 2)


def test_a_tier_that_there_is_not_is_said_and_its_node_left_alone() -> None:
    """Such a node may join a cluster on which others train."""
    strange = Node("n1", 1, {"tier": "spot"})
    with pytest.raises(ValueError, match="node n1 is labelled tier=spot; a tier is reliable or transient"):
        assert strange.tier is None
    _, new = Roster().seat_nodes([strange, Node("n2", 1, RELIABLE)], 0.0)
    assert [seat.node.id for seat in new] == ["n2"]


def test_nodes_that_drain_by_the_same_time_are_warned_of_together_and_once() -> None:
    roster = seated(*(Node(name, 1, SPOT) for name in "abcd"))
    drains = [Node("a", 1, SPOT, 130.0), Node("b", 1, SPOT, 130.0), Node("c", 1, SPOT, math.inf)]
    roster, warned = roster.warn_draining([*drains, Node("d", 1, SPOT)], now=100.0)
    assert warned == (EvictionWarned(("a1-a", "a1-b"), 30.0), EvictionWarned(("a1-c",), UNHURRIED_S))
    assert roster.warn_draining(drains, now=101.0) == (roster, ())


def test_a_deadline_that_has_passed_leaves_no_notice() -> None:
    _, (warned,) = seated(Node("a", 1, SPOT)).warn_draining([Node("a", 1, SPOT, 130.0)], now=131.0)
    assert warned.notice_s == 0.0


def test_a_machine_is_warned_of_once_it_runs_and_not_before() -> None:
    roster, _ = Roster().seat_nodes([Node("a", 1, SPOT)], 0.0)
    drains = [Node("a", 1, SPOT, 130.0)]
    roster, early = roster.warn_draining(drains, now=100.0)
    assert early == ()
    roster, _ = roster.join_machine("a1-a")
    assert roster.warn_draining(drains, now=101.0)[1] == (EvictionWarned(("a1-a",), 29.0),)


def test_a_node_whose_machine_died_gets_another_with_a_name_of_its_own() -> None:
    node = Node("a", 1, SPOT)
    roster, (again,) = seated(node).without_machine("a1-a", now=60.0).seat_nodes([node], now=60.0)
    assert again.machine == "a1-a.2"
    assert (
        roster.without_machine("a1-a.2", now=61.0).seat_nodes([Node("a", 1, SPOT, 90.0)], now=61.0)[1] == ()
    )


def test_a_node_where_machines_die_at_once_is_left_alone_in_the_end() -> None:
    node, roster, names = Node("a", 1, SPOT), Roster(), []
    for now in range(10):
        roster, new = roster.seat_nodes([node], now)
        for seat in new:
            names.append(seat.machine)
            roster = roster.without_machine(seat.machine, now + 0.5)
    assert names == ["a1-a", "a1-a.2", "a1-a.3"]


def test_a_node_whose_machine_gave_up_is_left_alone() -> None:
    roster = seated(Node("a", 1, SPOT)).without_machine("a1-a", now=1000.0, gave_up=True)
    assert roster.seat_nodes([Node("a", 1, SPOT)], now=1000.0)[1] == ()


LABELS = st.sampled_from([RELIABLE, SPOT, {"tier": "transient"}, {}])
NODES = st.lists(
    st.builds(Node, st.sampled_from("abcdef"), st.integers(0, 2), LABELS, st.none() | st.floats(0, 200)),
    unique_by=lambda node: node.id,
)


@given(st.lists(st.tuples(NODES, st.integers(0, 5)), max_size=12))
def test_machines_and_nodes_stay_one_to_one_and_names_are_never_used_twice(
    looks: list[tuple[list[Node], int]],
) -> None:
    roster, names, warned = Roster(), set[str](), set[str]()
    for now, (nodes, dying) in enumerate(looks):
        roster, new = roster.seat_nodes(nodes, now)
        assert not names & {seat.machine for seat in new}
        names |= {seat.machine for seat in new}
        assert all(seat.tier and seat.node.cores and seat.node.drains_at is None for seat in new)
        for seat in new:
            roster, _ = roster.join_machine(seat.machine)
        roster, warnings = roster.warn_draining(nodes, now)
        told = [machine for warning in warnings for machine in warning.machines]
        assert len(set(told)) == len(told)
        assert not warned & set(told)
        warned |= set(told)
        homes = [seat.node.id for seat in roster.seats.values()]
        assert len(set(homes)) == len(homes)
        for machine in sorted(roster.seats)[:dying]:
            roster = roster.without_machine(machine, now)
