"""Records machines and roles that come, are warned and go.

These handlers only record facts. The rules of ``placement`` and ``recovery`` then read off the state which
partitions must move, be restored or be rolled back. So an event in the middle of a transition needs no case
of its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result, TrainingPhase
from agileml.controller.machines import MachineRecord, RoleEvent, ServerRecord, WorkerRecord
from agileml.controller.placement.ownership import Partition, PartitionStatus
from agileml.node.tier import Tier
from agileml.protocol.events import (
    EvictionWarned,
    Loaded,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ServerLost,
    ServerReady,
    WorkerLost,
    WorkerReady,
)


def machine_joined(cluster: ClusterState, event: MachineJoined) -> Result:
    """Records a new machine. Machine names are unique in a job: one that left does not come back."""
    roster = cluster.roster
    if event.machine in roster.machines or event.machine in roster.departed:
        return cluster, ()
    roster = roster.with_machines([MachineRecord(event.machine, event.tier, event.cores)])
    early = [role for role in roster.unannounced_roles if role.machine == event.machine]
    later = tuple(role for role in roster.unannounced_roles if role.machine != event.machine)
    cluster = replace(cluster, roster=replace(roster, unannounced_roles=later))
    # In the order in which they came: a role may have died and come back before its machine was announced.
    for role in early:
        cluster, _ = role_changed(cluster, role)
    return cluster, ()


def role_changed(cluster: ClusterState, event: RoleEvent) -> Result:
    """Records that a role came up or died. Events of an incarnation that is known to be gone are stale."""
    roster = cluster.roster
    if event.machine in roster.departed:
        return cluster, ()
    machine = roster.machines.get(event.machine)
    if machine is None:
        # The client announces machines and agents report roles, over different links: either may be first.
        # Dropped here, the role would never be reported again, and its machine would never take part.
        unannounced = (*roster.unannounced_roles, event)
        return replace(cluster, roster=replace(roster, unannounced_roles=unannounced)), ()
    match event:
        case ServerReady():
            return _server_ready(cluster, machine, event), ()
        case ServerLost():
            cluster = _count_death(cluster, machine.dead_server, event.incarnation)
            return _server_lost(cluster, machine, event.incarnation), ()
        case WorkerReady():
            return _worker_ready(cluster, machine, event.incarnation), ()
        case WorkerLost():
            cluster = _count_death(cluster, machine.dead_worker, event.incarnation)
            return _worker_lost(cluster, machine, event.incarnation), ()


def _count_death(cluster: ClusterState, known: int, incarnation: int) -> ClusterState:
    """Counts one more death. ``known``: the last incarnation whose death is counted already."""
    if incarnation <= known:
        return cluster
    return replace(cluster, progress=replace(cluster.progress, deaths=cluster.progress.deaths + 1))


def _server_ready(cluster: ClusterState, machine: MachineRecord, event: ServerReady) -> ClusterState:
    known = machine.server.incarnation if machine.server else machine.dead_server
    if event.incarnation <= known:
        return cluster
    # A second server of a machine proves that the first is gone, even if nobody reported its death. What the
    # first held is gone with it: the new one is empty, and must not be taken for the owner of anything.
    cluster = _server_lost(cluster, machine, event.incarnation - 1)
    machine = replace(cluster.machines[machine.name], server=ServerRecord(event.incarnation, event.endpoint))
    return cluster.with_machine(_mark_proven(machine))


def _server_lost(cluster: ClusterState, machine: MachineRecord, incarnation: int) -> ClusterState:
    """Records that every incarnation up to this one is gone, with all it held."""
    dead = replace(machine, dead_server=max(machine.dead_server, incarnation))
    if machine.server is None or machine.server.incarnation > incarnation:
        return cluster.with_machine(dead)
    return drop_server_state(cluster.with_machine(replace(dead, server=None)), machine.name)


def _worker_ready(cluster: ClusterState, machine: MachineRecord, incarnation: int) -> ClusterState:
    known = machine.worker.incarnation if machine.worker else machine.dead_worker
    if incarnation <= known:
        return cluster
    return cluster.with_machine(
        _mark_proven(replace(machine, worker=WorkerRecord(incarnation), dead_worker=incarnation - 1))
    )


def _worker_lost(cluster: ClusterState, machine: MachineRecord, incarnation: int) -> ClusterState:
    """Records a worker's death."""
    # No roll-back: what it delivered stays delivered, and servers drop what its successor delivers again.
    dead = replace(machine, dead_worker=max(machine.dead_worker, incarnation))
    if machine.worker and machine.worker.incarnation <= incarnation:
        dead = replace(dead, worker=None)
    return cluster.with_machine(dead)


