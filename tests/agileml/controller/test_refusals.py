"""The controller, refusing: words that are stale, words that cannot be, and states that must not be."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import get_args

import pytest
from msgspec.structs import replace

from agileml.controller.cluster import BrokenInvariant, ClusterState, ImpossibleEvent, TrainingPhase
from agileml.controller.invariants import check_invariants
from agileml.controller.placement.ownership import PartitionStatus, Shard
from agileml.controller.state_machine import HANDLERS, step
from agileml.protocol.events import (
    BackedUp,
    ClockCompleted,
    Drained,
    Event,
    EvictionWarned,
    Installed,
    MachineJoined,
    MachineLost,
    ModelSaved,
    ServerLost,
    ServerReady,
    Setup,
    WorkerLost,
    WorkerReady,
)
from agileml.sync.bounded_staleness import make_barrier
from tests.agileml.simulated.job import RELIABLE, TRANSIENT, Job, one_on_its_way, two_actives

# ---- words that say nothing any more, and words that cannot be --------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        MachineJoined("t1", TRANSIENT, 2),
        MachineLost("nobody"),
        EvictionWarned(("nobody", "r0"), 120.0),
        ServerReady("t1", 1, "at t1"),
        ServerLost("t1", 0),
        WorkerReady("t1", 1),
        WorkerLost("t1", 0),
        Drained("t1", 0, 0, ()),
        Drained("nobody", 1, 0, ()),
        Installed("t1", 0, 1, 0),
        ClockCompleted("t1", 0, 0, 2),
        BackedUp("t1", 0, 0, 5),
    ],
    ids=str,
)
def test_stale_words_change_nothing(event: Event) -> None:
    job = two_actives()
    before = job.cluster
    assert job.tell(event) == []
    roster = replace(job.cluster.roster, departed=before.roster.departed)
    plan = replace(job.cluster.plan, has_news=before.plan.has_news)
    assert replace(job.cluster, story=(), roster=roster, plan=plan) == replace(before, story=())


def test_words_of_an_earlier_generation_count_for_nothing() -> None:
    job = two_actives()
    job.tell(MachineLost("t1"))
    job.settle()
    assert job.tell(ClockCompleted("t2", 0, 0, 3), BackedUp("r0", 0, 0, 3)) == []
    assert job.cluster.completed_clock == 2


@pytest.mark.parametrize(
    "event",
    [
        ClockCompleted("t1", 0, 1, 4),
        ClockCompleted("t1", 9, 0, 4),
        Installed("t1", 0, 99, 3),
        Drained("t1", 1, 0, ()),
        ModelSaved("r0", 0, "model"),
    ],
    ids=str,
)
def test_what_cannot_have_happened_is_refused_with_the_story(event: Event) -> None:
    with pytest.raises(ImpossibleEvent, match="WorkerReady") as refusal:
        two_actives().tell(event)
    assert str(event) in str(refusal.value)


def test_an_arrival_from_before_what_is_backed_up_is_refused() -> None:
    job, handover = one_on_its_way()
    job.tell(BackedUp("r0", 0, 0, 1))
    with pytest.raises(ImpossibleEvent, match="clock 1 was backed up"):
        job.tell(Installed("t2", 0, handover.epoch, 0))


def test_every_phase_knows_what_to_do_with_every_event() -> None:
    every = set(get_args(Event))
    assert all(set(HANDLERS[phase]) == every for phase in TrainingPhase)


@pytest.mark.parametrize(
    "event",
    [
        ClockCompleted("r0", 0, 0, 1),
        BackedUp("r0", 0, 0, 1),
        ModelSaved("r0", 0, "model"),
        Drained("r0", 1, 0, ()),
    ],
    ids=str,
)
def test_before_there_are_any_orders_no_work_can_be_done(event: Event) -> None:
    job = Job()
    job.tell(MachineJoined("r0", RELIABLE, 2), ServerReady("r0", 1, "at r0"), WorkerReady("r0", 1))
    with pytest.raises(ImpossibleEvent, match="ServerReady"):
        job.tell(event)


# ---- invariants --------------------------------------------------------------------------------------


def with_partition(**changes: object) -> Callable[[ClusterState], ClusterState]:
    def broken(cluster: ClusterState) -> ClusterState:
        changed = replace(cluster.partitions[0], **changes)
        return replace(cluster, partitions=(changed, *cluster.partitions[1:]))

    return broken


@pytest.mark.parametrize(
    ("breaks", "number"),
    [
        (with_partition(owner="gone"), "1"),
        (with_partition(status=PartitionStatus.LOST), "1"),
        (with_partition(status=PartitionStatus.MOVING, source="gone"), "1"),
        (with_partition(backup=None), "2"),
        (with_partition(backup="t2"), "2"),
        (lambda cluster: replace(cluster, shards=(Shard(None), *cluster.shards[1:])), "3"),
        (lambda cluster: replace(cluster, shards=(Shard("gone"), *cluster.shards[1:])), "3"),
        (lambda cluster: replace(cluster, consistent=3), "5"),
        (with_partition(safe=frozenset({4})), "5"),
    ],
)
def test_a_broken_invariant_is_named_and_told(
    breaks: Callable[[ClusterState], ClusterState], number: str
) -> None:
    with pytest.raises(BrokenInvariant, match=f"^invariant {number}, ") as told:
        check_invariants(breaks(two_actives().cluster))
    assert "after" in str(told.value)


def test_a_machine_that_is_safe_to_kill_holds_nothing() -> None:
    cluster = two_actives().cluster
    with pytest.raises(BrokenInvariant, match="safe to kill"):
        check_invariants(cluster.with_machine(replace(cluster.machines["t1"], safe=True)))


def test_no_status_is_reached_but_by_an_edge() -> None:
    cluster = two_actives().cluster
    with pytest.raises(BrokenInvariant, match="no edge"):
        cluster.with_partitions([replace(cluster.partitions[0], status=PartitionStatus.CREATING)])


@pytest.mark.parametrize(
    "setup", [Setup(0, 1, 1), Setup(1, 0, 1), Setup(1, 1, 0), Setup(1, 1, 1, staleness=-1)], ids=str
)
def test_a_setup_that_describes_no_job_is_refused(setup: Setup) -> None:
    with pytest.raises(ValueError, match="a job needs"):
        ClusterState.from_setup(setup, make_barrier(setup))


def test_step_leaves_its_input_alone() -> None:
    before = two_actives().cluster
    copy = deepcopy(before)
    step(before, (MachineLost("t1"),))
    assert before == copy
