"""Records machines and roles that come, are warned and go.

These handlers only record facts. Which partitions must then move, be restored or be rolled back is read off
the state by the rules of ``placement`` and ``recovery``, so an event in the middle of a transition needs no
case of its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result, RoleEvent, TrainingPhase
from agileml.controller.machines import MachineRecord, ServerRecord, WorkerRecord
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
    if event.machine in cluster.machines or event.machine in cluster.departed:
        return cluster, ()
    cluster = cluster.with_machine(MachineRecord(event.machine, event.tier, event.cores))
    early = tuple(word for word in cluster.unannounced_roles if word.machine == event.machine)
    cluster = replace(
        cluster, unannounced_roles=tuple(word for word in cluster.unannounced_roles if word not in early)
    )
    for word in early:
        cluster, _ = role_changed(cluster, word)
    return cluster, ()


def role_changed(cluster: ClusterState, event: RoleEvent) -> Result:
    """Records that a role came up or died. Words from an incarnation that is known to be gone are stale."""
    if event.machine in cluster.departed:
        return cluster, ()
    machine = cluster.machines.get(event.machine)
    if machine is None:
        # The announcement of the machine comes over another channel, and may still come.
        return replace(cluster, unannounced_roles=(*cluster.unannounced_roles, event)), ()
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
    """Counts one death more, unless it was ``known``."""
    return cluster if incarnation <= known else replace(cluster, deaths=cluster.deaths + 1)


def _server_ready(cluster: ClusterState, machine: MachineRecord, event: ServerReady) -> ClusterState:
    known = machine.server.incarnation if machine.server else machine.dead_server
    if event.incarnation <= known:
        return cluster
    # A second server of a machine proves that the first is gone, even if nobody reported its death.
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
    """Records a worker's death. Its shards go to others at the first incomplete clock; what it had delivered
    stays delivered.
    """
    dead = replace(machine, dead_worker=max(machine.dead_worker, incarnation))
    if machine.worker and machine.worker.incarnation <= incarnation:
        dead = replace(dead, worker=None)
    return cluster.with_machine(dead)


def worker_loaded(cluster: ClusterState, event: Loaded) -> Result:
    """Records the shards in a worker's memory, which it may take over without a wait."""
    machine = cluster.machines.get(event.machine)
    if machine is None or machine.worker is None or machine.worker.incarnation != event.incarnation:
        return cluster, ()
    worker = replace(machine.worker, loaded=frozenset(event.shards), full=event.full)
    return cluster.with_machine(replace(machine, worker=worker)), ()


def _mark_proven(machine: MachineRecord) -> MachineRecord:
    up = machine.server is not None and machine.worker is not None
    return replace(machine, proven=machine.proven or up)


def machines_warned(cluster: ClusterState, event: EvictionWarned) -> Result:
    """Records an eviction warning. Only the first one of a machine counts. Reliable machines are never
    revoked, so theirs are ignored.
    """
    for name in event.machines:
        machine = cluster.machines.get(name)
        if machine and machine.tier is Tier.TRANSIENT and not machine.leaving:
            cluster = cluster.with_machine(replace(machine, leaving=True, notice_s=event.notice_s))
    return cluster, ()


def machine_left(cluster: ClusterState, event: MachineLost | MachineReleased) -> Result:
    """Records that a machine is gone. Lost and released differ only in what the machine still held, and the
    state knows that.
    """
    if event.machine not in cluster.machines:
        # Lost before it was announced: the announcement, if it still comes, finds it departed and is ignored.
        strangers = tuple(word for word in cluster.unannounced_roles if word.machine != event.machine)
        return replace(cluster, unannounced_roles=strangers, departed=cluster.departed | {event.machine}), ()
    return drop_server_state(cluster.without_machine(event.machine), event.machine), ()


# ---- what a dead server takes with it ------------------------------------------------------------


def drop_server_state(cluster: ClusterState, name: str) -> ClusterState:
    """Removes the copies that the server of ``name`` held, and what it was writing."""
    attempt = cluster.checkpoints.attempt
    if attempt is not None and name in attempt.writing:
        # Its part will never be written. What is due stays due: another attempt begins as soon as it can.
        cluster = cluster.with_checkpoints(attempt=None, due=True)
    elif attempt is not None and name == attempt.sealer:
        cluster = cluster.with_checkpoints(attempt=replace(attempt, sealer=None))
    involved = (partition for partition in cluster.partitions if name in partition.copy_holders)
    if cluster.phase is TrainingPhase.STARTING:  # nothing was learned since: it can be made again
        return cluster.with_partitions(
            Partition.absent_at(p.number, cluster.checkpoints.newest.clock) for p in involved
        )
    return cluster.with_partitions(
        _without_copy(partition, name, cluster.consistent) for partition in involved
    )


def _without_copy(partition: Partition, name: str, consistent: int) -> Partition:
    """Returns ``partition`` after its copy on ``name`` died. Without its backup only B may be returned to."""
    incoming = partition.incoming_backup
    if incoming is not None and incoming.machine == name:
        incoming = None
    backup = partition.backup if partition.backup != name else None
    left = replace(partition, incoming_backup=incoming, backup=backup)
    if backup is not partition.backup:
        left = replace(left, detached=True, safe=frozenset({consistent}))
    owner_died, source_died = partition.owner == name, partition.source == name
    if partition.status is PartitionStatus.MOVING and owner_died and not source_died:
        return replace(left, status=PartitionStatus.FROZEN, owner=None)
    if owner_died or source_died:
        # The next owner, if alive, may have received it already; recovery tells it what to do with that.
        owner = None if owner_died else partition.owner
        return replace(left, status=PartitionStatus.LOST, owner=owner, source=None)
    return left
