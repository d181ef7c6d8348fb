"""Records what servers and workers report about the work: arrivals, clocks, drains, the saved model.

A report of an earlier generation or epoch was sent before a roll-back or a move. It says nothing about the
present, and is ignored. A report of a generation or epoch that the controller never issued cannot happen.
"""

from __future__ import annotations

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Commands, ImpossibleEvent, Result, TrainingPhase
from agileml.controller.placement.ownership import ON_ITS_WAY, IncomingBackup, Partition, PartitionStatus
from agileml.protocol.commands import Advance, Finished, Forget, Route
from agileml.protocol.events import BackedUp, ClockCompleted, Drained, Installed, ModelSaved, StopRequested


def partition_installed(cluster: ClusterState, event: Installed) -> Result:
    """Records that a partition arrived: it is served, and its source discards its copy."""
    partition = _find_partition(cluster, event.partition)
    if event.epoch > cluster.epoch:
        raise ImpossibleEvent(cluster.with_story(f"{event} is of an epoch that never was"))
    if partition.incoming_backup == IncomingBackup(event.machine, event.epoch):
        return _backup_installed(cluster, partition, event)
    expected = (partition.owner, partition.epoch) == (event.machine, event.epoch)
    if not expected or partition.status not in ON_ITS_WAY:
        return cluster, ()
    if event.clock < cluster.consistent:
        raise ImpossibleEvent(
            cluster.with_story(f"{event}, but clock {cluster.consistent} was backed up everywhere")
        )
    # Back in stage 1 the backup itself takes over, and needs no backup on a reliable machine.
    backup = None if partition.backup == event.machine else partition.backup
    # A new owner pushes again whatever is not backed up, so its backup catches up. A source that serves again
    # because its target died pushes nothing again, so it stays detached if it was.
    unfollowed = backup is None or (partition.detached and partition.source == event.machine)
    served = replace(
        partition,
        status=PartitionStatus.SERVED,
        source=None,
        backup=backup,
        detached=unfollowed and not cluster.roster.is_reliable(event.machine),
        # Published only now: before its owner reports it, workers would write to a copy that the controller
        # may still give up, and a push that was acknowledged there would be lost.
        route=Route(partition.number, event.machine, cluster.make_peer(event.machine).endpoint, event.epoch),
        completed=max(partition.completed, event.clock),
    )
    cluster = cluster.with_partitions([served])
    if cluster.phase is TrainingPhase.STARTING and cluster.all_served:
        cluster = replace(cluster, phase=TrainingPhase.TRAINING)
    # The new owner may have missed earlier ones: they went to those who held a copy then.
    commands: Commands = (Advance(event.machine, cluster.generation, cluster.consistent),)
    # Not before the arrival: until then the frozen copy of the source is the only one at this clock.
    if partition.source not in (None, event.machine, partition.backup):
        commands += (Forget(partition.source, partition.number, event.epoch),)
    return cluster, commands


def _backup_installed(cluster: ClusterState, partition: Partition, event: Installed) -> Result:
    """Records that a copy arrived at a new backup, and has the previous one discard its copy."""
    before = partition.backup
    followed = replace(
        partition,
        backup=event.machine,
        detached=False,
        incoming_backup=None,
        # What the previous backup held beyond B goes with it. The new one reports its own clocks next.
        safe=frozenset({cluster.consistent}),
        completed=max(partition.completed, event.clock),
    )
    commands: Commands = (Advance(event.machine, cluster.generation, cluster.consistent),)
    if before is not None and before != event.machine:
        commands += (Forget(before, partition.number, event.epoch),)
    return cluster.with_partitions([followed]), commands


def clock_completed(cluster: ClusterState, event: ClockCompleted) -> Result:
    """Records that a serving copy completed a clock. The clock is safe there if the copy needs no backup."""
    partition = _find_partition(cluster, event.partition)
    if not _is_current(cluster, event.generation):
        return cluster, ()
    # The sender may be the backup by now (stage 1 to 2), which makes the clock safe as well.
    safe = event.machine == partition.durability_source
    return cluster.with_partitions([_with_completed(cluster, partition, event.clock, safe=safe)]), ()


