"""Decides when checkpoints are written, by which machines, and which of them count.

An attempt begins when every partition rests on a reliable machine that knows it at B. Each of these machines
writes its part as of B, in the background and into a folder of the attempt's own. When all parts are there,
one machine seals the attempt with a manifest. Only then is it a checkpoint and are earlier ones dropped, so
one that is half written is never used. An attempt that a writer's death cuts short is simply made again.
Spec: "consistent states are checkpointed to disk or object storage in the background".
"""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from agileml.controller.cluster import CheckpointAttempt, ClusterState, Commands, NewestCheckpoint, Result
from agileml.node.tier import Tier
from agileml.protocol.commands import (
    Checkpointed,
    CheckpointFailed,
    DropCheckpoints,
    SealCheckpoint,
    WriteCheckpoint,
)
from agileml.protocol.events import CheckpointDue, CheckpointRefused, CheckpointSealed, CheckpointWritten


def checkpoint_due(cluster: ClusterState, event: CheckpointDue) -> Result:  # noqa: ARG001 - one signature for all
    return cluster.with_checkpoints(due=bool(cluster.setup.checkpoints)), ()


def begin_attempt(cluster: ClusterState) -> Result:
    """Has B written down when it is time, and every partition rests on a reliable machine."""
    clock = cluster.consistent
    if cluster.checkpoints.attempt is not None or not _is_time(cluster, clock) or not cluster.all_served:
        return cluster, ()
    parts: dict[str, list[int]] = defaultdict(list)
    for partition in cluster.partitions:
        holder = partition.backup or partition.owner
        if holder is None or not cluster.is_reliable(holder):
            return cluster, ()  # a copy is on its way to one
        parts[holder].append(partition.number)
    # Numbers are never reused: a late word about an attempt that was given up must not count for the next
    # one.
    number = cluster.checkpoints.attempts + 1
    folder = f"{cluster.setup.checkpoints}/{clock:010}-{number}"
    attempt = CheckpointAttempt(number, clock, folder, frozenset(parts))
    commands = tuple(
        WriteCheckpoint(name, number, folder, clock, tuple(numbers))
        for name, numbers in sorted(parts.items())
    )
    begun = cluster.with_checkpoints(attempt=attempt, attempts=number, attempted_clock=clock, due=False)
    return begun, commands


def _is_time(cluster: ClusterState, clock: int) -> bool:
    """Whether a checkpoint is due. At the last clock the model itself is about to be written."""
    if not cluster.checkpoints.newest.clock < clock < cluster.until:
        return False
    every, again = cluster.setup.checkpoint_clocks, cluster.checkpoints.attempted_clock
    return cluster.checkpoints.due or (every > 0 and clock - again >= every)


def seal_attempt(cluster: ClusterState) -> Result:
    """Has a reliable machine write the manifest; another one, if that dies before it reports so."""
    attempt = cluster.checkpoints.attempt
    if attempt is None or attempt.writing or cluster.live_server(attempt.sealer) is not None:
        return cluster, ()
    sealer = next(iter(cluster.assignable_servers(Tier.RELIABLE)), None)
    if sealer is None:
        return cluster, ()
    sealing = cluster.with_checkpoints(attempt=replace(attempt, sealer=sealer))
    return sealing, (SealCheckpoint(sealer, attempt.number, attempt.folder, attempt.clock),)


def part_written(cluster: ClusterState, event: CheckpointWritten) -> Result:
    attempt = cluster.checkpoints.attempt
    if attempt is None or attempt.number != event.attempt:
        return cluster, ()
    return cluster.with_checkpoints(attempt=replace(attempt, writing=attempt.writing - {event.machine})), ()


def attempt_sealed(cluster: ClusterState, event: CheckpointSealed) -> Result:
    """Records the new checkpoint: the state of its clock is safe from now on, and earlier ones may go."""
    attempt = cluster.checkpoints.attempt
    if attempt is None or attempt.number != event.attempt:
        return cluster, ()
    cluster = cluster.with_checkpoints(newest=NewestCheckpoint(attempt.clock, attempt.folder), attempt=None)
    commands: Commands = (Checkpointed(attempt.clock, attempt.folder),)
    # If that machine died meanwhile nobody drops the older checkpoints now; the next one's order covers them
    # too.
    if cluster.live_server(event.machine) is not None:
        commands += (DropCheckpoints(event.machine, attempt.number, attempt.folder),)
    return cluster, commands


def attempt_refused(cluster: ClusterState, event: CheckpointRefused) -> Result:
    """Gives the attempt up until the next one is due. Training does not wait for a disk, and the user is
    told.
    """
    attempt = cluster.checkpoints.attempt
    if attempt is None or attempt.number != event.attempt:
        return cluster, ()
    return cluster.with_checkpoints(attempt=None), (CheckpointFailed(attempt.clock, event.why),)
