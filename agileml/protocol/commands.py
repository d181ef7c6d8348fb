"""Defines what the elasticity controller orders, and what it reports upwards: its answers to ``events``.

A command goes to one role of a machine (a server, or the worker for ``Assign``), or upwards to the client
that runs the machines. Everything here is a frozen value that survives JSON (see ``wire.py``).
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from agileml.protocol.events import Peer, Stage

# ---- to one role --------------------------------------------------------------------------------


class Create(Struct, frozen=True):
    """To a server: make this partition and serve it, whatever you hold of it.

    At clock 0 from the application's initial values, later from the checkpoint in ``folder``.
    """

    machine: str
    partition: int
    epoch: int
    generation: int
    clock: int = 0
    folder: str = ""


class Handover(Struct, frozen=True):
    """To the serving server: stop serving, send everything of the partition to ``target``.

    The copy stays frozen until Forget, complete enough to be handed over again should the target die, or to
    be served again: then ``target`` is the machine itself. ``keep_backup``: go on as the partition's BackupPS
    (stage 1 to 2). ``to_backup``: the target already holds the backup, so only what it lacks is sent, with
    the end-of-life flag (stage 2 to 1, or when the whole transient tier leaves). A target that is not the
    backup pushes to ``backup`` again whatever it may lack, since the source may be gone by then.
    """

    machine: str
    partition: int
    target: str
    endpoint: str
    epoch: int
    generation: int
    keep_backup: bool
    to_backup: bool
    backup: Peer | None
    """The server that the target pushes to from then on; None on a reliable machine, or
    while there is none.
    """


class BackUp(Struct, frozen=True):
    """To the serving server: send a copy to ``target``, and push to that alone from now on.

    The previous backup keeps what it has, for a roll-back, until the copy has arrived.
    """

    machine: str
    partition: int
    target: Peer
    epoch: int
    generation: int


class Restore(Struct, frozen=True):
    """To the recovery source of a lost partition: undo to clock B, take on ``generation``, send that to
    ``target``.

    The source is the backup, and stays it unless ``target`` is itself: then it serves, without a backup.
    """

    machine: str
    partition: int
    target: str
    endpoint: str
    epoch: int
    generation: int
    clock: int


class Rollback(Struct, frozen=True):
    """To a surviving server or backup: undo the clocks after ``clock`` and take on ``generation``."""

    machine: str
    partition: int
    epoch: int
    generation: int
    clock: int


class Forget(Struct, frozen=True):
    """To a server: drop any copy of an epoch before ``epoch``, under which the partition lives elsewhere.

    Also one that is still on its way: it must not be installed when it comes.
    """

    machine: str
    partition: int
    epoch: int


class Advance(Struct, frozen=True):
    """To a server: every partition is backed up to clock ``clock``; drop what undoes it.

    Repeated to each server that starts to serve a partition, since it may not have heard before.
    """

    machine: str
    generation: int
    clock: int


class Route(Struct, frozen=True):
    partition: int
    machine: str
    endpoint: str
    epoch: int


class Assign(Struct, frozen=True):
    """To a worker: who serves what, which shards are yours, and which clock comes next.

    ``routes`` names every partition; one on its way is still shown where it was served last, and refused
    there until a later version says where it went. ``clock`` is the first clock that may be incomplete;
    deltas that servers already have are dropped there, so starting too early is harmless. ``until``: the last
    clock of the job. ``drain``: finish the clock in hand within ``notice_s``, push it, answer Drained.
    ``preload``: shards to load next, for they may become yours; answered by Loaded, as all loading is.
    ``delivered``: of some shards the last clock that a previous owner pushed everywhere, ``clock`` or later.
    """

    machine: str
    generation: int
    version: int
    routes: tuple[Route, ...]
    shards: tuple[int, ...]
    clock: int
    until: int
    drain: bool = False
    notice_s: float = 0.0
    preload: tuple[int, ...] = ()
    delivered: tuple[tuple[int, int], ...] = ()


class SaveModel(Struct, frozen=True):
    """To a server: ``partitions``, which you serve or back up, are complete at ``clock``; write them."""

    machine: str
    generation: int
    clock: int
    partitions: tuple[int, ...]


class WriteCheckpoint(Struct, frozen=True):
    """To a server that serves or backs up ``partitions``: write their state at ``clock`` into ``folder``.

    As of now, in the background: B is ``clock``, and what undoes later clocks may go with the next Advance.
    """

    machine: str
    attempt: int
    folder: str
    clock: int
    partitions: tuple[int, ...]


class SealCheckpoint(Struct, frozen=True):
    """To a server: all partitions are in ``folder``; write the manifest that makes it a checkpoint."""

    machine: str
    attempt: int
    folder: str
    clock: int


class DropCheckpoints(Struct, frozen=True):
    """To a server: the checkpoint in ``folder`` is the newest; remove those of this job from before."""

    machine: str
    attempt: int
    folder: str


# ---- upwards ------------------------------------------------------------------------------------


class SafeToKill(Struct, frozen=True):
    """Upwards: nothing would be lost if this machine vanished now."""

    machine: str


class JoinedTraining(Struct, frozen=True):
    """Upwards: this machine's worker takes part (or is ready to, where its stage lets it idle)."""

    machine: str


class StageChanged(Struct, frozen=True):
    """Upwards: the transition into ``stage`` is complete."""

    stage: Stage


class RolledBack(Struct, frozen=True):
    """Upwards: training restarts after clock ``to``; ``redone`` completed clocks will be computed again.

    ``lost``: the last copy of some partition is gone, so ``to`` is the newest checkpoint's clock and not B.
    """

    to: int
    redone: int
    lost: bool = False


class Progressed(Struct, frozen=True):
    """Upwards: every partition has completed ``clock``; the backups hold ``consistent``."""

    clock: int
    consistent: int


class Finished(Struct, frozen=True):
    """Upwards: all clocks are done (or a stop was asked for) and the model is saved."""

    clock: int
    path: str


class Checkpointed(Struct, frozen=True):
    """Upwards: the whole model at the end of ``clock`` is in ``folder``, and a job can be resumed from it."""

    clock: int
    folder: str


class CheckpointFailed(Struct, frozen=True):
    """Upwards: the state at ``clock`` could not be written. Training goes on; the next is tried when due."""

    clock: int
    why: str


class Failed(Struct, frozen=True):
    """Upwards: the job is over without a model. ``checkpoint``: the folder to resume from, if any."""

    why: str
    checkpoint: str = ""


Command: TypeAlias = (
    Create
    | Handover
    | BackUp
    | Restore
    | Rollback
    | Forget
    | Advance
    | Assign
    | SaveModel
    | WriteCheckpoint
    | SealCheckpoint
    | DropCheckpoints
    | SafeToKill
    | JoinedTraining
    | StageChanged
    | RolledBack
    | Progressed
    | Checkpointed
    | CheckpointFailed
    | Finished
    | Failed
)
