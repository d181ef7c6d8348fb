"""What happens to a training cluster, and what its elasticity controller answers.

Vocabulary shared by the pure state machine (``elastic.py``), the processes that carry it out and
the property tests. Machines are named by whoever runs them; a *role* is a process on a machine.
Everything here is a frozen value that survives JSON (see ``wire.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Tier(StrEnum):
    RELIABLE = "reliable"
    TRANSIENT = "transient"


class Stage(StrEnum):
    """Harlap 4.2.2. The letters differ by where partitions are served and who computes."""

    ONE = "1"  # ParamServs on reliable machines, workers everywhere
    TWO = "2"  # ActivePSs on transient machines, BackupPSs on reliable ones, workers everywhere
    THREE = "3"  # as two, but reliable machines compute nothing


@dataclass(frozen=True, slots=True)
class Setup:
    """Fixed at the start of a job.

    ``partitions``: N, into which the model is cut once; ``shards``: S, into which the input is cut once;
    ``staleness``: the SSP bound s (0 is BSP); ``stage2_above``, ``stage3_above``: transient machines per
    reliable one above which stages 2 and 3 hold; ``hysteresis``: relative slack for going back down;
    ``clocks``: stop after this clock; ``automatic``: choose stages by what a clock costs instead, as soon as
    that was measured, given that a machine's link carries ``link_bytes_per_s`` each way.
    """

    partitions: int
    shards: int
    clocks: int
    staleness: int = 0
    stage2_above: float = 1.0
    stage3_above: float = 15.0
    hysteresis: float = 0.0
    active_share: float = 0.5
    """Share of the transient machines that run an ActivePS; at least one."""
    automatic: bool = False
    link_bytes_per_s: float = 0.0
    checkpoints: str = ""
    """Where consistent states are kept against the loss of reliable machines (fsspec); empty: nowhere."""
    checkpoint_clocks: int = 0
    """After how many clocks the next one is written; 0: only when a CheckpointDue asks for it."""
    start: int = 0
    """The clock that training starts after: of the checkpoint ``resume``, or 0 with initial values."""
    resume: str = ""
    """The folder of the checkpoint that training starts from."""
    backup_lag: int | None = None
    """The most clocks that the backups may lag behind the clock in hand; ``None`` is s + 2."""

    @property
    def lag(self) -> int:
        """The most clocks that a failure can cost."""
        return self.staleness + 2 if self.backup_lag is None else self.backup_lag

    @property
    def returns(self) -> bool:
        """Whether losing the last copy of a partition sends training back rather than ends it."""
        return bool(self.checkpoints or self.resume)


@dataclass(frozen=True, slots=True)
class Peer:
    """A server, and where its data socket listens."""

    machine: str
    endpoint: str


# ---- events: what the controller is told -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineJoined:
    """A machine belongs to the job from now on; its roles report by themselves when they are up."""

    machine: str
    tier: Tier
    cores: int


@dataclass(frozen=True, slots=True)
class ServerReady:
    """A server process is up and empty. A second one of a machine means the first is gone."""

    machine: str
    incarnation: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker process is up, with nothing loaded yet. A second one means the first is gone."""

    machine: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ServerLost:
    machine: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerLost:
    machine: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class MachineLost:
    """Gone without being safe to kill: a failure, or an effective failure."""

    machine: str


@dataclass(frozen=True, slots=True)
class EvictionWarned:
    """These machines will vanish. ``notice_s`` is real time from the moment the warning was read."""

    machines: tuple[str, ...]
    notice_s: float


@dataclass(frozen=True, slots=True)
class MachineReleased:
    """The machine was taken away after it was safe to kill (or is no longer wanted)."""

    machine: str


@dataclass(frozen=True, slots=True)
class Drained:
    """A leaving worker has pushed its last deltas and computes no more."""

    machine: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A worker has these shards of the input in memory, and no others."""

    machine: str
    incarnation: int
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """A server holds this partition under this epoch: the answer to Create, Handover, Restore and BackUp.

    The target of a BackUp follows; any other serves requests that carry this very epoch and refuses others,
    so that nobody writes to a copy before the controller knows of it and has published its route.
    """

    machine: str
    partition: int
    epoch: int
    clock: int


@dataclass(frozen=True, slots=True)
class ClockCompleted:
    """The serving server has every shard's delta of ``clock`` for this partition.

    One without a backup can return to it until B is beyond.
    """

    machine: str
    partition: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class BackedUp:
    """The backup of this partition holds its state at ``clock``, and can return to it until B is beyond."""

    machine: str
    partition: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Stop gracefully: save the model at the newest consistent clock and end."""


@dataclass(frozen=True, slots=True)
class StageDecided:
    """Whoever runs the machines wants this stage while it is possible; None: the job decides for itself."""

    stage: Stage | None


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """From a server, at a low rate: bytes ``exchanged`` with workers and ``pushed`` to backups since then.

    ``completions``: how many clocks it completed meanwhile, counted once for each partition.
    """

    machine: str
    incarnation: int
    completions: int
    exchanged: int
    pushed: int


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """From a worker, at a low rate: ``shards`` took it ``computing_s`` core-seconds since then.

    ``busy_s``: seconds a clock, from the first value it could read to the last delta that a server took.
    """

    machine: str
    incarnation: int
    shards: int
    computing_s: float
    busy_s: float


@dataclass(frozen=True, slots=True)
class ModelSaved:
    """The partitions that this server was asked for are written below ``path``."""

    machine: str
    generation: int
    path: str


