"""Words from servers and workers about the work itself: arrivals, clocks, drains, the saved model.

A word of an earlier generation or epoch comes from before a rollback or a move and says nothing about
now: it is ignored. A later one than the controller ever gave out cannot have happened.
"""

from __future__ import annotations

from dataclasses import replace

from agileml.cluster import Cluster, Commands, InvalidTransition, Phase, Result
from agileml.events import (
    Advance,
    BackedUp,
    ClockCompleted,
    Drained,
    Finished,
    Forget,
    Installed,
    ModelSaved,
    Route,
    StopRequested,
)
from agileml.holdings import ON_ITS_WAY, Partition, Standing


def installed(cluster: Cluster, event: Installed) -> Result:
    """A partition arrived: it is served, its source forgets it, and its route can be told."""
    partition = _partition(cluster, event.partition)
    if event.epoch > cluster.epoch:
        raise InvalidTransition(cluster.told(f"{event} is of an epoch that never was"))
    expected = (partition.owner, partition.epoch) == (event.machine, event.epoch)
    if not expected or partition.standing not in ON_ITS_WAY:
        return cluster, ()
    if event.clock < cluster.consistent:
        raise InvalidTransition(
            cluster.told(f"{event}, but clock {cluster.consistent} was backed up everywhere")
        )
    served = replace(
        partition,
        standing=Standing.SERVED,
        source=None,
        backup=None if partition.backup == event.machine else partition.backup,
        route=Route(partition.number, event.machine, cluster.endpoint(event.machine), event.epoch),
        completed=max(partition.completed, event.clock),
        # A source that stays as the backup holds what it sent.
        backed=max(partition.backed, event.clock)
        if partition.source == partition.backup
        else partition.backed,
    )
    cluster = cluster.with_partitions([served])
    if cluster.phase is Phase.STARTING and cluster.settled:
        cluster = replace(cluster, phase=Phase.TRAINING)
    commands: Commands = (Advance(event.machine, cluster.generation, cluster.consistent),)
    if partition.source not in (None, event.machine, partition.backup):
        commands += (Forget(partition.source, partition.number, event.epoch),)
    return cluster, commands


def clock_completed(cluster: Cluster, event: ClockCompleted) -> Result:
    """A serving copy is complete at a clock; so is the backup, where the same copy became it since."""
    partition = _partition(cluster, event.partition)
    if not _current(cluster, event.generation):
        return cluster, ()
    changed = replace(partition, completed=max(partition.completed, event.clock))
    if event.machine == partition.backup:
        changed = replace(changed, backed=max(partition.backed, event.clock))
    return cluster.with_partitions([changed]), ()


def backed_up(cluster: Cluster, event: BackedUp) -> Result:
    """What the backup holds, the serving copy completed, even if its own word is still under way."""
    partition = _partition(cluster, event.partition)
    if not _current(cluster, event.generation) or event.machine != partition.backup:
        return cluster, ()
    changed = replace(
        partition,
        backed=max(partition.backed, event.clock),
        completed=max(partition.completed, event.clock),
    )
    return cluster.with_partitions([changed]), ()


def drained(cluster: Cluster, event: Drained) -> Result:
    machine = cluster.machines.get(event.machine)
    if machine is None or machine.worker is None or machine.worker.incarnation != event.incarnation:
        return cluster, ()
    if not machine.leaving:
        raise InvalidTransition(cluster.told(f"{event}, which was never asked to drain"))
    return cluster.with_machine(replace(machine, worker=replace(machine.worker, drained=True))), ()


def stop_requested(cluster: Cluster, event: StopRequested) -> Result:  # noqa: ARG001 - one signature for all
    """End soon, at a clock that no worker can be beyond: the known ones plus the staleness and one."""
    furthest = max(partition.completed for partition in cluster.partitions)
    return replace(cluster, until=min(cluster.until, furthest + cluster.setup.staleness + 1)), ()


def model_saved(cluster: Cluster, event: ModelSaved) -> Result:
    """One reliable machine wrote its part; with the last one nothing on any machine matters any more."""
    cluster = replace(cluster, saving=cluster.saving - {event.machine})
    if cluster.saving:
        return cluster, ()
    released = tuple(replace(partition, owner=None) for partition in cluster.partitions)
    finished = replace(cluster, phase=Phase.FINISHED, partitions=released)
    return finished, (Finished(cluster.until, event.path),)


def _partition(cluster: Cluster, number: int) -> Partition:
    if not 0 <= number < len(cluster.partitions):
        raise InvalidTransition(cluster.told(f"there is no partition {number}"))
    return cluster.partitions[number]


def _current(cluster: Cluster, generation: int) -> bool:
    if generation > cluster.generation:
        raise InvalidTransition(cluster.told(f"generation {generation} never was"))
    return generation == cluster.generation
