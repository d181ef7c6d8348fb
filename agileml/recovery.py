"""Going back to the state that every backup holds, when somebody who served partitions died (Harlap 4.2.3).

One rule: the whole cluster takes on a new generation at clock B. Whatever is served stays where it is
and undoes what came after B; whatever is not comes from its backup. Words and deltas of the generation
before count for nothing.
"""

from __future__ import annotations

from dataclasses import replace

from agileml.cluster import Cluster, Result
from agileml.events import Command, Forget, Restore, Rollback, RolledBack
from agileml.holdings import Partition, Standing
from agileml.moves import target_owners


def recover(cluster: Cluster) -> Result:
    """Roll back to B if anything was lost; also what is on its way then comes from its keeper, at B."""
    if all(partition.standing is not Standing.LOST for partition in cluster.partitions):
        return cluster, ()
    redone = max(0, cluster.completed - cluster.consistent)
    clock = cluster.consistent
    targets = target_owners(cluster)
    generation, epoch = cluster.generation + 1, cluster.epoch + 1
    cluster = replace(cluster, generation=generation, epoch=epoch, progress=(clock, clock))
    commands: list[Command] = []
    partitions: list[Partition] = []
    for partition, target in zip(cluster.partitions, targets, strict=True):
        if partition.standing is Standing.SERVED:
            after, orders = partition, _undo(cluster, partition)
        else:
            after, orders = _restore(cluster, partition, target)
        commands += orders
        partitions.append(replace(after, completed=clock, backed=clock))
    commands.append(RolledBack(clock, redone))
    return cluster.with_partitions(partitions), tuple(commands)


def _undo(cluster: Cluster, partition: Partition) -> list[Command]:
    holders = (name for name in (partition.owner, partition.backup) if name is not None)
    return [
        Rollback(name, partition.number, partition.epoch, cluster.generation, cluster.consistent)
        for name in holders
    ]


def _restore(cluster: Cluster, partition: Partition, target: str) -> tuple[Partition, list[Command]]:
    """From its keeper to ``target``; on the keeper itself if that is no backup but a reliable source."""
    keeper = partition.keeper
    if keeper is None:
        raise cluster.broken(f"nobody can restore {partition}")
    if partition.backup is None:
        target = keeper
    restoring = replace(
        partition, standing=Standing.RESTORING, owner=target, source=keeper, epoch=cluster.epoch
    )
    where = cluster.endpoint(target)
    orders: list[Command] = [
        Restore(
            keeper, partition.number, target, where, cluster.epoch, cluster.generation, cluster.consistent
        )
    ]
    # Whoever still has a copy from the move that is off, or may yet receive one.
    stale = (name for name in (partition.source, partition.owner) if name and name not in (keeper, target))
    orders += [Forget(name, partition.number, cluster.epoch) for name in stale if cluster.server(name)]
    return restoring, orders
