"""Input goes to those who have loaded it: nobody waits for a join, and every shard has a reliable home."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.protocol.commands import Assign, JoinedTraining
from agileml.protocol.events import (
    Event,
    EvictionWarned,
    Loaded,
    MachineJoined,
    MachineLost,
    ServerReady,
    Stage,
    WorkerLost,
    WorkerReady,
)
from tests.agileml.simulated.job import RELIABLE, TRANSIENT, Job, only


def arrive(job: Job, name: str) -> list[Assign]:
    """A machine joins, and loads nothing yet: what everybody is told."""
    tier = RELIABLE if name.startswith("r") else TRANSIENT
    orders = only(
        Assign,
        job.tell(MachineJoined(name, tier, 2), ServerReady(name, 1, f"at {name}"), WorkerReady(name, 1)),
    )
    job.answers.clear()
    return orders


def owned(job: Job, machine: str) -> set[int]:
    return {number for number, shard in enumerate(job.cluster.shards) if shard.owner == machine}


def wanted(job: Job, machine: str) -> set[int]:
    worker = job.cluster.machines[machine].worker
    assert worker is not None
    assert worker.orders is not None
    return set(worker.orders.preload)


def test_a_join_disturbs_nobody_until_its_input_is_loaded() -> None:
    job = Job(shards=8)
    job.up("r0")
    (orders,) = arrive(job, "t1")
    assert (orders.machine, orders.shards, len(orders.preload)) == ("t1", (), 8)
    assert owned(job, "r0") == set(range(8))
    job.complete(1)
    first = set(orders.preload[:4])
    job.tell(Loaded("t1", 1, tuple(sorted(first))))
    assert only(Assign, job.complete(2)) == []
    assert owned(job, "r0") == set(range(8))
    assert only(Assign, job.tell(Loaded("t1", 1, orders.preload))) == []
    assert {order.machine for order in only(Assign, job.complete(3))} == {"r0", "t1"}
    assert owned(job, "t1") == first


def test_it_is_said_to_have_joined_before_anything_is_loaded() -> None:
    job = Job()
    job.up("r0")
    tier = TRANSIENT
    said = job.tell(MachineJoined("t1", tier, 2), ServerReady("t1", 1, "at t1"), WorkerReady("t1", 1))
    assert JoinedTraining("t1") in said


def test_what_nobody_can_compute_any_more_does_not_wait_for_loading() -> None:
    job = Job(shards=6)
    job.up("r0", "t1")
    arrive(job, "t2")
    assert not owned(job, "t2")
    job.tell(WorkerLost("t1", 1))
    assert owned(job, "r0") | owned(job, "t2") == set(range(6))


@pytest.mark.parametrize("share", [0, 1, 2])
def test_lost_input_goes_to_those_who_have_it_in_memory(share: int) -> None:
    """One of three to t3, which has that one; the others to t2."""
    job = Job(shards=9, stage3_above=1.5)
    job.up("r0", "t1", "t2", "t3")
    gone, before = sorted(owned(job, "t1")), {name: owned(job, name) for name in ("t2", "t3")}
    has = {"t3": {gone[share]}, "t2": {*gone} - {gone[share]}}
    job.tell(*(Loaded(name, 1, tuple(sorted(before[name] | has[name]))) for name in ("t2", "t3")))
    job.tell(MachineLost("t1"))
    assert {name: owned(job, name) - before[name] for name in has} == has


def test_transient_machines_load_what_reliable_ones_compute_before_stage_three() -> None:
    """So that the transition is one message: nobody has to read anything then."""
    job = Job(shards=12, stage3_above=2.0)
    job.up("r0", "t1", "t2")
    of_reliable = owned(job, "r0")
    assert of_reliable
    assert wanted(job, "t1") | wanted(job, "t2") >= of_reliable
    job.tell(MachineJoined("t3", TRANSIENT, 2), WorkerReady("t3", 1))
    job.settle()
    before = owned(job, "r0")
    orders = only(Assign, [*job.tell(ServerReady("t3", 1, "at t3")), *job.settle()])
    assert (job.cluster.stages.current, owned(job, "r0")) == (Stage.THREE, set())
    given = {order.machine: set(order.shards) for order in orders}
    assert before <= set().union(*(given.get(name, set()) for name in ("t1", "t2", "t3")))


def test_the_end_of_all_transient_machines_finds_the_input_loaded_on_reliable_ones() -> None:
    job = Job(shards=12, stage3_above=2.0)
    job.up("r0", "r1", "t1", "t2", "t3", "t4", "t5")
    homes = {name: job.cluster.machines[name].worker for name in ("r0", "r1")}
    loaded = {name: worker.loaded for name, worker in homes.items() if worker}
    assert loaded["r0"] | loaded["r1"] == set(range(12))
    job.tell(EvictionWarned(("t1", "t2", "t3", "t4", "t5"), 120.0))
    job.settle()
    assert all(owned(job, name) <= loaded[name] for name in ("r0", "r1"))
    assert owned(job, "r0") | owned(job, "r1") == set(range(12))


def test_a_worker_without_room_for_it_never_owns_it_and_nothing_stops() -> None:
    job = Job(shards=4)
    job.up("r0")
    (orders,) = arrive(job, "t1")
    one, other = orders.preload[:2]
    job.tell(Loaded("t1", 1, (one,), full=True))
    job.next_clock()
    assert owned(job, "t1") == {one}
    job.tell(Loaded("t1", 1, (), full=True))
    job.next_clock()
    assert owned(job, "t1") == {one}, "what it owns it may read again"
    assert other in owned(job, "r0")


@pytest.mark.parametrize("late", [Loaded("t1", 1, (0, 1)), Loaded("gone", 1, (0,)), Loaded("t1", 3, (0,))])
def test_words_of_other_incarnations_mean_nothing(late: Event) -> None:
    job = Job(shards=4)
    job.up("r0", "t1")
    job.tell(WorkerReady("t1", 2))
    job.answers.clear()
    before = job.cluster.shards
    job.tell(late)
    assert job.cluster.shards == before
    worker = job.cluster.machines["t1"].worker
    assert worker is not None
    assert not worker.loaded


@given(st.lists(st.sampled_from(["join", "evict", "lose"]), max_size=8), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_once_all_is_loaded_every_shard_rests_on_someone_who_has_it(story: list[str], shards: int) -> None:
    """And has a home: some reliable worker that was told to load it, or owns it."""
    job = Job(shards=shards, stage3_above=3.0)
    job.up("r0", "r1")
    alive: list[str] = []
    for number, what in enumerate(story):
        if what == "join":
            alive.append(f"t{number}")
            job.up(alive[-1])
        elif alive:
            name = alive.pop(0)
            job.tell(EvictionWarned((name,), 120.0) if what == "evict" else MachineLost(name))
            job.settle()
    at_home = set().union(*(owned(job, name) | wanted(job, name) for name in ("r0", "r1")))
    assert at_home == set(range(shards))
    for machine in job.cluster.computing_machines():
        assert machine.worker is not None
        assert owned(job, machine.name) <= machine.worker.loaded
