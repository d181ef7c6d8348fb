"""Decides when checkpoints are written, by which machines, and which of them count.

An attempt begins when every partition rests on a reliable machine that holds it at B. Each of these machines
writes its part as of B, in the background, into a folder that belongs to this attempt alone. When all parts
are there, one machine seals the attempt with a manifest. Only then is it a checkpoint, and only then are
earlier ones dropped, so no job ever starts from a half-written one. When a writer dies, a new attempt begins.
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
    """Begins a checkpoint of B when one is due and every partition rests on a reliable machine."""
    clock = cluster.consistent
    if cluster.checkpoints.attempt is not None or not _is_time(cluster, clock) or not cluster.all_served:
        return cluster, ()
    parts: dict[str, list[int]] = defaultdict(list)
    for partition in cluster.partitions:
        holder = partition.backup or partition.owner
        if holder is None or not cluster.roster.is_reliable(holder):
            return cluster, ()  # a copy is on its way to one
        parts[holder].append(partition.number)
    # Numbers are never reused: a late report about an abandoned attempt must not count for the next one.
    # Its folder carries the number too, so a slow writer of the old attempt cannot mix into the new one.
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
    """Whether a checkpoint of ``clock`` is due."""
    # At the last clock the model itself is about to be written, which makes a checkpoint pointless.
    if not cluster.checkpoints.newest.clock < clock < cluster.until:
        return False
    every, attempted = cluster.setup.checkpoint_clocks, cluster.checkpoints.attempted_clock
    return cluster.checkpoints.due or (every > 0 and clock - attempted >= every)


def seal_attempt(cluster: ClusterState) -> Result:
    """Orders a reliable machine to write the manifest, or another one if that dies before its report."""
    attempt = cluster.checkpoints.attempt
    if attempt is None or attempt.writing or cluster.roster.live_server(attempt.sealer) is not None:
        return cluster, ()
    sealer = next(iter(cluster.roster.assignable_servers(Tier.RELIABLE)), None)
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
    """Records the new checkpoint, and has earlier ones dropped."""
    attempt = cluster.checkpoints.attempt
    if attempt is None or attempt.number != event.attempt:
        return cluster, ()
    cluster = cluster.with_checkpoints(newest=NewestCheckpoint(attempt.clock, attempt.folder), attempt=None)
    commands: Commands = (Checkpointed(attempt.clock, attempt.folder),)
    # The order to drop follows the seal. The other way round, a failed seal would leave no checkpoint at all.
    # If that machine died meanwhile, older checkpoints stay until the next seal, whose order covers them too.
    if cluster.roster.live_server(event.machine) is not None:
        commands += (DropCheckpoints(event.machine, attempt.number, attempt.folder),)
    return cluster, commands


def attempt_refused(cluster: ClusterState, event: CheckpointRefused) -> Result:
    """Abandons the attempt until the next one is due, and reports why. Training does not wait for a disk."""
    attempt = cluster.checkpoints.attempt
    if attempt is None or attempt.number != event.attempt:
        return cluster, ()
    return cluster.with_checkpoints(attempt=None), (CheckpointFailed(attempt.clock, event.why),)
