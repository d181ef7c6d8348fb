"""Decides which reliable machine backs up what a transient one serves, as reliable machines come and go.

In the transition to stage 2 a ParamServ stays as the backup of what it served. This rule is for later: a
backup died while the owner still has everything, or a reliable machine joined and takes its part. The owner
sends a copy to the *incoming backup*, which becomes the backup once the copy has arrived. Until then B does
not pass the clock that the last backup held. So whatever dies meanwhile, training can return to B or to a
checkpoint.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result
from agileml.controller.placement.layout import assign_owners
from agileml.controller.placement.ownership import IncomingBackup, Partition, PartitionStatus
from agileml.node.tier import Tier
from agileml.protocol.commands import BackUp, Command


def place_backups(cluster: ClusterState) -> Result:
    """Gives partitions without a backup one, and moves backups so that a joined machine gets its part."""
    epoch = cluster.epoch + 1
    chosen: list[Partition] = []
    commands: list[Command] = []
    for partition, target in zip(cluster.partitions, _target_backups(cluster), strict=True):
        owner = partition.owner
        if owner is None or target is None or not _needs_copy(cluster, partition, target):
            continue
        # The owner pushes to the new backup alone from now on, so the present one falls behind. It stays, at
        # B or later: discarded now, a death of the owner would leave no copy before the new one arrives.
        chosen.append(replace(partition, detached=True, incoming_backup=IncomingBackup(target, epoch)))
        commands.append(BackUp(owner, partition.number, cluster.make_peer(target), epoch, cluster.generation))
    if not chosen:
        return cluster, ()
    return replace(cluster.with_partitions(chosen), epoch=epoch), tuple(commands)


def _target_backups(cluster: ClusterState) -> tuple[str | None, ...]:
    """Returns a backup for each partition, with the fewest copies; None without a reliable machine."""
    claims = []
    for partition in cluster.partitions:
        # The copy under way counts as there: otherwise each step would choose a new target for it.
        incoming = partition.incoming_backup.machine if partition.incoming_backup else None
        holder = incoming or partition.backup or partition.owner
        claims.append((holder,) if holder is not None else ())
    return assign_owners(claims, dict.fromkeys(cluster.roster.assignable_servers(Tier.RELIABLE), 1.0))


def _needs_copy(cluster: ClusterState, partition: Partition, target: str) -> bool:
    """Whether to send a copy to ``target``: not while a copy, or the partition itself, is on its way."""
    if (
        partition.status is not PartitionStatus.SERVED
        or partition.incoming_backup
        or cluster.roster.is_reliable(partition.owner)
    ):
        return False
    # The partition of a leaving machine is about to move, and a copy would take notice and bandwidth from
    # that. Without any backup it is copied all the same: the move may not finish in time.
    machine = cluster.machines[partition.owner or ""]
    if machine.leaving and not partition.detached:
        return False
    return partition.detached or partition.backup != target
