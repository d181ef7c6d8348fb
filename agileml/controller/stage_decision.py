"""Decides the stage: the requested one, else the cheapest by measured cost, else the one by the ratio.

``stages`` has the arithmetic; this module feeds it with what the cluster knows.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result
from agileml.controller.placement.load_model import LoadReports, measure_clock_cost
from agileml.controller.placement.partition_moves import active_machines
from agileml.controller.stages import ClockCost, Footprint, cheapest_stage, choose_stage, clock_seconds
from agileml.node.tier import Tier
from agileml.protocol.events import ServerLoad, Stage, StageDecided, WorkerLoad


def decide_stage(cluster: ClusterState) -> Result:
    """Sets the stage for the machines that take part; stage 1 while no transient machine can serve."""
    roster, current = cluster.roster, cluster.stages.current
    reliable = len(roster.assignable_servers(Tier.RELIABLE))
    # Every reliable server restarts at the moment. Stage 1 would have nowhere to serve, so the stage stays.
    if reliable == 0:
        return cluster, ()
    transient = roster.count_participants(Tier.TRANSIENT) if roster.assignable_servers(Tier.TRANSIENT) else 0
    stage = choose_stage(current, transient, reliable, cluster.setup)
    if transient:
        stage = cluster.stages.requested or _cheapest_stage(cluster) or stage
    return replace(cluster, stages=replace(cluster.stages, current=stage)), ()


def stage_decided(cluster: ClusterState, event: StageDecided) -> Result:
    return replace(cluster, stages=replace(cluster.stages, requested=event.stage)), ()


def load_reported(cluster: ClusterState, event: ServerLoad | WorkerLoad) -> Result:
    """Records a measured load, and compares it with what ``stages`` predicts."""
    # Reports of machines that are gone, or of earlier incarnations, count too: the job's load is the same
    # whoever carries it.
    if isinstance(event, ServerLoad):
        return _with_loads(cluster, cluster.stages.loads.with_server(event)), ()
    stage, loads = cluster.stages.current, cluster.stages.loads.with_worker(event, cluster.plan.version)
    # In a transition workers also wait for partitions, which says nothing about either stage.
    if cluster.stages.reached is not stage or not cluster.all_served:
        return _with_loads(cluster, loads.without_workers()), ()
    cluster = _with_loads(cluster, loads)
    load = _measured_cost(cluster)
    if load is None or not loads.workers:
        return cluster, ()
    if stage is Stage.TWO:
        loads = loads.with_lag(frozenset(cluster.roster.assignable_servers(Tier.RELIABLE)), load)
        load = replace(load, straggling=loads.straggling or 0.0)
    footprint = _current_footprint(cluster)
    if footprint.is_complete:
        workers = len({shard.owner for shard in cluster.shards if shard.owner is not None} | {event.machine})
        loads = loads.with_clock(stage, clock_seconds(stage, load, footprint), workers)
    return _with_loads(cluster, loads), ()


def _with_loads(cluster: ClusterState, loads: LoadReports) -> ClusterState:
    return replace(cluster, stages=replace(cluster.stages, loads=loads))


def _measured_cost(cluster: ClusterState) -> ClockCost | None:
    return measure_clock_cost(cluster.stages.loads, cluster.setup) if cluster.setup.automatic else None


def _cheapest_stage(cluster: ClusterState) -> Stage | None:
    """Returns the automatic choice; None where the job has no automatic stages, or too few measurements."""
    load, footprint = _measured_cost(cluster), _current_footprint(cluster)
    if load is None or not footprint.is_complete:
        return None
    return cheapest_stage(cluster.stages.current, load, footprint, cluster.stages.loads.strayed)


def _current_footprint(cluster: ClusterState) -> Footprint:
    machines = [m for m in cluster.machines.values() if m.proven and m.member and not m.leaving]
    cores = {tier: sum(m.cores for m in machines if m.tier is tier) for tier in Tier}
    return Footprint(
        len(cluster.roster.assignable_servers(Tier.RELIABLE)),
        cluster.roster.count_participants(Tier.TRANSIENT),
        actives=len(active_machines(cluster)),
        reliable_cores=cores[Tier.RELIABLE],
        transient_cores=cores[Tier.TRANSIENT],
    )
