"""Defines what happens to a training cluster: all that its elasticity controller is ever told.

This vocabulary is shared by the pure state machine (``state_machine.py``), the processes that carry it out
and the property tests; the controller answers with ``commands``. The client that runs machines names them; a
*role* is a process on a machine. Everything here is a frozen value that survives JSON (see ``wire.py``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from agileml.node.tier import Tier


class Stage(StrEnum):
    """The stages of Harlap 4.2.2. They differ by where partitions are served and who computes."""

    ONE = "1"  # ParamServs on reliable machines, workers everywhere
    TWO = "2"  # ActivePSs on transient machines, BackupPSs on reliable ones, workers everywhere
    THREE = "3"  # as two, but reliable machines compute nothing


class Setup(Struct, frozen=True):
    """Describes a job. It is fixed at the start.

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
    def lag_limit(self) -> int:
        """The most clocks that a failure can cost."""
        return self.staleness + 2 if self.backup_lag is None else self.backup_lag

    @property
    def can_start_over(self) -> bool:
        """Whether losing the last copy of a partition sends training back rather than ends it."""
        return bool(self.checkpoints or self.resume)

    def require_valid(self) -> None:
        """Raises ValueError where this describes no job."""
        if min(self.partitions, self.shards, self.clocks) < 1 or self.staleness < 0:
            raise ValueError(
                f"a job needs partitions, shards and clocks, and a staleness of at least 0: {self}"
            )
        if not 0 <= self.start < self.clocks or (self.start > 0) != bool(self.resume):
            raise ValueError(
                f"a job starts after a clock before its last one, and after 0 from a checkpoint: {self}"
            )
        if self.checkpoint_clocks < 0 or (self.checkpoint_clocks and not self.checkpoints):
            raise ValueError(
                f"checkpoints need a place, and a positive number of clocks between them: {self}"
            )
        if self.lag_limit < 1:
            raise ValueError(f"backups lag by at least one clock, not by {self.lag_limit}: {self}")
        if self.automatic and self.link_bytes_per_s <= 0:
            raise ValueError(f"automatic stages need to know what a link carries (link_bytes_per_s): {self}")


class Peer(Struct, frozen=True):
    """A server, and where its data socket listens."""

    machine: str
    endpoint: str


# ---- events: what the controller is told -------------------------------------------------------


class MachineJoined(Struct, frozen=True):
    """A machine belongs to the job from now on; its roles report by themselves when they are up."""

    machine: str
    tier: Tier
    cores: int


class ServerReady(Struct, frozen=True):
    """A server process is up and empty. A second one of a machine means the first is gone."""

    machine: str
    incarnation: int
    endpoint: str


class WorkerReady(Struct, frozen=True):
    """A worker process is up, with nothing loaded yet. A second one means the first is gone."""

    machine: str
    incarnation: int


class ServerLost(Struct, frozen=True):
    machine: str
    incarnation: int


class WorkerLost(Struct, frozen=True):
    machine: str
    incarnation: int


class MachineLost(Struct, frozen=True):
    """The machine is gone without being safe to kill: a failure, or an effective failure."""

    machine: str


class EvictionWarned(Struct, frozen=True):
    """These machines will vanish. ``notice_s`` is real time from the moment the warning was read."""

    machines: tuple[str, ...]
    notice_s: float


class MachineReleased(Struct, frozen=True):
    """The machine was taken away after it was safe to kill (or is no longer wanted)."""

    machine: str


class Drained(Struct, frozen=True):
    """A leaving worker has pushed its last deltas and computes no more.

    ``delivered``: of each of its shards the last clock that all servers of ``generation`` have.
    """

    machine: str
    incarnation: int
    generation: int
    delivered: tuple[tuple[int, int], ...]


class Loaded(Struct, frozen=True):
    """A worker has these shards of the input in memory, and no others.

    ``full``: there is no room for the rest of what it was told to load.
    """

    machine: str
    incarnation: int
    shards: tuple[int, ...]
    full: bool = False


class Installed(Struct, frozen=True):
    """A server holds this partition under this epoch: the answer to Create, Handover, Restore and BackUp.

    The target of a BackUp becomes a backup. Any other serves requests that carry this very epoch and refuses
    others, so that nobody writes to a copy before the controller knows of it and has published its route.
    """

    machine: str
    partition: int
    epoch: int
    clock: int


class ClockCompleted(Struct, frozen=True):
    """The serving server has every shard's delta of ``clock`` for this partition.

    A server without a backup can return to it until B is beyond.
    """

    machine: str
    partition: int
    generation: int
    clock: int


class BackedUp(Struct, frozen=True):
    """The backup of this partition holds its state at ``clock``, and can return to it until B is beyond."""

    machine: str
    partition: int
    generation: int
    clock: int


class StopRequested(Struct, frozen=True):
    """Stop gracefully: save the model at the newest consistent clock and end."""


class StageDecided(Struct, frozen=True):
    """The client that runs the machines wants this stage while it is possible; None: the job decides for
    itself.
    """

    stage: Stage | None


class ServerLoad(Struct, frozen=True):
    """Bytes that a server ``exchanged`` with workers and ``pushed`` to backups since its last report.

    ``completions``: how many clocks it completed meanwhile, counted once for each partition.
    """

    machine: str
    incarnation: int
    completions: int
    exchanged: int
    pushed: int


class WorkerLoad(Struct, frozen=True):
    """Core-seconds (``computing_s``) that a worker spent on ``shards`` since its last report.

    ``busy_s``: seconds a clock, from the first value it could read to the last delta that a server took;
    ``clock_s``: seconds from one clock to the next.
    """

    machine: str
    incarnation: int
    shards: int
    computing_s: float
    busy_s: float
    clock_s: float


class ModelSaved(Struct, frozen=True):
    """The partitions that this server was asked for are written below ``path``."""

    machine: str
    generation: int
    path: str


class CheckpointDue(Struct, frozen=True):
    """The time between two checkpoints is over. A process with a clock says so."""


class CheckpointWritten(Struct, frozen=True):
    """This server's part of the attempt is in its folder, complete."""

    machine: str
    attempt: int


class CheckpointSealed(Struct, frozen=True):
    """The attempt has its manifest: it is a checkpoint."""

    machine: str
    attempt: int


class CheckpointRefused(Struct, frozen=True):
    """The folder of the attempt could not be written, and ``why``."""

    machine: str
    attempt: int
    why: str


class CheckpointUnreadable(Struct, frozen=True):
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
