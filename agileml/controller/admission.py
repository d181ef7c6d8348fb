"""Admits new machines as members: together, between two clocks, with their input loaded.

A machine that joins is told at once what to load, and disturbs nobody. Members count for the stage, get
partitions and own input. All machines that are ready by a clock's end become members at that moment, in one
plan; later ones wait for the next plan. So each of sixty machines that join together costs a few orders, and
not a few for everybody else. Only a machine that is needed does not wait.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result, TrainingPhase
from agileml.controller.machines import MachineRecord
from agileml.node.tier import Tier


def admit_machines(cluster: ClusterState) -> Result:
    """Makes members of the waiting machines whose turn it is. Before training begins that is everybody's."""
    waiting = [machine for machine in cluster.machines.values() if _is_waiting(machine)]
    if not waiting:
        return cluster, ()
    # Nobody computes yet, so new members disturb nobody.
    if cluster.phase is TrainingPhase.STARTING:
        return _with_members(cluster, waiting), ()
    # A needed machine becomes a member in the middle of a clock: without it training stands still, or is not
    # safe.
    urgent = [machine for machine in waiting if _is_needed(cluster, machine)]
    if urgent:
        return replace(_with_members(cluster, urgent), input_may_move=True, orders_given=False), ()
    # The last plan is still being carried out; a second one on top of it would move the same things again.
    if not cluster.all_served or not cluster.orders_given:
        return cluster, ()
    ready = [machine for machine in waiting if _has_loaded(machine)]
    if ready and (cluster.input_may_move or _all_are_here(cluster, ready)):
        return replace(_with_members(cluster, ready), input_may_move=True, orders_given=False), ()
    return cluster, ()


def _is_waiting(machine: MachineRecord) -> bool:
    """Whether a machine is up but no member. A reliable machine can serve, or back up, before its worker is
    up.
    """
    up = machine.proven or (machine.tier is Tier.RELIABLE and machine.server is not None)
    return up and not machine.member and not machine.leaving


def _with_members(cluster: ClusterState, machines: list[MachineRecord]) -> ClusterState:
    joined = {machine.name: replace(machine, member=True) for machine in machines}
    return replace(cluster, machines={**cluster.machines, **joined})


def _is_needed(cluster: ClusterState, machine: MachineRecord) -> bool:
    """Whether training cannot go on, or is not safe, without it."""
    if not any(member.can_compute for member in cluster.machines.values()):
        return True
    if machine.tier is Tier.TRANSIENT:
        return False
    return not cluster.assignable_servers(Tier.RELIABLE) or any(
        partition.backup is None
        and partition.incoming_backup is None
        and not cluster.is_reliable(partition.owner)
        for partition in cluster.partitions
    )


def _has_loaded(machine: MachineRecord) -> bool:
    """Whether its worker has loaded all that it was told to, or all that it has room for."""
    worker = machine.worker
    if worker is None or worker.orders is None:
        return False
    return worker.full or worker.loaded >= {*worker.orders.shards, *worker.orders.preload}


def _all_are_here(cluster: ClusterState, ready: list[MachineRecord]) -> bool:
    """Whether nobody else is to come, in the first clock. The machines that were up first begin that one
    alone.
    """
    if cluster.completed_clock != cluster.checkpoints.newest.clock:
        return False
    coming = {
        machine.name for machine in cluster.machines.values() if not (machine.member or machine.leaving)
    }
    return coming == {machine.name for machine in ready}
