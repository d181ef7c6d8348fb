"""When machines that have come become members: together, between two clocks, with their input loaded.

A machine that joins is told at once what to load, and disturbs nobody. Members are who counts for the stage,
is given partitions and owns input. All who are ready by a clock's end become members at that moment, in one
plan; who comes while a plan is carried out waits for the next one. So each of sixty machines that join
together costs a few orders, and not a few for everybody else. Only who is needed is not kept waiting.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import Cluster, Phase, Result
from agileml.controller.machines import Machine
from agileml.node.tier import Tier


def admit(cluster: Cluster) -> Result:
    """Make members of those who wait and whose turn it is. Before training begins that is everybody's."""
    waiting = [machine for machine in cluster.machines.values() if _waits(machine)]
    if not waiting:
        return cluster, ()
    if cluster.phase is Phase.STARTING:
        return _with_members(cluster, waiting), ()
    urgent = [machine for machine in waiting if _is_needed(cluster, machine)]
    if urgent:
        return replace(_with_members(cluster, urgent), turn=True, planned=False), ()
    if not cluster.settled or not cluster.planned:
        return cluster, ()
    ready = [machine for machine in waiting if _has_loaded(machine)]
    if ready and (cluster.turn or _all_are_here(cluster, ready)):
        return replace(_with_members(cluster, ready), turn=True, planned=False), ()
    return cluster, ()


def _waits(machine: Machine) -> bool:
    """A reliable machine can serve, or back up, before its worker is up."""
    up = machine.proven or (machine.tier is Tier.RELIABLE and machine.server is not None)
    return up and not machine.member and not machine.leaving


def _with_members(cluster: Cluster, machines: list[Machine]) -> Cluster:
    joined = {machine.name: replace(machine, member=True) for machine in machines}
    return replace(cluster, machines={**cluster.machines, **joined})


def _is_needed(cluster: Cluster, machine: Machine) -> bool:
    """Whether training cannot go on, or is not safe, without it."""
    if not any(member.can_compute for member in cluster.machines.values()):
        return True
    if machine.tier is Tier.TRANSIENT:
        return False
    return not cluster.servers(Tier.RELIABLE) or any(
        partition.backup is None and partition.heir is None and not cluster.is_reliable(partition.owner)
        for partition in cluster.partitions
    )


def _has_loaded(machine: Machine) -> bool:
    """All that it was told to, or all that it has room for."""
    worker = machine.worker
    if worker is None or worker.orders is None:
        return False
    return worker.full or worker.loaded >= {*worker.orders.shards, *worker.orders.preload}


def _all_are_here(cluster: Cluster, ready: list[Machine]) -> bool:
    """In the first clock, which whoever was up first begins alone, if nobody else is to come."""
    if cluster.completed != cluster.stored.clock:
        return False
    coming = {
        machine.name for machine in cluster.machines.values() if not (machine.member or machine.leaving)
    }
    return coming == {machine.name for machine in ready}
