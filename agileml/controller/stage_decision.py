"""Decides the stage: the one requested, else the one measured to be cheapest, else the one by the ratio.

How a stage is chosen is the business of ``stages``; here it is called with what the cluster knows.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result
from agileml.controller.placement.load_model import measure_clock_cost
from agileml.controller.placement.partition_moves import active_machines
from agileml.controller.stages import ClockCost, Footprint, cheapest_stage, choose_stage, clock_seconds
from agileml.node.tier import Tier
from agileml.protocol.events import ServerLoad, Stage, StageDecided, WorkerLoad


def decide_stage(cluster: ClusterState) -> Result:
    """Sets the stage for the machines taking part: the first one while no transient machine could serve."""
    transient, reliable = (
        cluster.count_participants(Tier.TRANSIENT),
        len(cluster.assignable_servers(Tier.RELIABLE)),
    )
    if reliable == 0:  # a reliable server restarts: until then there is nowhere to go
        return cluster, ()
    if not cluster.assignable_servers(Tier.TRANSIENT):
        transient = 0
    stage = choose_stage(cluster.stage, transient, reliable, cluster.setup)
    if transient:
        stage = cluster.requested_stage or _cheapest_stage(cluster) or stage
    return replace(cluster, stage=stage), ()


def stage_decided(cluster: ClusterState, event: StageDecided) -> Result:
    return replace(cluster, requested_stage=event.stage), ()


def load_reported(cluster: ClusterState, event: ServerLoad | WorkerLoad) -> Result:
    """Records a measured load. A report of a machine that is gone, or of an earlier incarnation, counts as
    well.
    """
    if isinstance(event, ServerLoad):
        return replace(cluster, loads=cluster.loads.with_server(event)), ()
    loads = cluster.loads.with_worker(event, cluster.version)
    if cluster.reached_stage is not cluster.stage or not cluster.all_served:
        return replace(cluster, loads=loads.without_workers()), ()
    cluster = replace(cluster, loads=loads)
    load = _measured_cost(cluster)
    if load is None or not cluster.loads.workers:
        return cluster, ()
    if cluster.stage is Stage.TWO:
        loads = loads.with_lag(frozenset(cluster.assignable_servers(Tier.RELIABLE)), load)
        load = replace(load, straggling=loads.straggling or 0.0)
    footprint = _current_footprint(cluster)
    if footprint.is_complete:
        workers = len({shard.owner for shard in cluster.shards if shard.owner is not None} | {event.machine})
        loads = loads.with_clock(cluster.stage, clock_seconds(cluster.stage, load, footprint), workers)
    return replace(cluster, loads=loads), ()


def _measured_cost(cluster: ClusterState) -> ClockCost | None:
    return measure_clock_cost(cluster.loads, cluster.setup) if cluster.setup.automatic else None


def _cheapest_stage(cluster: ClusterState) -> Stage | None:
    """Returns the automatic choice; None where the job makes none, or has measured too little."""
    load, footprint = _measured_cost(cluster), _current_footprint(cluster)
    if load is None or not footprint.is_complete:
        return None
    return cheapest_stage(cluster.stage, load, footprint, cluster.loads.strayed)


def _current_footprint(cluster: ClusterState) -> Footprint:
    machines = [m for m in cluster.machines.values() if m.proven and m.member and not m.leaving]
    cores = {tier: sum(m.cores for m in machines if m.tier is tier) for tier in Tier}
    return Footprint(
        len(cluster.assignable_servers(Tier.RELIABLE)),
        cluster.count_participants(Tier.TRANSIENT),
        actives=len(active_machines(cluster)),
        reliable_cores=cores[Tier.RELIABLE],
        transient_cores=cores[Tier.TRANSIENT],
    )
