"""Tests what ActivePSs push to backups, however slow these are, and what they say at their end."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.protocol.commands import Handover, SaveModel
from agileml.protocol.events import BackedUp, Setup
from agileml.protocol.messages import EndOfLife, Install, Push, Read, ReadDone, ReadPart, Reply, Send
from tests.agileml.simulated.fabric import Fabric, peer, serial
from tests.agileml.simulated.two_workers import advance, on_two_actives, start, two_actives

LAGGING = Setup(partitions=2, shards=4, clocks=30, backup_lag=20)


def behind_slow_backups() -> Fabric:
    """Two actives, as far as reads are answered while no backup does."""
    fabric = two_actives(LAGGING)
    fabric.slow_backups = True
    start(fabric, ("a", "b"), (2, 2))
    fabric.run()
    assert fabric.completed(0)[-1] == fabric.completed(1)[-1] == LAGGING.lag_limit
    return fabric


def test_a_slow_backup_gets_one_range_at_a_time_and_the_next_is_long() -> None:
    fabric = behind_slow_backups()
    assert len(fabric.late) == LAGGING.partitions
    fabric.catch_up()
    backed = [event for event in fabric.events if isinstance(event, BackedUp) and event.partition == 0]
    assert [event.clock for event in backed] == [1, 2, LAGGING.lag_limit]


def test_what_undoes_the_clocks_since_b_does_not_grow_with_them() -> None:
    fabric = behind_slow_backups()
    order = Handover("a", 0, "b", peer("b").endpoint, 3, 0, False, False, peer("r"))
    moved = fabric.servers["a"].handle_command(order)
    (install,) = (item.message for item in moved if isinstance(item, Send))
    assert isinstance(install, Install)
    assert [(step.since, step.clock) for step in install.undo] == [(0, 1), (1, 2), (2, 19), (19, 20)]


@pytest.mark.parametrize("evicted", [False, True])
def test_no_bit_is_lost_behind_a_slow_backup(evicted: bool) -> None:
    """Whether it catches up, or an active hands over to another while it has not."""
    fabric = behind_slow_backups()
    owners, epochs = ("a", "b"), (2, 2)
    if evicted:
        fabric.late = [item for item in fabric.late if item[0] != "a"]  # which goes with what it was sending
        fabric.command(Handover("a", 0, "b", peer("b").endpoint, 3, 0, False, False, peer("r")))
        fabric.deliver()
        del fabric.servers["a"]
        owners, epochs = ("b", "b"), (3, 2)
    fabric.catch_up()
    start(fabric, owners, epochs, version=2)
    for _ in range(LAGGING.clocks):
        fabric.run()
        advance(fabric)
    fabric.command(SaveModel("r", 1, LAGGING.clocks, (0, 1)))
    assert fabric.model().tobytes() == serial(LAGGING, LAGGING.clocks).tobytes()


def told_last(fabric: Fabric) -> list[EndOfLife]:
    """Both actives end for good; what their last words are."""
    fabric.sent.clear()
    for partition, active in enumerate(("a", "b")):
        order = Handover(active, partition, "r", peer("r").endpoint, 3, 0, False, to_backup=True, backup=None)
        fabric.command(order)
    fabric.deliver()
    return [sent for sent in fabric.sent if isinstance(sent, EndOfLife)]


def read_late(fabric: Fabric, clock: int) -> None:
    """Reads from the backups that serve now, like a worker that recomputes what a dead one pushed in part."""
    parts = tuple(ReadPart(partition, 3, np.array([0])) for partition in range(2))
    said = fabric.servers["r"].handle_message("late", Read(99, 0, clock, parts))
    before = serial(LAGGING, clock - 1)
    assert [
        item.message.values.tobytes()
        for item in said
        if isinstance(item, Reply) and isinstance(item.message, ReadDone)
    ] == [before[:1].tobytes(), before[1:2].tobytes()]


def test_what_the_backup_overwrote_for_a_clock_that_came_alone_is_not_sent_once_more() -> None:
    fabric = on_two_actives()
    assert [(last.clock, last.undo) for last in told_last(fabric)] == [(2, ()), (2, ())]
    read_late(fabric, 2)


def test_what_undoes_the_last_clock_of_a_long_range_is_sent_after_it() -> None:
    fabric = behind_slow_backups()
    fabric.catch_up()
    clock = LAGGING.lag_limit
    steps = [(step.since, step.clock) for last in told_last(fabric) for step in last.undo]
    assert steps == [(clock - 1, clock)] * 2
    read_late(fabric, clock)


def test_what_undoes_the_last_clock_is_sent_where_a_longer_range_may_have_to_be_sent_again() -> None:
    """Two short ones were lost on their way, and go again as one."""
    fabric = two_actives()
    fabric.loses = (Push,)
    start(fabric, ("a", "b"), (2, 2))
    fabric.run()
    assert {len(last.undo) for last in told_last(fabric)} == {1}
    fabric.loses = ()
    fabric.look_back()
    read_late(fabric, 2)


def test_what_undoes_the_last_clock_is_sent_where_another_active_may_have_pushed_it_too() -> None:
    """In whatever range: only who completed a clock knows that nobody else has pushed it."""
    fabric = two_actives()
    fabric.slow_backups = True
    start(fabric, ("a", "b"), (2, 2))
    fabric.run()
    fabric.command(Handover("a", 0, "b", peer("b").endpoint, 3, 0, False, False, peer("r")))
    fabric.deliver()
    fabric.catch_up()
    assert [event.clock for event in fabric.events if isinstance(event, BackedUp)] == [1, 1, 2, 2]
    order = Handover("b", 0, "r", peer("r").endpoint, 4, 0, False, to_backup=True, backup=None)
    said = [item.message for item in fabric.servers["b"].handle_command(order) if isinstance(item, Send)]
    (last,) = (message for message in said if isinstance(message, EndOfLife))
    assert [(step.since, step.clock) for step in last.undo] == [(1, 2)]
