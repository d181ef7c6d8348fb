"""The controller when reliable machines come and go: new backups, checkpoints, and the way back to one."""

from __future__ import annotations

from agileml.controller.placement.ownership import PartitionStatus
from agileml.protocol.commands import (
    Assign,
    BackUp,
    Checkpointed,
    CheckpointFailed,
    Create,
    DropCheckpoints,
    Failed,
    Forget,
    Handover,
    RolledBack,
    SealCheckpoint,
    WriteCheckpoint,
)
from agileml.protocol.events import (
    CheckpointDue,
    CheckpointRefused,
    CheckpointUnreadable,
    CheckpointWritten,
    EvictionWarned,
    MachineLost,
    ServerLost,
    ServerReady,
)
from tests.agileml.simulated.job import Job, only, two_actives


def two_backups() -> Job:
    """Stage 2, two reliable machines with half of the backups each; clock 1 is backed up."""
    job = Job()
    job.up("r0", "r1", "t1", "t2", "t3")
    job.complete(1)
    assert {partition.backup for partition in job.cluster.partitions} == {"r0", "r1"}
    return job


def kept(**settings: int) -> Job:
    """Two ParamServs, a checkpoint every second clock; the one of clock 2 is whole."""
    job = Job(checkpoints="place", checkpoint_clocks=2, **settings)
    job.up("r0", "r1")
    job.complete(1)
    job.complete(2)
    assert only(Checkpointed, job.settle()) == [Checkpointed(2, "place/0000000002-1")]
    return job


# ---- backups -----------------------------------------------------------------------------------------


def test_a_lost_backup_is_made_again_from_the_active_and_nothing_is_redone() -> None:
    job = two_backups()
    lost = [p.number for p in job.cluster.partitions if p.backup == "r1"]
    commands = job.tell(MachineLost("r1"))
    assert [(copy.partition, copy.target.machine) for copy in only(BackUp, commands)] == [
        (number, "r0") for number in lost
    ]
    assert only(RolledBack, commands) == []
    job.settle()
    assert {partition.backup for partition in job.cluster.partitions} == {"r0"}
    assert not any(partition.detached for partition in job.cluster.partitions)


def test_b_does_not_pass_what_the_last_backup_held_while_a_copy_is_on_its_way() -> None:
    job = two_backups()
    job.tell(MachineLost("r1"))
    arrivals, job.answers = job.answers, []
    job.complete(2)
    assert job.cluster.consistent == 1
    job.tell(*arrivals)
    job.complete(3)
    assert job.cluster.consistent == 3


def test_a_reliable_machine_that_joins_takes_its_part_of_the_backups() -> None:
    job = two_actives()
    job.up("r1")
    commands = job.next_clock()
    assert {copy.target.machine for copy in only(BackUp, commands)} == {"r1"}
    assert {forgotten.machine for forgotten in only(Forget, commands)} == {"r0"}
    backups = [partition.backup for partition in job.cluster.partitions]
    assert sorted(backups, key=str) == ["r0", "r0", "r1", "r1"]


def test_the_server_of_the_only_reliable_machine_may_restart_while_actives_serve() -> None:
    job = two_actives()
    assert only(BackUp, job.tell(ServerLost("r0", 1))) == []
    copies = only(BackUp, job.tell(ServerReady("r0", 2, "again at r0")))
    assert len(copies) == len(job.cluster.partitions)
    job.settle()
    job.complete(4)
    assert job.cluster.consistent == 4


def test_when_the_heir_dies_another_is_chosen() -> None:
    job = two_actives()
    job.answers.clear()
    job.tell(ServerLost("r0", 1), ServerReady("r0", 2, "again at r0"))
    job.answers.clear()
    job.tell(ServerLost("r0", 2))
    (again, *_) = only(BackUp, job.tell(ServerReady("r0", 3, "once more at r0")))
    assert again.target.endpoint == "once more at r0"


def test_an_eviction_calls_off_the_copy_and_the_next_owner_makes_one() -> None:
    job = two_actives()
    job.tell(ServerLost("r0", 1), ServerReady("r0", 2, "again at r0"))
    job.answers.clear()
    moved = only(Handover, job.tell(EvictionWarned(("t1",), 120.0)))
    assert moved
    assert {handover.backup for handover in moved} == {None}
    copies = only(BackUp, job.settle())
    assert {copy.partition for copy in copies} == {handover.partition for handover in moved}


def test_a_backup_and_its_active_lost_together_are_the_end_without_checkpoints() -> None:
    job = two_backups()
    job.tell(MachineLost("r1"))
    serving = next(p.owner for p in job.cluster.partitions if p.incoming_backup is not None)
    (failed,) = only(Failed, job.tell(MachineLost(serving or "")))
    assert "no checkpoints" in failed.why
    assert failed.checkpoint == ""


# ---- checkpoints -------------------------------------------------------------------------------------


def test_a_checkpoint_is_sealed_when_every_part_is_written_and_then_drops_those_before() -> None:
    job = Job(checkpoints="place", checkpoint_clocks=2)
    job.up("r0", "r1")
    assert only(WriteCheckpoint, job.complete(1)) == []
    parts = only(WriteCheckpoint, job.complete(2))
    assert {part.machine: part.clock for part in parts} == {"r0": 2, "r1": 2}
    assert sorted(number for part in parts for number in part.partitions) == [0, 1, 2, 3]
    assert only(SealCheckpoint, job.tell(CheckpointWritten("r0", 1))) == []
    assert len(only(SealCheckpoint, job.tell(CheckpointWritten("r1", 1)))) == 1
    commands = job.tell(job.answers.pop())
    assert [drop.folder for drop in only(DropCheckpoints, commands)] == ["place/0000000002-1"]