@dataclass(frozen=True, slots=True)
class CheckpointDue:
    """The time between two checkpoints is over. Whoever has a clock says so."""


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """This server's part of the attempt is in its folder, whole."""

    machine: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CheckpointSealed:
    """The attempt has its manifest: it is a checkpoint."""

    machine: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CheckpointRefused:
    """The folder of the attempt could not be written, and ``why``."""

    machine: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class CheckpointUnreadable:
    """A partition that Create wanted from a checkpoint could not be read, and ``why``."""

    machine: str
    generation: int
    why: str


Event: TypeAlias = (
    MachineJoined
    | ServerReady
    | WorkerReady
    | ServerLost
    | WorkerLost
    | MachineLost
    | EvictionWarned
    | MachineReleased
    | Drained
    | Loaded
    | Installed
    | ClockCompleted
    | BackedUp
    | StopRequested
    | StageDecided
    | ServerLoad
    | WorkerLoad
    | ModelSaved
    | CheckpointDue
    | CheckpointWritten
    | CheckpointSealed
    | CheckpointRefused
    | CheckpointUnreadable
)


# ---- commands: to one role, or upwards to whoever runs the machines ----------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """To a server: make this partition and serve it, whatever it holds of it.

    At clock 0 from the application's initial values, later from the checkpoint in ``folder``.
    """

    machine: str
    partition: int
    epoch: int
    generation: int
    clock: int = 0
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Handover:
    """To the serving server: stop serving, send everything of the partition to ``target``.

    The copy stays frozen until Forget, whole enough to be handed over again should the target die, or
    to be served again: then ``target`` is the machine itself. ``keep_backup``: go on as the partition's
    BackupPS (stage 1 to 2). ``to_backup``: the target already holds the backup, so only what it lacks is
    sent, with the end-of-life flag (stage 2 to 1, or when the whole transient tier leaves). A target that
    is not the backup pushes to ``backup`` again whatever it may lack, since the source may be gone by then.
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
    """Whom the target pushes to from then on; None on a reliable machine, or while there is nobody."""


@dataclass(frozen=True, slots=True)
class BackUp:
    """To the serving server: send a copy to ``target`` and push to that from now on, and to nobody else.

    Whoever followed before keeps what it has, for a roll-back, until the copy has arrived.
    """

    machine: str
    partition: int
    target: Peer
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class Restore:
    """To the keeper of a lost partition: undo to clock B, take on ``generation``, send that to ``target``.

    The keeper is the backup, and stays it unless ``target`` is itself: then it serves, without a backup.
    """

    machine: str
    partition: int
    target: str
    endpoint: str
    epoch: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class Rollback:
    """To a surviving server or backup: undo the clocks after ``clock`` and take on ``generation``."""

    machine: str
    partition: int
    epoch: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class Forget:
    """To a server: drop any copy of an epoch before ``epoch``, under which the partition lives elsewhere.

    Also one that is still on its way: it must not be installed when it comes.
    """

    machine: str
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Advance:
    """To a server: every partition is backed up to clock ``clock``; drop what undoes it.

    Repeated to each server that starts to serve a partition, since it may not have heard before.
    """

    machine: str
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class Route:
    partition: int
    machine: str
    endpoint: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Assign:
    """To a worker: who serves what, which shards are yours, and which clock comes next.

    ``routes`` names every partition; one on its way is still shown where it was served last, and refused
    there until a later version says where it went. ``clock`` is the first clock that may be incomplete;
    deltas that servers already have are dropped there, so starting too early is harmless. ``until``: the
    last clock of the job. ``drain``: finish the clock in hand within ``notice_s``, push it, answer Drained.
    ``preload``: shards to load next, for they may become yours; answered by Loaded, as all loading is.
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


@dataclass(frozen=True, slots=True)
class SaveModel:
    """To a server: ``partitions``, which you serve or back up, are complete at ``clock``; write them."""

    machine: str
    generation: int
    clock: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """To a server that serves or backs up ``partitions``: write their state at ``clock`` into ``folder``.

    As of now, in the background: B is ``clock``, and what undoes later clocks may go with the next Advance.
    """

    machine: str
    attempt: int
    folder: str
    clock: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SealCheckpoint:
    """To a server: all partitions are in ``folder``; write the manifest that makes it a checkpoint."""

    machine: str
    attempt: int
    folder: str
    clock: int


@dataclass(frozen=True, slots=True)
class DropCheckpoints:
    """To a server: the checkpoint in ``folder`` is the newest; remove those of this job from before."""

    machine: str
    attempt: int
    folder: str


@dataclass(frozen=True, slots=True)
class SafeToKill:
    """Upwards: nothing would be lost if this machine vanished now."""

    machine: str


@dataclass(frozen=True, slots=True)
class JoinedTraining:
    """Upwards: this machine's worker takes part (or is ready to, where its stage lets it idle)."""

    machine: str


@dataclass(frozen=True, slots=True)
class StageChanged:
    """Upwards: the transition into ``stage`` is complete."""

    stage: Stage


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Upwards: training restarts after clock ``to``; ``redone`` completed clocks will be computed again.

    ``lost``: the last copy of some partition is gone, so ``to`` is the newest checkpoint's clock and not B.
    """

    to: int
    redone: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Progressed:
    """Upwards: every partition has completed ``clock``; the backups hold ``consistent``."""

    clock: int
    consistent: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Upwards: all clocks are done (or a stop was asked for) and the model is saved."""

    clock: int
    path: str


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """Upwards: the whole model at the end of ``clock`` is in ``folder``, and a job can be resumed from it."""

    clock: int
    folder: str


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """Upwards: the state at ``clock`` could not be written. Training goes on; the next is tried when due."""

    clock: int
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
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