def worker_loaded(cluster: ClusterState, event: Loaded) -> Result:
    """Records the shards in a worker's memory, which it can take over without a wait."""
    machine = cluster.machines.get(event.machine)
    if machine is None or machine.worker is None or machine.worker.incarnation != event.incarnation:
        return cluster, ()
    worker = replace(machine.worker, loaded=frozenset(event.shards), full=event.full)
    return cluster.with_machine(replace(machine, worker=worker)), ()


def _mark_proven(machine: MachineRecord) -> MachineRecord:
    up = machine.server is not None and machine.worker is not None
    return replace(machine, proven=machine.proven or up)


def machines_warned(cluster: ClusterState, event: EvictionWarned) -> Result:
    """Records an eviction warning. Reliable machines are never revoked, so theirs are ignored."""
    for name in event.machines:
        machine = cluster.machines.get(name)
        # Only the first warning counts. The client and the machine's own agent may both report it, and the
        # later report must not extend the notice that the worker is already spending.
        if machine and machine.tier is Tier.TRANSIENT and not machine.leaving:
            cluster = cluster.with_machine(replace(machine, leaving=True, notice_s=event.notice_s))
    return cluster, ()


def machine_left(cluster: ClusterState, event: MachineLost | MachineReleased) -> Result:
    """Records that a machine is gone. Lost and released differ only in what the state says it still held."""
    roster = cluster.roster
    if event.machine in roster.machines:
        cluster = replace(cluster, roster=roster.without_machine(event.machine))
        return drop_server_state(cluster, event.machine), ()
    # Lost before it was announced: the announcement, if it still comes, finds it departed and is ignored.
    strangers = tuple(role for role in roster.unannounced_roles if role.machine != event.machine)
    roster = replace(roster, unannounced_roles=strangers, departed=roster.departed | {event.machine})
    return replace(cluster, roster=roster), ()


# ---- what a dead server takes with it ------------------------------------------------------------


def drop_server_state(cluster: ClusterState, name: str) -> ClusterState:
    """Removes the copies that the server of ``name`` held, and what it was writing."""
    attempt = cluster.checkpoints.attempt
    if attempt is not None and name in attempt.writing:
        # Its part will never arrive, and waiting for it would end all checkpoints. The attempt stays due, so
        # another one begins as soon as it can.
        cluster = cluster.with_checkpoints(attempt=None, due=True)
    elif attempt is not None and name == attempt.sealer:
        cluster = cluster.with_checkpoints(attempt=replace(attempt, sealer=None))
    involved = (partition for partition in cluster.partitions if name in partition.copy_holders)
    # Nothing is learned yet, so a partition that is made again is the same partition.
    if cluster.phase is TrainingPhase.STARTING:
        return cluster.with_partitions(
            Partition.absent_at(p.number, cluster.checkpoints.newest.clock) for p in involved
        )
    return cluster.with_partitions(
        _without_copy(partition, name, cluster.consistent) for partition in involved
    )


def _without_copy(partition: Partition, name: str, consistent: int) -> Partition:
    """Returns ``partition`` after its copy on ``name`` died."""
    incoming = partition.incoming_backup
    if incoming is not None and incoming.machine == name:
        incoming = None
    backup = partition.backup if partition.backup != name else None
    left = replace(partition, incoming_backup=incoming, backup=backup)
    if backup is not partition.backup:
        # Later clocks were safe on that backup alone. If B moved to one of them now, and the owner died too,
        # nobody could return to B.
        left = replace(left, detached=True, safe=frozenset({consistent}))
    owner_died, source_died = partition.owner == name, partition.source == name
    if partition.status is PartitionStatus.MOVING and owner_died and not source_died:
        return replace(left, status=PartitionStatus.FROZEN, owner=None)
    if owner_died or source_died:
        # The next owner, if alive, may have received it already, but its report has not come. So it counts as
        # lost, and recovery orders that owner to take it from the backup at B, or to discard it.
        owner = None if owner_died else partition.owner
        return replace(left, status=PartitionStatus.LOST, owner=owner, source=None)
    return left
