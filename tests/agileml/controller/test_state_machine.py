"""The controller, case by case: what each event in each situation makes it command."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from agileml.controller.cluster import TrainingPhase
from agileml.controller.placement.ownership import IncomingBackup, PartitionStatus
from agileml.protocol.commands import (
    Advance,
    Assign,
    Failed,
    Finished,
    Forget,
    Handover,
    JoinedTraining,
    Progressed,
    Restore,
    Rollback,
    RolledBack,
    SafeToKill,
    SaveModel,
    StageChanged,
)
from agileml.protocol.events import (
    BackedUp,
    Event,
    EvictionWarned,
    Installed,
    Loaded,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ServerLost,
    ServerReady,
    Stage,
    StopRequested,
    WorkerLost,
    WorkerReady,
)
from tests.agileml.simulated.job import RELIABLE, TRANSIENT, Job, one_on_its_way, only, two_actives

# ---- stages ------------------------------------------------------------------------------------------


def test_a_job_goes_through_the_stages_and_back() -> None:
    job = Job(stage3_above=3.0)
    commands = job.up("r0", "t1", "t2", "t3", "t4")
    for leaving in (["t4"], ["t2", "t3"]):
        commands += job.tell(EvictionWarned(tuple(leaving), 120.0)) + job.settle()
    stages = [word.stage for word in only(StageChanged, commands)]
    assert stages == [Stage.ONE, Stage.TWO, Stage.THREE, Stage.TWO, Stage.ONE]
    assert job.owners == ["r0"] * 4
    assert only(RolledBack, commands) == []


def test_in_stage_two_half_of_the_transient_machines_serve_and_reliable_ones_back_up() -> None:
    job = Job()
    job.up("r0", "t1", "t2", "t3", "t4")
    assert set(job.owners) == {"t1", "t2"}
    assert {partition.backup for partition in job.cluster.partitions} == {"r0"}


def test_in_stage_three_reliable_machines_own_no_input_and_are_told_so_once() -> None:
    job = Job(stage3_above=1.0)
    orders = only(Assign, job.up("r0", "t1", "t2", "t3"))
    assert job.shards("r0") == 0
    assert [order.shards for order in orders if order.machine == "r0"][-1] == ()
    assert [order for order in only(Assign, job.up("t4")) if order.machine == "r0"] == []


def test_from_stage_one_to_two_the_reliable_source_stays_as_the_backup() -> None:
    job = Job(partitions=1)
    job.up("r0", "t1")
    handover = only(Handover, job.up("t2"))[0]
    assert (handover.machine, handover.target, handover.keep_backup, handover.to_backup) == (
        "r0",
        "t1",
        True,
        False,
    )


def test_routes_are_told_when_a_partition_has_arrived_and_not_before() -> None:
    job = Job(partitions=1)
    job.up("r0", "t1")
    job.tell(MachineJoined("t2", TRANSIENT, 2), ServerReady("t2", 1, "at t2"))
    before = only(Assign, job.tell(WorkerReady("t2", 1)))
    assert {order.routes[0].machine for order in before} == {"r0"}
    after = only(Assign, job.settle())
    assert {order.routes[0].machine for order in after} == {"t1"}


# ---- evictions ---------------------------------------------------------------------------------------


def test_a_partial_eviction_moves_partitions_to_survivors_and_costs_nothing() -> None:
    job = Job()
    job.up("r0", "t1", "t2", "t3", "t4")
    job.complete(1, back_up=False)
    commands = job.tell(EvictionWarned(("t1",), 120.0))
    handovers = only(Handover, commands)
    assert {handover.machine for handover in handovers} == {"t1"}
    assert not any(handover.to_backup or handover.keep_backup for handover in handovers)
    assert [order.machine for order in only(Assign, commands) if order.drain] == ["t1"]
    assert only(SafeToKill, commands) == []
    assert only(SafeToKill, job.settle()) == [SafeToKill("t1")]
    assert job.shards("t1") == 0
    assert only(RolledBack, job.tell(MachineReleased("t1"))) == []


def test_a_machine_is_safe_to_kill_only_when_drained_and_empty() -> None:
    job = Job(partitions=1)
    job.up("r0", "t1", "t2", "t3")
    job.tell(EvictionWarned(("t1",), 120.0))
    arrived, drained = (word for word in job.answers if not isinstance(word, Loaded))
    assert isinstance(arrived, Installed)
    commands = job.tell(arrived)
    assert only(Forget, commands) == [Forget("t1", 0, arrived.epoch)]
    assert only(SafeToKill, commands) == []
    assert only(SafeToKill, job.tell(drained)) == [SafeToKill("t1")]


def test_a_total_eviction_sends_ends_of_life_and_moves_nothing_among_actives() -> None:
    job = Job()
    job.up("r0", "t1", "t2", "t3")
    commands = job.tell(EvictionWarned(("t1", "t2", "t3"), 120.0))
    assert {(handover.target, handover.to_backup) for handover in only(Handover, commands)} == {("r0", True)}
    commands = job.settle()
    assert {word.machine for word in only(SafeToKill, commands)} == {"t1", "t2", "t3"}
    assert [word.stage for word in only(StageChanged, commands)] == [Stage.ONE]
    assert job.shards("r0") == 8


def test_input_goes_back_to_its_previous_owners() -> None:
    job = Job()
    job.up("r0", "r1")
    before = [shard.owner for shard in job.cluster.shards]
    job.up("t2", "t3")
    job.tell(EvictionWarned(("t2", "t3"), 120.0))
    job.settle()
    assert [shard.owner for shard in job.cluster.shards] == before


def test_input_is_shared_in_proportion_to_cores() -> None:
    job = Job(shards=12)
    job.up("r0", cores=1)
    job.up("t1", cores=2)
    job.up("t2", cores=3)
    assert [job.shards(name) for name in ("r0", "t1", "t2")] == [2, 4, 6]


def test_a_worker_that_restarts_on_a_leaving_machine_is_not_used_again() -> None:
    job = Job()
    job.up("r0", "t1", "t2")
    job.tell(EvictionWarned(("t2",), 120.0))
    commands = job.tell(WorkerReady("t2", 2))
    assert job.shards("t2") == 0
    assert [order for order in only(Assign, commands) if order.machine == "t2"] == []


# ---- failures ----------------------------------------------------------------------------------------


def test_the_loss_of_an_active_rolls_survivors_back_and_restores_the_rest() -> None:
    job = two_actives()
    lost = [number for number, owner in enumerate(job.owners) if owner == "t1"]
    commands = job.tell(MachineLost("t1"))
    assert only(RolledBack, commands) == [RolledBack(to=2, redone=1)]
    restored = only(Restore, commands)
    assert [(restore.partition, restore.machine, restore.clock) for restore in restored] == [
        (number, "r0", 2) for number in lost
    ]
    assert {restore.target for restore in restored} <= {"t2", "t3"}
    undone = {(word.machine, word.partition) for word in only(Rollback, commands)}
    assert undone == {(who, number) for number in range(4) if number not in lost for who in ("t2", "r0")}
    assert only(Assign, commands) == [], "before everything is there again nobody could do anything"
    commands = job.settle()
    assert sorted((order.machine, order.generation, order.clock) for order in only(Assign, commands)) == [
        (name, 1, 3) for name in ("r0", "t2", "t3")
    ]
    assert job.cluster.all_served


def test_when_the_last_transient_machine_is_lost_the_backups_serve() -> None:
    job = two_actives()
    for name in ("t1", "t2", "t3"):
        job.tell(MachineLost(name))
    commands = job.settle()
    assert [word.stage for word in only(StageChanged, commands)] == [Stage.ONE]
    assert job.owners == ["r0"] * 4
    assert {partition.backup for partition in job.cluster.partitions} == {None}


@pytest.mark.parametrize(
    "event",
    [
        WorkerLost("t1", 1),
        WorkerReady("t1", 2),
        MachineLost("t3"),
        ServerLost("t3", 1),
        ServerReady("t3", 2, "new"),
    ],
    ids=str,
)
def test_what_served_nothing_is_lost_without_rolling_back(event: Event) -> None:
    job = two_actives()
    commands = job.tell(event)
    assert only(RolledBack, commands) == []
    assert {order.generation for order in only(Assign, commands)} <= {0}


def test_the_input_of_a_dead_worker_is_redone_from_the_first_incomplete_clock() -> None:
    job = two_actives()
    commands = job.tell(WorkerLost("t1", 1))
    assert job.shards("t1") == 0
    assert {order.clock for order in only(Assign, commands)} == {4}


@pytest.mark.parametrize("event", [ServerLost("t1", 1), ServerReady("t1", 2, "new")], ids=str)
def test_a_server_that_restarts_has_lost_what_it_served(event: Event) -> None:
    assert only(RolledBack, two_actives().tell(event)) == [RolledBack(to=2, redone=1)]


def test_a_leaving_machine_that_dies_too_early_is_a_failure() -> None:
    job = two_actives()
    job.tell(EvictionWarned(("t1",), 120.0))
    assert only(RolledBack, job.tell(MachineLost("t1"))) == [RolledBack(to=2, redone=1)]


@pytest.mark.parametrize("event", [MachineLost("r0"), MachineReleased("r0")], ids=str)
def test_the_loss_of_the_only_reliable_machine_fails_the_job(event: Event) -> None:
    job = two_actives()
    assert only(Failed, job.tell(event)) == [Failed("no reliable machine is left")]
    assert job.tell(MachineJoined("r9", RELIABLE, 2), MachineLost("t1"), StopRequested()) == []


def test_before_training_began_initial_values_are_simply_made_again() -> None:
    job = Job()
    job.tell(MachineJoined("r0", RELIABLE, 2), ServerReady("r0", 1, "at r0"))
    job.tell(job.answers.pop(0))
    job.tell(MachineLost("r0"))
    assert {partition.status for partition in job.cluster.partitions} == {PartitionStatus.ABSENT}
    job.answers.clear()
    job.up("r1")
    assert job.owners == ["r1"] * 4


# ---- events in the middle of transitions -------------------------------------------------------------


def test_a_join_leaves_alone_what_is_on_its_way() -> None:
    job, handover = one_on_its_way()
    assert only(Handover, job.up("t5")) == []
    assert job.cluster.partitions[0].epoch == handover.epoch


def test_when_the_target_dies_the_source_hands_over_again_and_nothing_is_redone() -> None:
    job, first = one_on_its_way()
    commands = job.tell(MachineLost("t2"))
    assert only(RolledBack, commands) == []
    (second,) = only(Handover, commands)
    assert (second.machine, second.target) == ("t1", "t3")
    assert second.epoch > first.epoch


def test_without_another_target_the_source_serves_again() -> None:
    job = Job(partitions=1)
    job.up("r0", "t1")
    job.tell(MachineJoined("t2", TRANSIENT, 2), ServerReady("t2", 1, "at t2"), WorkerReady("t2", 1))
    job.load()
    (handover,) = only(Handover, job.tell(MachineLost("t1"), MachineLost("t2")))
    assert (handover.machine, handover.target) == ("r0", "r0")
    job.answers[:] = [word for word in job.answers if isinstance(word, Installed)][-1:]
    job.settle()
    assert (job.owners, job.cluster.partitions[0].backup) == (["r0"], None)


def test_when_the_source_dies_the_backup_restores_what_the_target_may_have_already() -> None:
    job, _ = one_on_its_way()
    commands = job.tell(MachineLost("t1"))
    assert [(restore.machine, restore.target) for restore in only(Restore, commands)] == [("r0", "t2")]
    assert only(RolledBack, commands) == [RolledBack(to=0, redone=1)]


def test_a_late_arrival_of_a_move_that_is_off_counts_for_nothing() -> None:
    job, handover = one_on_its_way()
    job.tell(MachineLost("t1"))
    late = Installed("t2", 0, handover.epoch, 1)
    assert job.tell(late) == []
    assert job.cluster.partitions[0].status is PartitionStatus.RESTORING


def test_a_failure_calls_off_the_moves_of_others() -> None:
    """Two partitions; one is on its way from an active that leaves, the other's active dies."""
    job = Job(partitions=2)
    job.up("r0", "t1", "t2", "t3", "t4")
    (moving,) = only(Handover, job.tell(EvictionWarned(("t2",), 120.0)))
    assert (moving.machine, job.owners[1 - moving.partition]) == ("t2", "t1")
    commands = job.tell(MachineLost("t1"))
    assert {restore.machine for restore in only(Restore, commands)} == {"r0"}
    assert {restore.partition for restore in only(Restore, commands)} == {0, 1}
    assert Forget("t2", moving.partition, job.cluster.epoch) in commands


