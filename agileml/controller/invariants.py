"""Defines what must hold of the controller's state after every step, and checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agileml.controller.cluster import BrokenInvariant, ClusterState, TrainingPhase
from agileml.controller.placement.ownership import ON_ITS_WAY, Partition, PartitionStatus
from agileml.node.tier import Tier

INVARIANTS: Final[Mapping[int, str]] = {
    1: "while training, every partition has exactly one owner per epoch, and it lives",
    2: "whatever a transient machine serves has its backup on a live reliable machine, or a copy under way",
    3: "while training, every shard was given to exactly one live worker, if there is one",
    4: "B never moves backwards, but to the newest checkpoint when a partition has no copy left",
    5: "nothing completed up to B can be lost: every partition is safe at B or later",
    6: "once events stop, partitions arrive, leaving machines become safe to kill, and clocks complete",
}
"""``state_machine.step`` checks 4, which compares two states; tests check 6, which is about the future."""


def make_violation(cluster: ClusterState, invariant: int, how: str) -> BrokenInvariant:
    """Returns the error for an invariant that does not hold, with the events that led there."""
    return cluster.broken_invariant(f"invariant {invariant}, {INVARIANTS[invariant]}: {how}")


def check_invariants(cluster: ClusterState) -> None:
    """Raises BrokenInvariant, with the story, unless INVARIANTS hold, as they do after every step."""
    if cluster.phase is TrainingPhase.TRAINING:
        for partition in cluster.partitions:
            _check_owner(cluster, partition)
            _check_backup(cluster, partition)
        _check_shards(cluster)
    for partition in cluster.partitions:
        if cluster.consistent not in partition.safe or max(partition.safe) > partition.completed:
            raise make_violation(cluster, 5, f"B is {cluster.consistent}, {partition}")
    if cluster.checkpoints.newest.clock > cluster.consistent:
        raise make_violation(cluster, 5, f"B is {cluster.consistent}, {cluster.checkpoints.newest}")
    for machine in cluster.machines.values():
        if machine.safe and (cluster.holds_shards(machine.name) or cluster.holds_state(machine.name)):
            raise cluster.broken_invariant(
                f"{machine.name} was reported safe to kill, but holds input or state"
            )


def _check_owner(cluster: ClusterState, partition: Partition) -> None:
    if (
        partition.status not in ON_ITS_WAY | {PartitionStatus.SERVED}
        or cluster.roster.live_server(partition.owner) is None
    ):
        raise make_violation(cluster, 1, f"{partition}")
    if partition.status is PartitionStatus.MOVING and cluster.roster.live_server(partition.source) is None:
        raise make_violation(cluster, 1, f"nobody sends {partition}")


def _check_backup(cluster: ClusterState, partition: Partition) -> None:
    incoming = partition.incoming_backup.machine if partition.incoming_backup else None
    for name in (partition.backup, incoming):
        if name is not None and not (cluster.roster.is_reliable(name) and cluster.roster.live_server(name)):
            raise make_violation(cluster, 2, f"{partition}")
    if cluster.roster.is_reliable(partition.owner) or partition.backup or incoming:
        return
    # Without a reliable server there is nobody to send a copy to, and a partition on its way is copied only
    # once it is served.
    if cluster.roster.assignable_servers(Tier.RELIABLE) and partition.status is PartitionStatus.SERVED:
        raise make_violation(cluster, 2, f"{partition}")


def _check_shards(cluster: ClusterState) -> None:
    # Orders wait for partitions on their way: until all have arrived, shards may belong to dead workers.
    if not cluster.computing_machines() or not cluster.all_served:
        return
    draining = cluster.draining_owners()
    for number, shard in enumerate(cluster.shards):
        # The shards of drained workers stay without an owner until the last worker has drained.
        if shard.owner is None and draining:
            continue
        machine = cluster.machines.get(shard.owner or "")
        worker = machine.worker if machine else None
        if worker is None or worker.drained or worker.orders is None or number not in worker.orders.shards:
            raise make_violation(cluster, 3, f"shard {number}: {shard}")
