"""Rolls training back to a state that still exists, when a holder of partitions died (Harlap 4.2.3).

One rule: the whole cluster takes on a new generation. Words and deltas of the generation before count for
nothing. While every partition has a copy, that generation starts at B. Served partitions stay where they are
and undo what came after B; the others come from their backups. Where some partition has no copy left, it
starts at the newest checkpoint, and all are made again as at the start of the job.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result, TrainingPhase
from agileml.controller.placement.ownership import Partition, PartitionStatus
from agileml.controller.placement.partition_moves import target_owners
from agileml.node.tier import Tier
from agileml.protocol.commands import Command, Failed, Forget, Restore, Rollback, RolledBack
from agileml.protocol.events import CheckpointUnreadable, Stage

_DEATHS_PER_MACHINE: Final = 20
_LEAST_PATIENCE: Final = 100
"""How many processes may die, all machines together, without one more clock: agents would restart them for
ever.
"""


def give_up(cluster: ClusterState) -> Result:
    """Fails the job where it cannot succeed any more.

    Without a reliable machine nothing that is learned would be safe; before training begins one may yet come.
    Where processes die over and over and complete no clock, for want of memory for instance, no machine cures
    that.
    """
    if cluster.deaths > max(_LEAST_PATIENCE, _DEATHS_PER_MACHINE * len(cluster.machines)):
        further = (
            f"no clock after {cluster.furthest_clock} was completed; the logs of the machines say of what"
        )
        return fail_job(cluster, f"its processes died {cluster.deaths} times, and {further}")
    if not cluster.has_begun or any(machine.tier is Tier.RELIABLE for machine in cluster.machines.values()):
        return cluster, ()
    return fail_job(cluster, "no reliable machine is left")


def checkpoint_unreadable(cluster: ClusterState, event: CheckpointUnreadable) -> Result:
    """Fails the job, unless the report is of an earlier generation: its sender was asked again since."""
    if event.generation < cluster.generation:
        return cluster, ()
    return fail_job(cluster, f"{event.machine} cannot read the checkpoint it was to start from: {event.why}")


def fail_job(cluster: ClusterState, why: str) -> Result:
    return replace(cluster, phase=TrainingPhase.FAILED), (Failed(why, cluster.checkpoints.newest.folder),)


def recover_partitions(cluster: ClusterState) -> Result:
    """Rolls back if anything was lost: to B, or to the newest checkpoint if that is all there is."""
    lost = [partition for partition in cluster.partitions if partition.status is PartitionStatus.LOST]
    if not lost:
        return cluster, ()
    gone = [partition.number for partition in lost if partition.recovery_source is None]
    if not gone:
        return _return_to_b(cluster)
    if cluster.setup.can_start_over:
        return _start_over(cluster)
    return fail_job(cluster, f"the last copies of partitions {gone} are gone, and there are no checkpoints")


def _start_over(cluster: ClusterState) -> Result:
    """Makes every partition again as it was at the newest checkpoint, in the layout of a job that starts."""
    clock, epoch = cluster.checkpoints.newest.clock, cluster.epoch + 1
    commands: list[Command] = [
        Forget(name, partition.number, epoch)
        for partition in cluster.partitions
        for name in partition.copy_holders
        if cluster.live_server(name)
    ]
    commands.append(RolledBack(clock, max(0, cluster.completed_clock - clock), lost=True))
    absent = [Partition.absent_at(partition.number, clock) for partition in cluster.partitions]
    cluster = replace(
        cluster.with_partitions(absent),
        phase=TrainingPhase.STARTING,
        stage=Stage.ONE,
        reached_stage=None,
        input_may_move=True,
        orders_given=True,
        generation=cluster.generation + 1,
        epoch=epoch,
        shards=tuple(shard.with_owner(None) for shard in cluster.shards),
        consistent=clock,
        progress=(clock, clock),
        saving=frozenset(),
        checkpoints=replace(cluster.checkpoints, attempt=None, attempted_clock=clock),
        # A stop that was requested still ends the job soon, counted from the checkpoint.
        until=cluster.until
        if cluster.until == cluster.setup.clocks
        else cluster.barrier.last_startable(clock),
    )
    return cluster, tuple(commands)


def _return_to_b(cluster: ClusterState) -> Result:
    """Returns every partition to B. Partitions on their way are sent again, by their recovery source."""
    redone = max(0, cluster.completed_clock - cluster.consistent)
    clock = cluster.consistent
    targets = target_owners(cluster)
    generation, epoch = cluster.generation + 1, cluster.epoch + 1
    cluster = replace(
        cluster, generation=generation, epoch=epoch, progress=(clock, clock), input_may_move=True
    )
    commands: list[Command] = []
    partitions: list[Partition] = []
    for partition, target in zip(cluster.partitions, targets, strict=True):
        # Only served partitions can undo in place: any other copy may be incomplete, or nobody's.
        if partition.status is PartitionStatus.SERVED:
            after, orders = _roll_back(cluster, partition)
        else:
            after, orders = _restore_partition(cluster, partition, target)
        commands += orders
        partitions.append(replace(after, completed=clock, safe=frozenset({clock})))
    commands.append(RolledBack(clock, redone))
    return cluster.with_partitions(partitions), tuple(commands)


def _roll_back(cluster: ClusterState, partition: Partition) -> tuple[Partition, list[Command]]:
    """Rolls a served partition back in place. A copy on its way to a new backup is outdated, and another will
    be sent.
    """
    holders = (name for name in (partition.owner, partition.backup) if name is not None)
    orders: list[Command] = [
        Rollback(name, partition.number, partition.epoch, cluster.generation, cluster.consistent)
        for name in holders
    ]
    if partition.new_backup is not None:
        orders.append(Forget(partition.new_backup, partition.number, cluster.epoch))
    return replace(partition, incoming_backup=None), orders


def _restore_partition(
    cluster: ClusterState, partition: Partition, target: str | None
) -> tuple[Partition, list[Command]]:
    """Restores a partition from its recovery source to ``target``.

    It is served on the source itself if that is no backup, or there is no target.
    """
    source = partition.recovery_source
    if source is None:
        raise cluster.broken_invariant(f"nobody can restore {partition}")
    if partition.backup is None or target is None:
        target = source
    restoring = replace(
        partition,
        status=PartitionStatus.RESTORING,
        owner=target,
        source=source,
        epoch=cluster.epoch,
        detached=partition.backup is None and partition.detached,
    )
    where = cluster.server_endpoint(target)
    orders: list[Command] = [
        Restore(
            source, partition.number, target, where, cluster.epoch, cluster.generation, cluster.consistent
        )
    ]
    # Machines that still have a copy from the cancelled move, or may yet receive one.
    stale = (name for name in partition.copy_holders if name not in (source, target))
    orders += [Forget(name, partition.number, cluster.epoch) for name in stale if cluster.live_server(name)]
    return replace(restoring, incoming_backup=None), orders
