"""Which stage the job is in: what was decided for it, else the cheapest that was measured, else by the ratio.

How a stage is chosen is the business of ``stages``; here it is asked with what the cluster knows.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import Cluster, Result
from agileml.controller.placement.load_model import measured
from agileml.controller.placement.partition_moves import active_machines
from agileml.controller.stages import Footprint, Load, cheapest_stage, choose_stage, clock_seconds
from agileml.node.tier import Tier
from agileml.protocol.events import ServerLoad, Stage, StageDecided, WorkerLoad


def decide_stage(cluster: Cluster) -> Result:
    """The stage for those taking part; the first one while no transient machine could serve."""
    transient, reliable = cluster.taking_part(Tier.TRANSIENT), len(cluster.servers(Tier.RELIABLE))
    if reliable == 0:  # one that restarts its server: until then there is nowhere to go
        return cluster, ()
    if not cluster.servers(Tier.TRANSIENT):
        transient = 0
    stage = choose_stage(cluster.stage, transient, reliable, cluster.setup)
    if transient:
        stage = cluster.wanted or _cheapest(cluster) or stage
    return replace(cluster, stage=stage), ()


def stage_decided(cluster: Cluster, event: StageDecided) -> Result:
    return replace(cluster, wanted=event.stage), ()


def load_reported(cluster: Cluster, event: ServerLoad | WorkerLoad) -> Result:
    """A report of a machine that is gone, or of an earlier incarnation, counts as well: it was measured."""
    if isinstance(event, ServerLoad):
        return replace(cluster, loads=cluster.loads.with_server(event)), ()
    loads = cluster.loads.with_worker(event, cluster.version)
    if cluster.reached is not cluster.stage or not cluster.settled:
        return replace(cluster, loads=loads.without_workers()), ()
    cluster = replace(cluster, loads=loads)
    load = _load(cluster)
    if load is None or not cluster.loads.workers:
        return cluster, ()
    if cluster.stage is Stage.TWO:
        loads = loads.with_lag(frozenset(cluster.servers(Tier.RELIABLE)), load)
        load = replace(load, straggling=loads.straggling or 0.0)
    footprint = _footprint(cluster)
    if footprint.whole:
        workers = len({shard.owner for shard in cluster.shards if shard.owner is not None} | {event.machine})
        loads = loads.with_clock(cluster.stage, clock_seconds(cluster.stage, load, footprint), workers)
    return replace(cluster, loads=loads), ()


def _load(cluster: Cluster) -> Load | None:
    return measured(cluster.loads, cluster.setup) if cluster.setup.automatic else None


def _cheapest(cluster: Cluster) -> Stage | None:
    """The automatic choice; None where the job makes none, or has measured too little."""
    load, footprint = _load(cluster), _footprint(cluster)
    if load is None or not footprint.whole:
        return None
    return cheapest_stage(cluster.stage, load, footprint, cluster.loads.strayed)


def _footprint(cluster: Cluster) -> Footprint:
    machines = [m for m in cluster.machines.values() if m.proven and m.member and not m.leaving]
    cores = {tier: sum(m.cores for m in machines if m.tier is tier) for tier in Tier}
    return Footprint(
        len(cluster.servers(Tier.RELIABLE)),
        cluster.taking_part(Tier.TRANSIENT),
        actives=len(active_machines(cluster)),
        reliable_cores=cores[Tier.RELIABLE],
        transient_cores=cores[Tier.TRANSIENT],
    )
