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
    ``clocks``: stop after this clock.
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
    """A worker process is up and has loaded the input. A second one means the first is gone."""

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
class Installed:
    """A server holds and serves this partition under this epoch: the answer to Create, Handover and Restore.

    It serves requests that carry this very epoch and refuses others, so that nobody writes to a copy
    before the controller knows of it and has published its route.
    """

    machine: str
    partition: int
    epoch: int
    clock: int


@dataclass(frozen=True, slots=True)
class ClockCompleted:
    """The serving server has every shard's delta of ``clock`` for this partition."""

    machine: str
    partition: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class BackedUp:
    """The backup of this partition holds its state at ``clock`` (not necessarily applied yet)."""

    machine: str
    partition: int
    generation: int
    clock: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Stop gracefully: save the model at the newest consistent clock and end."""


@dataclass(frozen=True, slots=True)
class ModelSaved:
    """The partitions that this server holds are written below ``path``."""

    machine: str
    path: str


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
    | Installed
    | ClockCompleted
    | BackedUp
    | StopRequested
    | ModelSaved
)


# ---- commands: to one role, or upwards to whoever runs the machines ----------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """To a server: make this partition from the application's initial values, at clock 0, and serve it."""

    machine: str
    partition: int
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class Handover:
    """To the serving server: stop serving, send everything of the partition to ``target``.

    The copy stays frozen until Forget, whole enough to be handed over again should the target die, or
    to be served again: then ``target`` is the machine itself. ``keep_backup``: go on as the partition's
    BackupPS (stage 1 to 2). ``to_backup``: the target already holds the backup, so only what it lacks is
    sent, with the end-of-life flag (stage 2 to 1, or when the whole transient tier leaves). A target that
    is not the backup pushes to it again whatever it may lack, since the source may be gone by then.
    """

    machine: str
    partition: int
    target: str
    endpoint: str
    epoch: int
    generation: int
    keep_backup: bool
    to_backup: bool


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


@dataclass(frozen=True, slots=True)
class SaveModel:
    """To a server: all partitions you serve or back up are complete at ``clock``; write them."""

    machine: str
    clock: int


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
    """Upwards: training restarts after clock ``to``; ``redone`` completed clocks will be computed again."""

    to: int
    redone: int


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
class Failed:
    """Upwards: state that exists nowhere else is gone."""

    why: str


Command: TypeAlias = (
    Create
    | Handover
    | Restore
    | Rollback
    | Forget
    | Advance
    | Assign
    | SaveModel
    | SafeToKill
    | JoinedTraining
    | StageChanged
    | RolledBack
    | Progressed
    | Finished
    | Failed
)
