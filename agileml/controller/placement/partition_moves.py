"""Moves each partition to the owner that the stage wants: decides what to create or hand over, and to whom.

Level-triggered: each call computes the target afresh from the machines that are left, and commands only its
differences to the present, under a new epoch. A partition on its way stays alone until it has arrived; if its
place is wrong by then, that is a difference like any other.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result
from agileml.controller.placement.layout import assign_owners, choose_actives
from agileml.controller.placement.ownership import Partition, PartitionStatus
from agileml.controller.stages import PLACEMENTS
from agileml.node.tier import Tier
from agileml.protocol.commands import Command, Create, Forget, Handover
from agileml.protocol.events import Stage


def target_owners(cluster: ClusterState) -> tuple[str | None, ...]:
    """Returns who should serve each partition, with the fewest moves; None while no server can."""
    if PLACEMENTS[cluster.stages.current].served_on is Tier.RELIABLE:
        names: tuple[str, ...] = cluster.roster.assignable_servers(Tier.RELIABLE)
    else:
        names = active_machines(cluster)
    claims = [(partition.owner,) if partition.owner else () for partition in cluster.partitions]
    spread_out = assign_owners(claims, dict.fromkeys(names, 1.0))
    # Back in stage 1 a partition goes to its backup, which lacks little of its state: when all transient
    # machines leave, the notice is too short to send whole partitions.
    if cluster.stages.current is Stage.ONE:
        pairs = zip(cluster.partitions, spread_out, strict=True)
        spread_out = tuple(partition.backup or owner for partition, owner in pairs)
    return spread_out


def active_machines(cluster: ClusterState) -> tuple[str, ...]:
    """Returns the machines that run an ActivePS in stages 2 and 3."""
    return tuple(
        choose_actives(
            available=cluster.roster.assignable_servers(Tier.TRANSIENT),
            serving=frozenset(partition.owner for partition in cluster.partitions if partition.owner),
            transient=cluster.roster.count_participants(Tier.TRANSIENT),
            share=cluster.setup.active_share,
            most=len(cluster.partitions),
        )
    )


def create_partitions(cluster: ClusterState) -> Result:
    """Creates every absent partition on a reliable machine, whatever the stage will be."""
    absent = [partition for partition in cluster.partitions if partition.status is PartitionStatus.ABSENT]
    if not absent or not cluster.roster.assignable_servers(Tier.RELIABLE):
        return cluster, ()
    owners = target_owners(cluster)
    cluster = replace(cluster, epoch=cluster.epoch + 1)
    epoch, generation, stored = cluster.epoch, cluster.generation, cluster.checkpoints.newest
    created: list[Partition] = []
    commands: list[Command] = []
    for partition in absent:
        owner = owners[partition.number]
        if owner is not None:
            created.append(replace(partition, status=PartitionStatus.CREATING, owner=owner, epoch=epoch))
            commands.append(Create(owner, partition.number, epoch, generation, stored.clock, stored.folder))
    return cluster.with_partitions(created), tuple(commands)


def hand_over_partitions(cluster: ClusterState) -> Result:
    """Moves partitions that are served in the wrong place, or held frozen for a target that died."""
    epoch = cluster.epoch + 1
    moved: list[Partition] = []
    commands: list[Command] = []
    for partition, wanted in zip(cluster.partitions, target_owners(cluster), strict=True):
        source = _handover_source(partition, wanted)
        if source is None:
            continue
        # A frozen partition that has nowhere to go is served again where it is.
        moving, handover = _make_handover(cluster, partition, source, wanted or source, epoch)
        moved.append(moving)
        commands.append(handover)
        # The next owner knows nothing of the copy under way, and pushes to the present backup.
        if partition.new_backup is not None:
            commands.append(Forget(partition.new_backup, partition.number, cluster.epoch))
    if not moved:
        return cluster, ()
    return replace(cluster.with_partitions(moved), epoch=epoch), tuple(commands)


def _handover_source(partition: Partition, target: str | None) -> str | None:
    """Returns the machine that must hand it over to ``target``; None if it is there or on its way."""
    if partition.status is PartitionStatus.FROZEN:
        return partition.source
    if partition.status is PartitionStatus.SERVED and target not in (None, partition.owner):
        return partition.owner
    return None


def _make_handover(
    cluster: ClusterState, partition: Partition, source: str, target: str, epoch: int
) -> tuple[Partition, Handover]:
    # Stage 1 to 2: the reliable source already has everything, and becomes the backup without another copy.
    stays = cluster.roster.is_reliable(source) and not cluster.roster.is_reliable(target)
    backup = source if stays else partition.backup
    moving = replace(
        partition,
        status=PartitionStatus.MOVING,
        source=source,
        owner=target,
        epoch=epoch,
        backup=backup,
        incoming_backup=None,
    )
    follows = None if backup is None or cluster.roster.is_reliable(target) else cluster.make_peer(backup)
    handover = Handover(
        machine=source,
        partition=partition.number,
        target=target,
        endpoint=cluster.make_peer(target).endpoint,
        epoch=epoch,
        generation=cluster.generation,
        keep_backup=stays,
        # A detached backup misses ranges, and an EndOfLife carries only what follows the last one.
        to_backup=target == backup != source and not partition.detached,
        backup=follows,
    )
    return moving, handover
