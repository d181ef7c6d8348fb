"""Rolls training back to a state that still exists, when a holder of partitions died (Harlap 4.2.3).

One rule: the whole cluster takes on a new generation. Reports and deltas of earlier generations are ignored.
While every partition has a copy, the new generation starts at B: served partitions stay where they are and
undo what came after B, and the others come from their backups. Where some partition has no copy left, it
starts at the newest checkpoint, and every partition is made again as at the start of the job.
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
"""How many processes may die before the next clock, over all machines. Agents restart them for ever."""


def give_up(cluster: ClusterState) -> Result:
    """Fails the job where it cannot succeed any more: no reliable machine, or processes that keep dying."""
    # Processes that die over and over and complete no clock lack memory, for instance. More machines would
    # only be paid for.
    deaths, furthest = cluster.progress.deaths, cluster.progress.furthest_clock
    if deaths > max(_LEAST_PATIENCE, _DEATHS_PER_MACHINE * len(cluster.machines)):
        why = f"its processes died {deaths} times, and no clock after {furthest} was completed"
        return fail_job(cluster, f"{why}; the machines' logs have the reason")
    # Before training begins there is nothing to lose, and a reliable machine may yet come.
    if not cluster.has_begun or any(machine.tier is Tier.RELIABLE for machine in cluster.machines.values()):
        return cluster, ()
    return fail_job(cluster, "no reliable machine is left")


def checkpoint_unreadable(cluster: ClusterState, event: CheckpointUnreadable) -> Result:
    """Fails the job, unless the report is of an earlier generation, since when all was ordered anew."""
    if event.generation < cluster.generation:
        return cluster, ()
    return fail_job(cluster, f"{event.machine} cannot read the checkpoint to start from: {event.why}")


def fail_job(cluster: ClusterState, why: str) -> Result:
    return replace(cluster, phase=TrainingPhase.FAILED), (Failed(why, cluster.checkpoints.newest.folder),)


def recover_partitions(cluster: ClusterState) -> Result:
    """Rolls back if anything was lost: to B, or to the newest checkpoint where a partition has no copy."""
    # Before partitions are handed over and orders given: both read owners and generations, which change here.
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
    # A surviving copy is newer than the checkpoint, and would serve rows that its neighbours never saw.
    commands: list[Command] = [
        Forget(name, partition.number, epoch)
        for partition in cluster.partitions
        for name in partition.copy_holders
        if cluster.roster.live_server(name)
    ]
    commands.append(RolledBack(clock, max(0, cluster.completed_clock - clock), lost=True))
    absent = [Partition.absent_at(partition.number, clock) for partition in cluster.partitions]
    cluster = replace(
        cluster.with_partitions(absent),
        phase=TrainingPhase.STARTING,
        stages=replace(cluster.stages, current=Stage.ONE, reached=None),
        plan=replace(cluster.plan, may_move=True, orders_given=True),
        generation=cluster.generation + 1,
        epoch=epoch,
        shards=tuple(shard.with_owner(None) for shard in cluster.shards),
        consistent=clock,
        progress=replace(cluster.progress, reported=(clock, clock)),
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
        cluster,
        generation=generation,
        epoch=epoch,
        progress=replace(cluster.progress, reported=(clock, clock)),
        plan=replace(cluster.plan, may_move=True),
    )
    commands: list[Command] = []
    partitions: list[Partition] = []
    for partition, target in zip(cluster.partitions, targets, strict=True):
        # Only served partitions can undo in place: of any other, no live copy is known to be whole but the
        # recovery source's.
        if partition.status is PartitionStatus.SERVED:
            after, orders = _roll_back(cluster, partition)
        else:
            after, orders = _restore_partition(cluster, partition, target)
        commands += orders
        partitions.append(replace(after, completed=clock, safe=frozenset({clock})))
    commands.append(RolledBack(clock, redone))
    return cluster.with_partitions(partitions), tuple(commands)


def _roll_back(cluster: ClusterState, partition: Partition) -> tuple[Partition, list[Command]]:
    """Rolls a served partition back in place, with its backup."""
    holders = (name for name in (partition.owner, partition.backup) if name is not None)
    orders: list[Command] = [
        Rollback(name, partition.number, partition.epoch, cluster.generation, cluster.consistent)
        for name in holders
    ]
    # A copy on its way to a new backup holds clocks that are undone now. ``place_backups`` sends another.
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
    # The source of a Restore stays as the backup of its target. A source that is no backup yet may be a
    # transient machine, which must not become one, so it serves by itself.
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
    where = cluster.make_peer(target).endpoint
    orders: list[Command] = [
        Restore(
            source, partition.number, target, where, cluster.epoch, cluster.generation, cluster.consistent
        )
    ]
    # Machines that still have a copy from the cancelled move, or may yet receive one: without this order such
    # a copy would be installed when it comes, beside the restored one.
    stale = (name for name in partition.copy_holders if name not in (source, target))
    orders += [
        Forget(name, partition.number, cluster.epoch) for name in stale if cluster.roster.live_server(name)
    ]
    return replace(restoring, incoming_backup=None), orders