def test_a_partition_that_arrived_where_it_should_no_longer_be_moves_on() -> None:
    job, handover = one_on_its_way()
    job.tell(EvictionWarned(("t2",), 120.0))
    (onwards,) = only(Handover, job.tell(Installed("t2", 0, handover.epoch, 1)))
    assert (onwards.machine, onwards.target) == ("t2", "t3")


# ---- clocks and the end ------------------------------------------------------------------------------


def test_b_follows_the_slowest_backup_and_servers_are_told() -> None:
    job = two_actives()
    words = [job.tell(BackedUp("r0", number, 0, 3)) for number in range(4)]
    assert words[:3] == [[], [], []]
    assert only(Progressed, words[3]) == [Progressed(clock=3, consistent=3)]
    assert {advance.machine for advance in only(Advance, words[3])} == {"r0", "t1", "t2"}


def test_the_model_is_saved_when_the_last_clock_is_backed_up() -> None:
    job = Job(clocks=1)
    job.up("r0", "t1", "t2")
    assert only(SaveModel, job.complete(1, back_up=False)) == []
    assert only(SaveModel, job.complete(1)) == [SaveModel("r0", 0, 1, (0, 1, 2, 3))]
    assert only(Finished, job.settle()) == [Finished(1, "model")]
    assert job.tell(MachineLost("t1"), MachineReleased("r0")) == []