def partition_backed_up(cluster: ClusterState, event: BackedUp) -> Result:
    """Records what the backup holds."""
    partition = _find_partition(cluster, event.partition)
    if not _is_current(cluster, event.generation) or event.machine != partition.backup:
        return cluster, ()
    # The serving copy completed that clock too, even if its own report is still under way.
    return cluster.with_partitions([_with_completed(cluster, partition, event.clock, safe=True)]), ()


def _with_completed(cluster: ClusterState, partition: Partition, clock: int, *, safe: bool) -> Partition:
    """Returns ``partition`` with ``clock`` completed and, where ``safe`` says so, safe."""
    changed = replace(partition, completed=max(partition.completed, clock))
    # Beyond B only: the clocks up to B are safe already, and late reports must not make ``safe`` grow.
    return replace(changed, safe=changed.safe | {clock}) if safe and clock > cluster.consistent else changed


def worker_drained(cluster: ClusterState, event: Drained) -> Result:
    """Records that a leaving worker pushed its last deltas, and up to which clock each shard is delivered."""
    machine = cluster.machines.get(event.machine)
    if machine is None or machine.worker is None or machine.worker.incarnation != event.incarnation:
        return cluster, ()
    if not machine.leaving:
        raise ImpossibleEvent(cluster.with_story(f"{event}, which was never ordered to drain"))
    shards = list(cluster.shards)
    # A roll-back has undone what was delivered in another generation. The worker has drained all the same.
    for number, clock in event.delivered if _is_current(cluster, event.generation) else ():
        if not 0 <= number < len(shards):
            raise ImpossibleEvent(cluster.with_story(f"there is no shard {number}"))
        if shards[number].owner == machine.name:
            shards[number] = replace(shards[number], delivered=(event.generation, clock))
    machine = replace(machine, worker=replace(machine.worker, drained=True))
    return replace(cluster.with_machine(machine), shards=tuple(shards)), ()


def stop_requested(cluster: ClusterState, event: StopRequested) -> Result:  # noqa: ARG001 - one signature for all
    """Ends the job soon: at the last clock that servers let workers start before B moves."""
    # Workers may have started that clock already. ``advance_consistent`` keeps B until it is complete, so
    # servers with a backup let nobody start a later one, and end a range there. A server without a backup can
    # return to any clock beyond B. So all of them can produce the model at exactly this clock.
    return replace(cluster, until=min(cluster.until, cluster.barrier.last_startable(cluster.consistent))), ()


def model_saved(cluster: ClusterState, event: ModelSaved) -> Result:
    """Records that a reliable machine wrote its part. With the last part the job is finished."""
    if not _is_current(cluster, event.generation):
        return cluster, ()
    # Nobody owns what is written, so the loss of this machine calls for no recovery any more.
    written = (partition for partition in cluster.partitions if partition.owner == event.machine)
    cluster = cluster.with_partitions(replace(partition, owner=None) for partition in written)
    cluster = replace(cluster, saving=cluster.saving - {event.machine})
    if cluster.saving:
        return cluster, ()
    return replace(cluster, phase=TrainingPhase.FINISHED), (Finished(cluster.until, event.path),)


def ignore_stale(cluster: ClusterState, event: ClockCompleted | BackedUp | ModelSaved) -> Result:
    """Ignores a report about state that was lost since. One of this generation cannot have happened yet."""
    if _is_current(cluster, event.generation):
        raise ImpossibleEvent(cluster.with_story(f"{event} cannot have happened in this generation"))
    return cluster, ()


def _find_partition(cluster: ClusterState, number: int) -> Partition:
    if not 0 <= number < len(cluster.partitions):
        raise ImpossibleEvent(cluster.with_story(f"there is no partition {number}"))
    return cluster.partitions[number]


def _is_current(cluster: ClusterState, generation: int) -> bool:
    if generation > cluster.generation:
        raise ImpossibleEvent(cluster.with_story(f"generation {generation} never was"))
    return generation == cluster.generation
