"""From the stage to the owners of partitions: what must be created or handed over, and to whom.

Level-triggered: the target is computed afresh from whoever is left, and only its differences to the
present are commanded, under a new epoch. A partition on its way is left alone until it has arrived;
whatever is wrong with it by then is a difference like any other. Backups never move: a reliable machine
that joins in stage 2 or 3 gets its part of the model when stage 1 comes again.
"""

from __future__ import annotations

from dataclasses import replace

from agileml.cluster import Cluster, Result
from agileml.events import Command, Create, Handover, Stage, Tier
from agileml.holdings import Partition, Standing
from agileml.layout import actives, spread
from agileml.stages import PLACEMENTS, choose_stage


def decide_stage(cluster: Cluster) -> Result:
    """The stage for those taking part; the first one while no transient machine could serve."""
    transient, reliable = cluster.taking_part(Tier.TRANSIENT), len(cluster.servers(Tier.RELIABLE))
    if not cluster.servers(Tier.TRANSIENT):
        transient = 0
    return replace(cluster, stage=choose_stage(cluster.stage, transient, reliable, cluster.setup)), ()


def target_owners(cluster: Cluster) -> tuple[str, ...]:
    """Who should serve each partition, with the fewest moves.

    Back in stage 1 a partition goes to its backup, where its state already is.
    """
    if PLACEMENTS[cluster.stage].served_on is Tier.RELIABLE:
        names: tuple[str, ...] = cluster.servers(Tier.RELIABLE)
    else:
        names = _active_machines(cluster)
    claims = [(partition.owner,) if partition.owner else () for partition in cluster.partitions]
    spread_out = spread(claims, dict.fromkeys(names, 1.0))
    if cluster.stage is Stage.ONE:
        pairs = zip(cluster.partitions, spread_out, strict=True)
        spread_out = tuple(partition.backup or owner for partition, owner in pairs)
    return tuple(owner for owner in spread_out if owner is not None)


def _active_machines(cluster: Cluster) -> tuple[str, ...]:
    return tuple(
        actives(
            available=cluster.servers(Tier.TRANSIENT),
            serving=frozenset(partition.owner for partition in cluster.partitions if partition.owner),
            transient=cluster.taking_part(Tier.TRANSIENT),
            share=cluster.setup.active_share,
            most=len(cluster.partitions),
        )
    )


def create(cluster: Cluster) -> Result:
    """Every partition begins on a reliable machine, whatever the stage will be."""
    absent = [partition for partition in cluster.partitions if partition.standing is Standing.ABSENT]
    owners = target_owners(cluster)
    if not absent or not owners:
        return cluster, ()
    cluster = replace(cluster, epoch=cluster.epoch + 1)
    created = tuple(
        replace(partition, standing=Standing.CREATING, owner=owners[partition.number], epoch=cluster.epoch)
        for partition in absent
    )
    commands = tuple(
        Create(owners[partition.number], partition.number, cluster.epoch, cluster.generation)
        for partition in created
    )
    return cluster.with_partitions(created), commands


def hand_over(cluster: Cluster) -> Result:
    """Move what is served in the wrong place, and what its source holds frozen for a target that died."""
    epoch = cluster.epoch + 1
    moved: list[Partition] = []
    commands: list[Command] = []
    for partition, target in zip(cluster.partitions, target_owners(cluster), strict=True):
        source = _source(partition, target)
        if source is None:
            continue
        stays = _is_reliable(cluster, source) and not _is_reliable(cluster, target)
        moving = replace(
            partition,
            standing=Standing.MOVING,
            source=source,
            owner=target,
            epoch=epoch,
            backup=source if stays else partition.backup,
            backed=partition.completed if stays else partition.backed,
        )
        handover = Handover(
            machine=source,
            partition=partition.number,
            target=target,
            endpoint=cluster.endpoint(target),
            epoch=epoch,
            generation=cluster.generation,
            keep_backup=stays,
            to_backup=target == partition.backup != source,
        )
        moved.append(moving)
        commands.append(handover)
    if not moved:
        return cluster, ()
    return replace(cluster.with_partitions(moved), epoch=epoch), tuple(commands)


def _source(partition: Partition, target: str) -> str | None:
    """Who must hand it over for ``target`` to get it; None while it is on its way, or there already."""
    if partition.standing is Standing.FROZEN:
        return partition.source
    if partition.standing is Standing.SERVED and partition.owner != target:
        return partition.owner
    return None


def _is_reliable(cluster: Cluster, name: str) -> bool:
    return cluster.machines[name].tier is Tier.RELIABLE
