"""Many machines that come, leave or die together are one decision: what it costs, by counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from agileml.protocol.commands import Assign, Command, Handover, Restore, Rollback, RolledBack, SafeToKill
from agileml.protocol.events import (
    Drained,
    Event,
    EvictionWarned,
    Loaded,
    MachineJoined,
    MachineLost,
    ServerReady,
    Stage,
    WorkerReady,
)
from tests.agileml.simulated.job import TRANSIENT, Job, one_on_its_way, only

RELIABLE_NAMES = ("r0", "r1", "r2", "r3")


def names(many: int) -> tuple[str, ...]:
    return tuple(f"t{number}" for number in range(many))


def four_machines(many: int) -> Job:
    """Four reliable machines in the midst of training, with room for ``many`` more."""
    job = Job(partitions=(many + 4) // 2, shards=4 * (many + 4), clocks=1000)
    job.up(*RELIABLE_NAMES)
    job.next_clock()
    return job


def arrivals(machine: str) -> tuple[Event, ...]:
    return (
        MachineJoined(machine, TRANSIENT, 2),
        ServerReady(machine, 1, f"at {machine}"),
        WorkerReady(machine, 1),
    )


def join(job: Job, many: int) -> list[Command]:
    """One after the other, as processes come up, within a clock; its end, and what two clocks even out."""
    commands: list[Command] = []
    for machine in names(many):
        commands += job.tell(*arrivals(machine)) + job.settle()
    return commands + job.next_clock() + job.next_clock() + job.next_clock()


def orders_each(commands: Sequence[Command]) -> Counter[str]:
    return Counter(order.machine for order in only(Assign, commands))


@pytest.mark.parametrize("many", [12, 60])
def test_machines_that_join_within_a_clock_are_members_at_its_end_at_a_few_orders_each(many: int) -> None:
    """A first order each, one when they are members, and one where what they load next has changed."""
    job = four_machines(many)
    commands = join(job, many)
    assert job.cluster.roster.count_participants(TRANSIENT) == many
    assert job.cluster.stages.current is Stage.TWO
    assert max(orders_each(commands).values()) <= 4
    assert len(only(Handover, commands)) <= len(job.cluster.partitions)
    assert {job.shards(machine) for machine in (*RELIABLE_NAMES, *names(many))} == {4}


def test_who_comes_in_the_middle_of_a_clock_changes_nothing_for_those_who_compute_it() -> None:
    job = four_machines(8)
    commands: list[Command] = []
    for machine in names(8):
        commands += job.tell(*arrivals(machine)) + job.settle()
    assert set(orders_each(commands)) == set(names(8))
    assert only(Handover, commands) == []
    assert job.cluster.stages.current is Stage.ONE
    assert {job.shards(machine) for machine in names(8)} == {0}


def test_who_comes_while_a_plan_is_carried_out_waits_for_the_next_clock() -> None:
    job = four_machines(8)
    for machine in ("t0", "t1", "t2", "t3", "t4"):
        job.tell(*arrivals(machine))
        job.settle()
    handovers = only(Handover, job.complete(job.cluster.completed_clock + 1))
    assert handovers
    under_way = [word for word in job.answers if not isinstance(word, Loaded)]
    job.answers.clear()
    job.tell(*arrivals("t5"))
    job.load()
    orders = only(Assign, job.tell(*under_way))
    assert max(orders_each(orders).values()) == 1, "once for all that has arrived"
    assert not job.cluster.machines["t5"].member
    job.settle()
    job.next_clock()
    assert job.cluster.machines["t5"].member


def test_in_the_first_clock_all_who_were_announced_join_together_without_waiting_for_its_end() -> None:
    job = Job(partitions=4, shards=32)
    job.up("r0")
    commands = job.tell(*(arrivals(machine)[0] for machine in names(6)))
    for machine in names(6):
        commands += job.tell(*arrivals(machine)[1:])
        if machine != names(6)[-1]:
            commands += job.settle()
    assert set(orders_each(commands)) == set(names(6))
    commands = job.settle()
    assert {job.shards(machine) for machine in names(6)} <= {4, 5}
    assert max(orders_each(commands).values()) == 1


@pytest.mark.parametrize("many", [12, 60])
def test_machines_that_are_warned_together_leave_together(many: int) -> None:
    """One order to drain each, and one for the routes; those who stay are told when the last has drained."""
    job = four_machines(many)
    join(job, many)
    commands = job.tell(EvictionWarned(names(many), 120.0)) + job.settle()
    assert {word.machine for word in only(SafeToKill, commands)} == set(names(many))
    assert max(orders_each(commands).values()) <= 2
    assert len(only(Handover, commands)) == len(job.cluster.partitions)
    assert only(RolledBack, commands) == []
    assert {job.shards(machine) for machine in RELIABLE_NAMES} == {many + 4}


def test_whoever_gets_the_input_of_the_drained_is_told_what_they_have_delivered() -> None:
    job = four_machines(2)
    join(job, 2)
    job.tell(EvictionWarned(("t0", "t1"), 120.0))
    clock = job.cluster.completed_clock + 1
    pushed, abandoned = (
        [number for number, shard in enumerate(job.cluster.shards) if shard.owner == machine]
        for machine in ("t0", "t1")
    )
    words = [word for word in job.answers if not isinstance(word, Drained)]
    orders = only(Assign, job.tell(*words, drained("t0", pushed, clock), drained("t1", abandoned, clock - 1)))
    last = {order.machine: order for order in orders if order.machine in RELIABLE_NAMES}
    assert {number for order in last.values() for number in order.shards} > {*pushed, *abandoned}
    assert sorted(pair for order in last.values() for pair in order.delivered) == [(n, clock) for n in pushed]
    assert all(number in order.shards for order in last.values() for number, _ in order.delivered)


def drained(machine: str, shards: Sequence[int], clock: int) -> Drained:
    return Drained(machine, 1, 0, tuple((number, clock) for number in shards))


def test_a_machine_that_has_drained_is_safe_although_another_one_hangs() -> None:
    job = four_machines(12)
    join(job, 12)
    job.tell(EvictionWarned(names(12), 120.0))
    safe: set[str] = set()
    while job.answers:
        word = job.answers.pop(0)
        if not (isinstance(word, Drained) and word.machine == "t3"):
            safe |= {freed.machine for freed in only(SafeToKill, job.tell(word))}
    assert safe == {*names(12)} - {"t3"}
    job.tell(MachineLost("t3"))
    job.settle()
    assert sum(job.shards(machine) for machine in RELIABLE_NAMES) == len(job.cluster.shards)


def test_source_and_target_of_a_partition_on_its_way_may_die_together() -> None:
    job, handover = one_on_its_way()
    commands = job.tell_together(MachineLost(handover.target), MachineLost(handover.machine))
    assert [(restore.machine, restore.target) for restore in only(Restore, commands)] == [("r0", "t3")]
    job.settle()
    assert job.cluster.all_served


@pytest.mark.parametrize("many", [12, 60])
def test_machines_that_die_together_are_one_roll_back(many: int) -> None:
    job = four_machines(many)
    join(job, many)
    job.complete(job.cluster.completed_clock + 1, back_up=False)
    dead = names(many)[: many // 2]
    commands = job.tell_together(*(MachineLost(machine) for machine in dead))
    lost = {restore.partition for restore in only(Restore, commands)}
    assert [word.redone for word in only(RolledBack, commands)] == [1]
    assert len(only(Restore, commands)) == len(lost)
    assert len(only(Rollback, commands)) == 2 * (len(job.cluster.partitions) - len(lost))
    assert max(orders_each(commands + job.settle()).values()) == 1
    assert sum(job.shards(machine) for machine in names(many)[many // 2 :]) > 0
