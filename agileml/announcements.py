"""What follows from the state for those who watch: progress, stages, machines free to go, the end."""

from __future__ import annotations

from dataclasses import replace

from agileml.cluster import Cluster, Commands, Phase, Result
from agileml.events import Advance, Progressed, SafeToKill, SaveModel, StageChanged
from agileml.stages import PLACEMENTS


def advance(cluster: Cluster) -> Result:
    """Move B up to the clock that survives the loss of every transient machine, and report progress.

    B stops at the last clock, so that servers keep what undoes later ones: the model is saved at that clock.
    """
    clock = min(cluster.until, *(partition.safe_clock for partition in cluster.partitions))
    commands: Commands = ()
    if clock > cluster.consistent:
        cluster = replace(cluster, consistent=clock)
        holders = {name for p in cluster.partitions for name in (p.owner, p.backup) if name is not None}
        commands = tuple(Advance(name, cluster.generation, clock) for name in sorted(holders))
    progress = (cluster.completed, cluster.consistent)
    if progress != cluster.progress:
        commands += (Progressed(*progress),)
    return replace(cluster, progress=progress), commands


def announce_stage(cluster: Cluster) -> Result:
    """The stage is reached when every partition is served where it belongs."""
    if cluster.reached is cluster.stage or not cluster.settled:
        return cluster, ()
    tier = PLACEMENTS[cluster.stage].served_on
    if any(cluster.machines[p.owner or ""].tier is not tier for p in cluster.partitions):
        return cluster, ()
    return replace(cluster, reached=cluster.stage), (StageChanged(cluster.stage),)


def release(cluster: Cluster) -> Result:
    """A leaving machine is safe to kill once it owns no input and holds nothing that others need."""
    free = [
        machine
        for machine in cluster.machines.values()
        if machine.leaving and not machine.safe
        if not cluster.holds_shards(machine.name) and not cluster.holds_state(machine.name)
    ]
    for machine in free:
        cluster = cluster.with_machine(replace(machine, safe=True))
    return cluster, tuple(SafeToKill(machine.name) for machine in free)


def save(cluster: Cluster) -> Result:
    """At the last clock, backed up everywhere: the job rests on reliable machines, which write it.

    From here on transient machines hold nothing that matters.
    """
    if not cluster.settled or min(cluster.completed, cluster.consistent) < cluster.until:
        return cluster, ()
    resting = tuple(
        replace(partition, owner=partition.backup or partition.owner, backup=None)
        for partition in cluster.partitions
    )
    keepers = {partition.owner for partition in resting if partition.owner is not None}
    cluster = replace(
        cluster,
        phase=Phase.SAVING,
        partitions=resting,
        shards=tuple(shard.given_to(None) for shard in cluster.shards),
        saving=frozenset(keepers),
    )
    return cluster, tuple(SaveModel(name, cluster.until) for name in sorted(keepers))