def test_backups_write_while_actives_serve() -> None:
    job = Job(checkpoints="place", checkpoint_clocks=1)
    job.up("r0", "t1", "t2")
    assert {part.machine for part in only(WriteCheckpoint, job.complete(1))} == {"r0"}


def test_time_calls_for_one_as_well() -> None:
    job = Job(checkpoints="place")
    job.up("r0")
    job.complete(1)
    assert len(only(WriteCheckpoint, job.tell(CheckpointDue()))) == 1


def test_a_writer_that_dies_leaves_nothing_that_counts() -> None:
    job = kept()
    job.complete(3)
    job.complete(4)
    commands = job.tell(MachineLost("r1"))
    assert job.cluster.checkpoints.attempt is None
    assert only(RolledBack, commands) == [RolledBack(2, 2, lost=True)]


def test_a_sealer_that_dies_is_replaced() -> None:
    job = Job(checkpoints="place", checkpoint_clocks=1)
    job.up("r0", "r1", "t1", "t2", "t3")
    job.complete(1)
    written = [word for word in job.answers if isinstance(word, CheckpointWritten)]
    job.answers.clear()
    (seal,) = only(SealCheckpoint, job.tell(*written))
    (again,) = only(SealCheckpoint, job.tell(MachineLost(seal.machine)))
    assert again.machine != seal.machine


def test_a_sealer_that_was_started_again_is_asked_anew() -> None:
    """Its first order went with its process, and death and restart are heard of at once."""
    job = Job(checkpoints="place", checkpoint_clocks=1)
    job.up("r0", "r1", "t1", "t2", "t3")
    job.complete(1)
    written = [word for word in job.answers if isinstance(word, CheckpointWritten)]
    (seal,) = only(SealCheckpoint, job.tell(*written))
    again = job.tell_together(ServerLost(seal.machine, 1), ServerReady(seal.machine, 2, "anew"))
    assert [(order.attempt, order.folder) for order in only(SealCheckpoint, again)] == [
        (seal.attempt, seal.folder)
    ]


def test_a_checkpoint_that_a_writers_death_cut_short_is_made_again_at_once() -> None:
    job = Job(checkpoints="place", checkpoint_clocks=5)
    job.up("r0", "t1", "t2")
    for clock in range(1, 6):
        commands = job.complete(clock)
    assert [part.clock for part in only(WriteCheckpoint, commands)] == [5]
    job.answers.clear()
    assert only(WriteCheckpoint, job.tell(ServerLost("r0", 1), ServerReady("r0", 2, "anew"))) == []
    assert [part.clock for part in only(WriteCheckpoint, job.settle())] == [5]


def test_a_full_disk_is_told_and_tried_again_when_the_next_is_due() -> None:
    job = kept()
    job.complete(3)
    job.complete(4)
    assert only(CheckpointFailed, job.tell(CheckpointRefused("r0", 2, "full"))) == [
        CheckpointFailed(4, "full")
    ]
    assert only(WriteCheckpoint, job.complete(5)) == []
    assert len(only(WriteCheckpoint, job.complete(6))) == 2


# ---- the way back ------------------------------------------------------------------------------------


def test_a_lost_param_server_sends_everything_back_to_the_checkpoint() -> None:
    job = kept()
    job.complete(3)
    job.answers.clear()
    commands = job.tell(MachineLost("r1"))
    assert only(RolledBack, commands) == [RolledBack(to=2, redone=1, lost=True)]
    made = only(Create, commands)
    assert {(create.machine, create.clock, create.folder) for create in made} == {
        ("r0", 2, "place/0000000002-1")
    }
    assert [order.clock for order in only(Assign, job.settle())] == [3]
    assert job.cluster.completed_clock == job.cluster.consistent == 2


def test_before_the_first_checkpoint_initial_values_are_made_again() -> None:
    job = Job(checkpoints="place", checkpoint_clocks=5)
    job.up("r0", "r1")
    job.complete(1)
    commands = job.tell(MachineLost("r1"))
    assert {(create.clock, create.folder) for create in only(Create, commands)} == {(0, "")}


def test_without_a_reliable_server_partitions_wait_to_be_made() -> None:
    job = Job(checkpoints="place", checkpoint_clocks=5)
    job.up("r0")
    job.complete(1)
    job.tell(ServerLost("r0", 1))
    assert {partition.status for partition in job.cluster.partitions} == {PartitionStatus.ABSENT}
    assert len(only(Create, job.tell(ServerReady("r0", 2, "again at r0")))) == 4


def test_the_end_names_what_to_resume_from() -> None:
    job = kept()
    job.tell(MachineLost("r1"))
    (failed,) = only(Failed, job.tell(MachineLost("r0")))
    assert failed.checkpoint == "place/0000000002-1"


def test_a_checkpoint_that_cannot_be_read_is_the_end() -> None:
    job = kept()
    job.tell(MachineLost("r1"))
    assert job.tell(CheckpointUnreadable("r0", 0, "torn")) == []  # of a generation before
    (failed,) = only(Failed, job.tell(CheckpointUnreadable("r0", 1, "torn")))
    assert "torn" in failed.why


def test_a_resumed_job_starts_from_the_folder_it_was_given() -> None:
    job = Job(start=7, resume="place/0000000007-3")
    made = only(Create, job.up("r0"))
    assert {(create.clock, create.folder) for create in made} == {(7, "place/0000000007-3")}
    assert job.cluster.completed_clock == job.cluster.consistent == 7
