"""Servers and workers together, told what to do by hand: hand-overs, roll-backs, back-ups and drains."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from agileml.protocol.commands import Advance, Forget, Handover, Restore, Rollback
from agileml.protocol.events import BackedUp, Drained, Setup
from agileml.protocol.messages import (
    Moved,
    Patch,
    ProtocolError,
    Push,
    PushDone,
    Read,
    ReadDone,
    ReadPart,
    Reply,
    Send,
    Update,
)
from agileml.server.backup_ranges import BackupRanges
from agileml.server.partition import PartitionState
from agileml.server.pending_requests import RequestPart
from agileml.server.reads_and_updates import WAIT, answer_part
from agileml.server.replica import Replica, ReplicaRole
from agileml.sync.bounded_staleness import make_barrier
from tests.agileml.simulated.fabric import Fabric, assignment, peer, toy_delta
from tests.agileml.simulated.two_workers import (
    SETUP,
    created,
    hand_over,
    on_two_actives,
    run_to_the_end,
    start,
    step,
)


def test_two_workers_compute_what_a_plain_loop_computes() -> None:
    fabric = created()
    start(fabric)
    fabric.run()
    assert fabric.completed(0) == fabric.completed(1) == [1, 2, 3, 4, 5, 6]
    run_to_the_end(fabric)


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 5])
def test_stage_one_to_two_to_one_in_the_middle_of_a_clock(pieces: int) -> None:
    fabric = created()
    start(fabric)
    step(fabric, pieces)
    hand_over(fabric, "r", "a", 2, keep=True)
    fabric.run()  # what is sent to the old owner meanwhile is refused
    assert fabric.servers["r"].role_of(0) is ReplicaRole.BACKUP
    start(fabric, ("a", "a"), (2, 2), version=2)
    step(fabric, 3)
    hand_over(fabric, "a", "r", 3, keep=False, back=True)
    fabric.deliver()
    assert fabric.servers["r"].role_of(0) is ReplicaRole.SERVING
    start(fabric, ("r", "r"), (3, 3), version=3)
    for partition in range(2):
        fabric.command(Forget("a", partition, 3))
    assert fabric.servers["a"].role_of(0) is None
    run_to_the_end(fabric)


def test_between_actives_the_new_one_repeats_what_the_backup_may_lack() -> None:
    fabric = created()
    start(fabric)
    hand_over(fabric, "r", "a", 2, keep=True)
    fabric.deliver()
    start(fabric, ("a", "a"), (2, 2), version=2)
    reader = fabric.servers.pop("r")  # what is pushed now is lost on the way
    step(fabric, 2)
    assert fabric.completed(0) == [1]
    hand_over(fabric, "a", "b", 3, keep=False)
    fabric.servers["r"] = reader
    fabric.deliver()
    del fabric.servers["a"]
    start(fabric, ("b", "b"), (3, 3), version=3)
    run_to_the_end(fabric)


def test_a_hand_over_is_called_off_when_its_target_dies() -> None:
    fabric = created()
    start(fabric)
    step(fabric, 1)
    del fabric.servers["b"]
    hand_over(fabric, "r", "b", 2, keep=True)
    fabric.deliver()
    hand_over(fabric, "r", "r", 3, keep=False)
    assert fabric.servers["r"].role_of(1) is ReplicaRole.SERVING
    start(fabric, ("r", "r"), (3, 3), version=2)
    run_to_the_end(fabric)


@pytest.mark.parametrize("consistent", [0, 1, 2])
@pytest.mark.parametrize("new_owner", ["r", "a"])
def test_a_lost_active_costs_the_clocks_since_b_and_no_bit(consistent: int, new_owner: str) -> None:
    fabric = on_two_actives()
    assert fabric.completed(0) == [1, 2]  # no further: clock 3 is not read before clock 1 is known backed up
    for name in fabric.servers:
        fabric.command(Advance(name, 0, consistent))
    del fabric.servers["b"]
    fabric.command(Restore("r", 1, new_owner, peer(new_owner).endpoint, 3, 1, consistent))
    start(fabric, ("a", new_owner), (2, 3), version=2, generation=1, clock=consistent + 1)
    fabric.deliver()  # the new generation is asked of "a" before it knows of it
    fabric.command(Rollback("a", 0, 2, 1, consistent))
    fabric.deliver()
    if new_owner == "r":  # partition 1 has no backup any more: what it completed counts
        fabric.events += [BackedUp("r", 1, 1, clock) for clock in range(SETUP.clocks + 1)]
    run_to_the_end(fabric, generation=1)


def test_a_backup_returns_to_b_when_the_first_push_of_a_generation_says_so() -> None:
    fabric = on_two_actives()
    for partition, active in enumerate(("a", "b")):
        fabric.command(Rollback(active, partition, 2, 1, 1))
    start(fabric, ("a", "b"), (2, 2), version=2, generation=1, clock=2)
    run_to_the_end(fabric, generation=1)


def test_a_dead_workers_half_pushed_clock_is_not_counted_twice() -> None:
    fabric = created()
    fabric.command(Handover("r", 1, "a", peer("a").endpoint, 2, 0, False, False, None))
    fabric.deliver()
    start(fabric, ("r", "a"), (1, 2))
    fabric.deliver()
    unreached = fabric.servers.pop("a")
    while fabric.compute_one("w1"):
        pass
    del fabric.workers["w1"]
    fabric.servers["a"] = unreached
    whole = assignment(fabric, "w2", (0, 1, 2, 3), ("r", "a"), epochs=(1, 2), version=2)
    fabric.assign(whole)
    fabric.run()
    run_to_the_end(fabric)


def drained(fabric: Fabric) -> list[Drained]:
    return [event for event in fabric.events if isinstance(event, Drained)]


def test_a_drained_worker_pushes_the_clock_in_hand_and_starts_no_other() -> None:
    fabric = created()
    start(fabric)
    step(fabric, 1)
    fabric.assign(assignment(fabric, "w1", (), ("r", "r"), version=2, drain=True))
    assert drained(fabric) == []
    fabric.run()
    assert len(drained(fabric)) == 1
    assert fabric.completed(0) == [1]
    fabric.assign(assignment(fabric, "w2", (0, 1, 2, 3), ("r", "r"), version=2))
    run_to_the_end(fabric)


def one_has_delivered() -> Fabric:
    """Clock 1 of its shards, which the other one has only read for."""
    fabric = created()
    start(fabric)
    fabric.deliver()
    while fabric.compute_one("w1"):
        pass
    return fabric


def test_who_drains_goes_on_reading_what_is_there_already() -> None:
    fabric = created()
    start(fabric)  # both have asked for clock 1, and the wire is full
    fabric.assign(assignment(fabric, "w1", (0, 2), ("r", "r"), version=2, drain=True))
    assert drained(fabric) == []
    fabric.run()
    assert [event.delivered for event in drained(fabric)] == [((0, 1), (2, 1))]
    assert fabric.completed(0) == [1]


def test_who_drains_waits_for_nobody() -> None:
    """Others may leave as well, and compute nothing any more."""
    fabric = one_has_delivered()
    assert fabric.workers["w1"].current_clock == 2, "it reads what is there when the other one has pushed"
    fabric.assign(assignment(fabric, "w1", (0, 2), ("r", "r"), version=2, drain=True))
    assert [event.delivered for event in drained(fabric)] == [((0, 1), (2, 1))]


def test_what_another_has_delivered_is_not_read_again() -> None:
    fabric = one_has_delivered()
    whole = assignment(fabric, "w2", (0, 1, 2, 3), ("r", "r"), version=2)
    fabric.sent.clear()
    fabric.assign(replace(whole, delivered=((0, 1), (2, 1))))
    fabric.deliver()
    assert [work.shard for work in fabric.workers["w2"].take_work()] == [1, 3]
    run_to_the_end(fabric)
    reads = [sent for sent in fabric.sent if isinstance(sent, Read) and sent.clock == 1]
    assert reads == []


def test_what_was_delivered_in_a_generation_before_is_computed_again() -> None:
    fabric = created()
    whole = assignment(fabric, "w1", (0, 1, 2, 3), ("r", "r"))
    fabric.assign(replace(whole, delivered=((0, 1), (1, 1), (2, 1), (3, 1))))
    for partition in range(2):
        fabric.command(Rollback("r", partition, 1, 1, 0))
    fabric.assign(assignment(fabric, "w1", (0, 1, 2, 3), ("r", "r"), version=2, generation=1))
    run_to_the_end(fabric, generation=1)


def test_too_short_a_notice_abandons_the_clock_in_hand() -> None:
    fabric = created()
    start(fabric)
    step(fabric, 1)
    fabric.assign(assignment(fabric, "w1", (), ("r", "r"), version=2, drain=True))
    fabric.take("w1", fabric.workers["w1"].abandon_task())
    assert len(drained(fabric)) == 1
    fabric.assign(assignment(fabric, "w2", (0, 1, 2, 3), ("r", "r"), version=2))
    run_to_the_end(fabric)


def test_starting_too_early_is_harmless() -> None:
    fabric = created()
    start(fabric)
    step(fabric, 6)
    assert fabric.completed(0) == [1, 2, 3]
    late = fabric.add_worker("w3")
    fabric.assign(assignment(fabric, "w3", (0, 1), ("r", "r"), clock=1))
    fabric.deliver()
    assert late.current_clock == 3  # clock 3 is over here, so 2 is over everywhere
    run_to_the_end(fabric)


def test_staleness_lets_a_worker_run_ahead_by_s_clocks_and_no_more() -> None:
    setup = Setup(partitions=2, shards=4, clocks=20, staleness=2)
    fabric = created(setup)
    fabric.assign(assignment(fabric, "w1", (0, 2), ("r", "r")))
    fabric.run()
    assert fabric.workers["w1"].current_clock == 4  # which reads clock 1
    assert fabric.completed(0) == []
    fabric.assign(assignment(fabric, "w2", (1, 3), ("r", "r")))
    fabric.run()
    while (known := fabric.completed(0)[-1]) < 20:
        fabric.command(Advance("r", 0, known))  # without which a server runs only so far ahead
        fabric.run()
        assert fabric.completed(0)[-1] > known


def test_stale_epochs_are_refused_and_newer_ones_wait() -> None:
    server = created().servers["r"]
    part = ReadPart(0, 0, np.array([0]))
    assert server.handle_message("w", Read(1, 0, 1, (part,))) == (Reply("w", Moved(1, 0)),)
    assert server.handle_message("w", Read(2, 0, 1, (ReadPart(0, 2, part.rows),))) == ()
    assert server.handle_message("w", Read(3, 1, 1, (ReadPart(0, 1, part.rows),))) == ()


def test_forgetting_a_served_partition_is_a_bug_and_told_so() -> None:
    fabric = created()
    with pytest.raises(ProtocolError, match="told to forget partition 0 it serves"):
        fabric.command(Forget("r", 0, 1))


def test_a_copy_that_is_forgotten_on_its_way_is_not_installed() -> None:
    fabric = created()
    hand_over(fabric, "r", "b", 2, keep=False)
    for partition in range(2):
        fabric.command(Forget("b", partition, 3))
    fabric.deliver()
    assert fabric.servers["b"].role_of(0) is None


def test_pushes_that_come_early_and_twice_are_applied_in_order_and_once() -> None:
    fabric = created()
    hand_over(fabric, "r", "a", 2, keep=True)
    backup = fabric.servers["r"]
    rows = np.array([0, 1])
    pushes = [
        Push(0, 0, 0, clock - 1, clock, Patch(rows, np.full((2, 2), clock, np.float32))) for clock in (1, 2)
    ]
    assert backup.handle_message("a", pushes[1]) == backup.handle_message("b", pushes[1]) == ()
    told = backup.handle_message("a", pushes[0])
    assert told == (
        *(BackedUp("r", 0, 0, 1), Reply("a", PushDone(0, 0, 1))),
        *(BackedUp("r", 0, 0, 2), Reply("a", PushDone(0, 0, 2)), Reply("b", PushDone(0, 0, 2))),
    )


def test_connections_are_kept_while_something_may_be_on_its_way() -> None:
    fabric = created()
    server = fabric.servers["r"]
    hand_over(fabric, "r", "a", 2, keep=False)
    assert server.open_endpoints == {peer("a").endpoint}
    fabric.deliver()
    for partition in range(2):
        fabric.command(Forget("r", partition, 2))
    assert server.open_endpoints == frozenset()


# ---- assignments that change in the middle of a clock ------------------------------------------------


def give(fabric: Fabric, machine: str, shards: tuple[int, ...], version: int) -> None:
    fabric.assign(assignment(fabric, machine, shards, ("r", "r"), version=version))


def test_what_was_computed_is_pushed_although_others_take_over_the_shards() -> None:
    fabric = created()
    give(fabric, "w1", (0, 1, 2, 3), version=1)
    step(fabric, 2)
    give(fabric, "w1", (0, 3), version=2)
    assert [work.shard for work in fabric.workers["w1"].take_work()] == [3]  # 1 is done, and 2 is not begun
    step(fabric, 1)
    assert fabric.completed(0) == []
    give(fabric, "w2", (1, 2), version=2)
    step(fabric, 2)
    assert fabric.completed(0) == [1]
    run_to_the_end(fabric)


def test_the_first_shard_is_pushed_by_its_owner_alone_who_says_where_ranges_end() -> None:
    fabric = created()
    give(fabric, "w1", (0, 1, 2, 3), version=1)
    step(fabric, 2)
    give(fabric, "w1", (2, 3), version=2)
    step(fabric, 2)
    assert fabric.completed(0) == []
    give(fabric, "w2", (0, 1), version=2)
    step(fabric, 2)
    assert fabric.completed(0) == [1]
    run_to_the_end(fabric)


def test_shards_that_are_gained_are_read_while_others_are_computed() -> None:
    fabric = created()
    give(fabric, "w1", (0, 2), version=1)
    step(fabric, 1)
    fabric.sent.clear()
    give(fabric, "w1", (0, 1, 2, 3), version=2)
    fabric.run()
    asked = [(type(sent), sent.clock) for sent in fabric.sent if isinstance(sent, Read | Update)]
    assert asked[:4] == [(Read, 1), (Update, 1), (Update, 1), (Read, 2)]
    run_to_the_end(fabric)


def test_what_was_read_while_the_same_clock_is_pushed_is_not_read_again() -> None:
    fabric = created()
    give(fabric, "w1", (0, 2), version=1)
    step(fabric, 1)
    worker = fabric.workers["w1"]
    orders = assignment(fabric, "w1", (0, 1, 2, 3), ("r", "r"), version=2)
    (read,) = (item.message for item in worker.take_assignment(orders) if isinstance(item, Send))
    assert isinstance(read, Read)
    (piece,) = worker.take_work()
    pushed = worker.take_result(piece, toy_delta(piece.shard, piece.clock, piece.values))
    for answer in fabric.servers["r"].handle_message("w1", read):
        assert isinstance(answer, Reply)
        assert isinstance(answer.message, ReadDone)
        assert worker.handle_answer(answer.message) == ()
    fabric.sent.clear()
    fabric.take("w1", pushed)
    fabric.deliver()
    assert [work.shard for work in worker.take_work()] == [1, 3], "it has all that it needs"
    assert {type(sent) for sent in fabric.sent} == {Update}
    run_to_the_end(fabric)


def test_a_read_goes_on_while_shards_come_and_go() -> None:
    fabric = created()
    worker = fabric.workers["w1"]
    changes = [(0, 2), (0, 1, 2), (0, 1)]
    orders = [
        assignment(fabric, "w1", shards, ("r", "r"), version=version)
        for version, shards in enumerate(changes, 1)
    ]
    assert [len(worker.take_assignment(assign)) for assign in orders] == [1, 0, 0]


@pytest.mark.parametrize(("mib", "ahead"), [(0.25, 64), (1, 64), (4, 16), (64, 8)])
def test_reads_go_as_far_without_the_controllers_word_as_undo_may_take(mib: float, ahead: int) -> None:
    values = np.zeros((1, int(mib * 2**18)), np.float32)
    answers, barrier = [], make_barrier(SETUP)
    for clock in (SETUP.lag_limit + ahead, SETUP.lag_limit + ahead + 1):
        state = PartitionState(values, clock - 1, barrier)
        held = Replica(
            0, state, ReplicaRole.SERVING, 1, generation=0, base=0, ranges=BackupRanges(state, backed=0)
        )
        part = ReadPart(0, 1, np.array([0]))
        answers.append(answer_part(RequestPart("w", 1, 0, clock, False, part), held, 0, barrier))
    assert isinstance(answers[0], ReadDone)
    assert answers[1] is WAIT
