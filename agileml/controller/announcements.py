"""Announces what follows from the state: progress, stages, machines that are safe to kill, the end."""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Commands, Result, TrainingPhase
from agileml.controller.stages import PLACEMENTS
from agileml.protocol.commands import Advance, Progressed, SafeToKill, SaveModel, StageChanged


def advance_consistent(cluster: ClusterState) -> Result:
    """Moves B up to the last clock that every partition is safe at, and reports progress.

    B stops at the last clock, so that servers keep what undoes later ones: the model is saved at that clock.
    After a stop was requested, B stays until that clock is reached: see ``progress.stop_requested``.
    """
    # Backups skip clocks, since pushes merge them into ranges. So B is the highest clock that is safe in
    # every partition, and not the lowest of each partition's highest: nobody could return to that one.
    everywhere = frozenset.intersection(*(partition.safe for partition in cluster.partitions))
    # Servers let workers read up to B plus the lag, which is the last clock now. If B moved before that clock
    # is reached, workers that have not heard of the stop would run past it.
    if cluster.until < cluster.setup.clocks:
        everywhere &= {cluster.consistent, cluster.until}
    clock = max(clock for clock in everywhere if clock <= cluster.until)
    commands: Commands = ()
    if clock > cluster.consistent:
        cluster = replace(cluster, consistent=clock).with_partitions(
            replace(p, safe=frozenset(safe for safe in p.safe if safe >= clock)) for p in cluster.partitions
        )
        holders = {name for p in cluster.partitions for name in (p.owner, p.backup) if name is not None}
        commands = tuple(Advance(name, cluster.generation, clock) for name in sorted(holders))
    progress = (cluster.completed_clock, cluster.consistent)
    if progress == cluster.progress.reported:
        return cluster, commands
    reported = replace(cluster.progress, reported=progress)
    return replace(cluster, progress=reported), (*commands, Progressed(*progress))


def announce_stage(cluster: ClusterState) -> Result:
    """Announces the stage when every partition is served where it belongs."""
    stage = cluster.stages.current
    if cluster.stages.reached is stage or not cluster.all_served:
        return cluster, ()
    tier = PLACEMENTS[stage].served_on
    if any(cluster.machines[p.owner or ""].tier is not tier for p in cluster.partitions):
        return cluster, ()
    return replace(cluster, stages=replace(cluster.stages, reached=stage)), (StageChanged(stage),)


def release_machines(cluster: ClusterState) -> Result:
    """Declares a leaving machine safe to kill once it owns no input and holds nothing that others need."""
    # After the rules that move partitions and shards: a machine that they have just freed of its last duty is
    # released in the same step, with all the notice that is left.
    free = [
        machine
        for machine in cluster.machines.values()
        if machine.leaving and not machine.safe
        if not cluster.holds_shards(machine.name) and not cluster.holds_state(machine.name)
    ]
    if not free:
        return cluster, ()
    roster = cluster.roster.with_machines(replace(machine, safe=True) for machine in free)
    return replace(cluster, roster=roster), tuple(SafeToKill(machine.name) for machine in free)


def save_model(cluster: ClusterState) -> Result:
    """Ends training once the last clock is backed up everywhere, and orders reliable machines to save."""
    if not cluster.all_served or min(cluster.completed_clock, cluster.consistent) < cluster.until:
        return cluster, ()
    # The backups hold the last clock, so they alone write. From here on transient machines hold nothing that
    # matters, and may vanish while the model is written.
    resting = tuple(
        replace(p, owner=p.backup or p.owner, backup=None, incoming_backup=None, detached=False)
        for p in cluster.partitions
    )
    writers: dict[str, list[int]] = {}
    for partition in resting:
        if partition.owner is not None:
            writers.setdefault(partition.owner, []).append(partition.number)
    cluster = replace(
        cluster,
        phase=TrainingPhase.SAVING,
        partitions=resting,
        # Workers own nothing from now on, so that every leaving machine can be released.
        shards=tuple(shard.with_owner(None) for shard in cluster.shards),
        saving=frozenset(writers),
    )
    return cluster, tuple(
        SaveModel(name, cluster.generation, cluster.until, tuple(numbers))
        for name, numbers in sorted(writers.items())
    )
