"""Words from servers and workers about the work itself: arrivals, clocks, drains, the saved model.

A word of an earlier generation or epoch comes from before a rollback or a move and says nothing about
now: it is ignored. A later one than the controller ever gave out cannot have happened.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import Cluster, Commands, InvalidTransition, Phase, Result
from agileml.controller.placement.ownership import ON_ITS_WAY, Heir, Partition, Standing
from agileml.protocol.commands import Advance, Finished, Forget, Route
from agileml.protocol.events import BackedUp, ClockCompleted, Drained, Installed, ModelSaved, StopRequested


def installed(cluster: Cluster, event: Installed) -> Result:
    """A partition arrived: it is served, its source forgets it, and its route can be told."""
    partition = _partition(cluster, event.partition)
    if event.epoch > cluster.epoch:
        raise InvalidTransition(cluster.told(f"{event} is of an epoch that never was"))
    if partition.heir == Heir(event.machine, event.epoch):
        return _inherited(cluster, partition, event)
    expected = (partition.owner, partition.epoch) == (event.machine, event.epoch)
    if not expected or partition.standing not in ON_ITS_WAY:
        return cluster, ()
    if event.clock < cluster.consistent:
        raise InvalidTransition(
            cluster.told(f"{event}, but clock {cluster.consistent} was backed up everywhere")
        )
    backup = None if partition.backup == event.machine else partition.backup
    # One that pushes again whatever is not backed up has caught its backup up; one that never left has not.
    unfollowed = backup is None or (partition.detached and partition.source == event.machine)
    served = replace(
        partition,
        standing=Standing.SERVED,
        source=None,
        backup=backup,
        detached=unfollowed and not cluster.is_reliable(event.machine),
        route=Route(partition.number, event.machine, cluster.endpoint(event.machine), event.epoch),
        completed=max(partition.completed, event.clock),
    )
    cluster = cluster.with_partitions([served])
    if cluster.phase is Phase.STARTING and cluster.settled:
        cluster = replace(cluster, phase=Phase.TRAINING)
    commands: Commands = (Advance(event.machine, cluster.generation, cluster.consistent),)
    if partition.source not in (None, event.machine, partition.backup):
        commands += (Forget(partition.source, partition.number, event.epoch),)
    return cluster, commands


def _inherited(cluster: Cluster, partition: Partition, event: Installed) -> Result:
    """The copy has arrived: whoever followed before is not needed any more."""
    before = partition.backup
    followed = replace(
        partition,
        backup=event.machine,
        detached=False,
        heir=None,
        safe=frozenset({cluster.consistent}),  # its own words follow
        completed=max(partition.completed, event.clock),
    )
    commands: Commands = (Advance(event.machine, cluster.generation, cluster.consistent),)
    if before is not None and before != event.machine:
        commands += (Forget(before, partition.number, event.epoch),)
    return cluster.with_partitions([followed]), commands


def clock_completed(cluster: Cluster, event: ClockCompleted) -> Result:
    """A serving copy is complete at a clock. It is safe there if it needs no backup, or became it since."""
    partition = _partition(cluster, event.partition)
    if not _current(cluster, event.generation):
        return cluster, ()
    changed = replace(partition, completed=max(partition.completed, event.clock))
    if event.machine == partition.stands_in and event.clock > cluster.consistent:
        changed = replace(changed, safe=changed.safe | {event.clock})
    return cluster.with_partitions([changed]), ()


def backed_up(cluster: Cluster, event: BackedUp) -> Result:
    """What the backup holds, the serving copy completed, even if its own word is still under way."""
    partition = _partition(cluster, event.partition)
    if not _current(cluster, event.generation) or event.machine != partition.backup:
        return cluster, ()
    changed = replace(partition, completed=max(partition.completed, event.clock))
    if event.clock > cluster.consistent:
        changed = replace(changed, safe=changed.safe | {event.clock})
    return cluster.with_partitions([changed]), ()


def drained(cluster: Cluster, event: Drained) -> Result:
    machine = cluster.machines.get(event.machine)
    if machine is None or machine.worker is None or machine.worker.incarnation != event.incarnation:
        return cluster, ()
    if not machine.leaving:
        raise InvalidTransition(cluster.told(f"{event}, which was never asked to drain"))
    shards = list(cluster.shards)
    for number, clock in event.delivered if _current(cluster, event.generation) else ():
        if not 0 <= number < len(shards):
            raise InvalidTransition(cluster.told(f"there is no shard {number}"))
        if shards[number].owner == machine.name:
            shards[number] = replace(shards[number], delivered=(event.generation, clock))
    machine = replace(machine, worker=replace(machine.worker, drained=True))
    return replace(cluster.with_machine(machine), shards=tuple(shards)), ()


def stop_requested(cluster: Cluster, event: StopRequested) -> Result:  # noqa: ARG001 - one signature for all
    """End soon, at the last clock that servers let anybody read for before B moves, which it will not.

    Every partition with a backup ends a range there; one without can return to any clock beyond B.
    """
    return replace(cluster, until=min(cluster.until, cluster.consistent + cluster.setup.lag)), ()


def model_saved(cluster: Cluster, event: ModelSaved) -> Result:
    """One reliable machine wrote its part, and may be lost from now on; with the last one the job is done."""
    if not _current(cluster, event.generation):
        return cluster, ()
    written = (partition for partition in cluster.partitions if partition.owner == event.machine)
    cluster = cluster.with_partitions(replace(partition, owner=None) for partition in written)
    cluster = replace(cluster, saving=cluster.saving - {event.machine})
    if cluster.saving:
        return cluster, ()
    return replace(cluster, phase=Phase.FINISHED), (Finished(cluster.until, event.path),)


def from_before(cluster: Cluster, event: ClockCompleted | BackedUp | ModelSaved) -> Result:
    """A word about what was lost since; there is nothing yet that it could be about otherwise."""
    if _current(cluster, event.generation):
        raise InvalidTransition(cluster.told(f"{event} cannot have happened in this generation"))
    return cluster, ()


def _partition(cluster: Cluster, number: int) -> Partition:
    if not 0 <= number < len(cluster.partitions):
        raise InvalidTransition(cluster.told(f"there is no partition {number}"))
    return cluster.partitions[number]


def _current(cluster: Cluster, generation: int) -> bool:
    if generation > cluster.generation:
        raise InvalidTransition(cluster.told(f"generation {generation} never was"))
    return generation == cluster.generation
