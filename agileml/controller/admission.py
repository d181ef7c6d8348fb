"""Admits new machines as members: together, between two clocks, with their input loaded.

A machine that joins gets its preload orders at once, which disturbs nobody. Members count for the stage, get
partitions and own input. All machines that are ready when a clock ends become members at that moment, in one
plan; later ones wait for the next plan. So sixty machines that join together cost a few orders each, rather
than a few for every other machine. Only a machine that training needs does not wait.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result, TrainingPhase
from agileml.controller.machines import MachineRecord
from agileml.node.tier import Tier


def admit_machines(cluster: ClusterState) -> Result:
    """Makes members of the waiting machines whose turn it is: of all, before training begins."""
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
        return _plan_anew(_with_members(cluster, urgent)), ()
    # The last plan is still being carried out; a second one on top of it would move the same things again.
    if not cluster.all_served or not cluster.plan.orders_given:
        return cluster, ()
    ready = [machine for machine in waiting if _has_loaded(machine)]
    if ready and (cluster.plan.may_move or _are_all_ready(cluster, ready)):
        return _plan_anew(_with_members(cluster, ready)), ()
    return cluster, ()


def _is_waiting(machine: MachineRecord) -> bool:
    """Whether a machine is up but no member."""
    # A reliable machine can serve, or back up, before its worker is up.
    up = machine.proven or (machine.tier is Tier.RELIABLE and machine.server is not None)
    return up and not machine.member and not machine.leaving


def _with_members(cluster: ClusterState, machines: list[MachineRecord]) -> ClusterState:
    members = (replace(machine, member=True) for machine in machines)
    return replace(cluster, roster=cluster.roster.with_machines(members))


def _plan_anew(cluster: ClusterState) -> ClusterState:
    """Lets input move to new members. The next ones wait until these orders are out."""
    return replace(cluster, plan=replace(cluster.plan, may_move=True, orders_given=False))


def _is_needed(cluster: ClusterState, machine: MachineRecord) -> bool:
    """Whether training cannot go on, or is not safe, without it."""
    if not any(member.can_compute for member in cluster.machines.values()):
        return True
    if machine.tier is Tier.TRANSIENT:
        return False
    return not cluster.roster.assignable_servers(Tier.RELIABLE) or any(
        partition.backup is None
        and partition.incoming_backup is None
        and not cluster.roster.is_reliable(partition.owner)
        for partition in cluster.partitions
    )


def _has_loaded(machine: MachineRecord) -> bool:
    """Whether its worker has loaded all that its orders name, or all that it has room for."""
    worker = machine.worker
    if worker is None or worker.orders is None:
        return False
    return worker.full or worker.loaded >= {*worker.orders.shards, *worker.orders.preload}


def _are_all_ready(cluster: ClusterState, ready: list[MachineRecord]) -> bool:
    """Whether, in the first clock, every machine that is still to be admitted is ready."""
    # The machines that were up first began this clock alone, with all the input between them. It may take
    # many times as long as later ones, so the rest join in the middle of it as soon as they are complete.
    if cluster.completed_clock != cluster.checkpoints.newest.clock:
        return False
    coming = {
        machine.name for machine in cluster.machines.values() if not (machine.member or machine.leaving)
    }
    return coming == {machine.name for machine in ready}