def test_every_reliable_machine_saves_its_part() -> None:
    job = Job(clocks=1)
    job.up("r0", "r1")
    job.complete(1)
    assert only(Finished, job.tell(job.answers.pop(0))) == []
    assert only(Finished, job.tell(job.answers.pop(0))) == [Finished(1, "model")]


def test_while_the_model_is_saved_transient_machines_may_go() -> None:
    job = Job(clocks=1)
    job.up("r0", "t1", "t2")
    job.complete(1)
    assert only(SafeToKill, job.tell(EvictionWarned(("t1",), 30.0))) == [SafeToKill("t1")]
    assert job.tell(MachineLost("t2")) == []
    assert job.cluster.phase is TrainingPhase.SAVING


def test_a_stop_ends_at_a_clock_that_no_worker_is_beyond() -> None:
    job = Job(staleness=2)
    job.up("r0")
    job.complete(5)
    orders = only(Assign, job.tell(StopRequested()))
    assert {order.until for order in orders} == {9}


def test_a_machine_is_said_to_have_joined_once() -> None:
    job = Job()
    commands = job.up("r0", "t1") + job.tell(WorkerLost("t1", 1), WorkerReady("t1", 2))
    assert [word.machine for word in only(JoinedTraining, commands)] == ["r0", "t1"]


