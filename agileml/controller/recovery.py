"""Going back to a state that can still be had, when somebody who held partitions died (Harlap 4.2.3).

One rule: the whole cluster takes on a new generation. Words and deltas of the generation before count for
nothing. While every partition has a copy, that generation starts at B: whatever is served stays where it
is and undoes what came after B; whatever is not comes from its backup. Where no copy of some partition is
left, it starts at the newest checkpoint, and all are made again as at the start of the job.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from agileml.controller.cluster import Cluster, Phase, Result
from agileml.controller.placement.ownership import Partition, Standing
from agileml.controller.placement.partition_moves import target_owners
from agileml.node.tier import Tier
from agileml.protocol.commands import Command, Failed, Forget, Restore, Rollback, RolledBack
from agileml.protocol.events import CheckpointUnreadable, Stage

_DEATHS_PER_MACHINE: Final = 20
_LEAST_PATIENCE: Final = 100
"""Deaths of processes, all machines together, without one more clock: agents start them again for ever."""


def give_up(cluster: Cluster) -> Result:
    """Without a reliable machine nothing that is learned would be safe; before training some may yet come.

    Where processes die over and over and nothing comes of it, as for want of memory, no machine cures that.
    """
    if cluster.deaths > max(_LEAST_PATIENCE, _DEATHS_PER_MACHINE * len(cluster.machines)):
        further = f"no clock after {cluster.furthest} was completed; the logs of the machines say of what"
        return failed(cluster, f"its processes died {cluster.deaths} times, and {further}")
    if not cluster.begun or any(machine.tier is Tier.RELIABLE for machine in cluster.machines.values()):
        return cluster, ()
    return failed(cluster, "no reliable machine is left")


def unreadable(cluster: Cluster, event: CheckpointUnreadable) -> Result:
    """Of a generation before: whoever said so was asked again since."""
    if event.generation < cluster.generation:
        return cluster, ()
    return failed(cluster, f"{event.machine} cannot read the checkpoint it was to start from: {event.why}")


def failed(cluster: Cluster, why: str) -> Result:
    return replace(cluster, phase=Phase.FAILED), (Failed(why, cluster.stored.folder),)


def recover(cluster: Cluster) -> Result:
    """Roll back if anything was lost: to B, or to the newest checkpoint if that is all there is."""
    lost = [partition for partition in cluster.partitions if partition.standing is Standing.LOST]
    if not lost:
        return cluster, ()
    gone = [partition.number for partition in lost if partition.keeper is None]
    if not gone:
        return _return_to_b(cluster)
    if cluster.setup.returns:
        return _start_over(cluster)
    return failed(cluster, f"the last copies of partitions {gone} are gone, and there are no checkpoints")


def _start_over(cluster: Cluster) -> Result:
    """Make every partition again as it was at the newest checkpoint, in the layout of a job that starts."""
    clock, epoch = cluster.stored.clock, cluster.epoch + 1
    commands: list[Command] = [
        Forget(name, partition.number, epoch)
        for partition in cluster.partitions
        for name in partition.holders
        if cluster.server(name)
    ]
    commands.append(RolledBack(clock, max(0, cluster.completed - clock), lost=True))
    absent = [Partition.absent(partition.number, clock) for partition in cluster.partitions]
    cluster = replace(
        cluster.with_partitions(absent),
        phase=Phase.STARTING,
        stage=Stage.ONE,
        reached=None,
        turn=True,
        planned=True,
        generation=cluster.generation + 1,
        epoch=epoch,
        shards=tuple(shard.given_to(None) for shard in cluster.shards),
        consistent=clock,
        progress=(clock, clock),
        saving=frozenset(),
        attempt=None,
        attempted=clock,
        until=cluster.until if cluster.until == cluster.setup.clocks else clock + cluster.setup.lag,
    )
    return cluster, tuple(commands)


def _return_to_b(cluster: Cluster) -> Result:
    """Also what is on its way then comes from its keeper, at B."""
    redone = max(0, cluster.completed - cluster.consistent)
    clock = cluster.consistent
    targets = target_owners(cluster)
    generation, epoch = cluster.generation + 1, cluster.epoch + 1
    cluster = replace(cluster, generation=generation, epoch=epoch, progress=(clock, clock), turn=True)
    commands: list[Command] = []
    partitions: list[Partition] = []
    for partition, target in zip(cluster.partitions, targets, strict=True):
        if partition.standing is Standing.SERVED:
            after, orders = _undo(cluster, partition)
        else:
            after, orders = _restore(cluster, partition, target)
        commands += orders
        partitions.append(replace(after, completed=clock, safe=frozenset({clock})))
    commands.append(RolledBack(clock, redone))
    return cluster.with_partitions(partitions), tuple(commands)


def _undo(cluster: Cluster, partition: Partition) -> tuple[Partition, list[Command]]:
    """Where it is; a copy on its way to an heir is of the past, and another will be sent."""
    holders = (name for name in (partition.owner, partition.backup) if name is not None)
    orders: list[Command] = [
        Rollback(name, partition.number, partition.epoch, cluster.generation, cluster.consistent)
        for name in holders
    ]
    if partition.newcomer is not None:
        orders.append(Forget(partition.newcomer, partition.number, cluster.epoch))
    return replace(partition, heir=None), orders


def _restore(cluster: Cluster, partition: Partition, target: str | None) -> tuple[Partition, list[Command]]:
    """From its keeper to ``target``; on the keeper itself if that is no backup, or there is no target."""
    keeper = partition.keeper
    if keeper is None:
        raise cluster.broken(f"nobody can restore {partition}")
    if partition.backup is None or target is None:
        target = keeper
    restoring = replace(
        partition,
        standing=Standing.RESTORING,
        owner=target,
        source=keeper,
        epoch=cluster.epoch,
        detached=partition.backup is None and partition.detached,
    )
    where = cluster.endpoint(target)
    orders: list[Command] = [
        Restore(
            keeper, partition.number, target, where, cluster.epoch, cluster.generation, cluster.consistent
        )
    ]
    # Whoever still has a copy from the move that is off, or may yet receive one.
    stale = (name for name in partition.holders if name not in (keeper, target))
    orders += [Forget(name, partition.number, cluster.epoch) for name in stale if cluster.server(name)]
    return replace(restoring, heir=None), orders