def test_roles_may_report_before_their_machine_is_announced() -> None:
    job = Job()
    job.tell(ServerReady("r0", 1, "at r0"), WorkerReady("r0", 1), MachineJoined("r0", RELIABLE, 2))
    job.settle()
    assert job.cluster.phase is TrainingPhase.TRAINING


@pytest.mark.parametrize(
    "event", [MachineLost("t2"), EvictionWarned(("t1", "t2", "t3"), 120.0)], ids=["rollback", "end of life"]
)
def test_a_backup_that_is_sent_a_copy_again_is_not_told_to_forget_the_one_it_has(event: Event) -> None:
    """It may be the only copy left when the machine that sends the new one dies."""
    job = two_actives()
    served = next(partition for partition in job.cluster.partitions if partition.owner == "t1")
    again = replace(served, detached=True, incoming_backup=IncomingBackup("r0", job.cluster.epoch))
    job.cluster = job.cluster.with_partitions([again])
    orders = [*job.tell(event), *job.settle()]
    assert (served.backup, served.number) == ("r0", again.number)
    assert ("r0", served.number) not in [(order.machine, order.partition) for order in only(Forget, orders)]


def test_b_moves_to_the_last_clock_that_every_partition_is_safe_at() -> None:
    """Ranges end at different clocks where the worker that decided it died between two servers."""
    job = Job(partitions=2)
    job.up("r0", "t1", "t2", "t3")
    job.complete(1, back_up=False)
    job.complete(2, back_up=False)
    job.complete(3, back_up=False)
    assert only(Advance, job.tell(BackedUp("r0", 0, 0, 1), BackedUp("r0", 1, 0, 2))) == []
    commands = job.tell(BackedUp("r0", 0, 0, 3), BackedUp("r0", 1, 0, 3))
    assert {word.clock for word in only(Advance, commands)} == {3}
