"""Defines the entries of the ledger: facts (what happened) and commands (what was asked for).

Rule 1: a recorded command is a fact. It is folded the moment it is made, so nothing is asked for
twice, and a crash between recording and executing leaves evidence.
Rule 2: every entry carries the nominal time ``at``. In the local world nominal time is sped up; no
entry holds a duration that was measured in real seconds, except ``Stalled``, which no decision reads.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from bidbrain.cluster.lease import Lease
from bidbrain.model import Decision
from pricing_data.model.billing import EndReason
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, MicroUsd, UsdPerHour
from spotctl.control.run_spec import RunSpec


class UserRequest(StrEnum):
    """Names what a user may ask of a running job."""

    CANCEL = "cancel"
    """End gracefully: the model is saved, the machines are released."""
    DOWN = "down"
    """Take the machines away now."""


class RunOutcome(StrEnum):
    """Classifies how a run ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TAKEN_DOWN = "taken down"


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """Holds what every entry has. A record with other fields than an entry's own is not read as one."""

    at: Instant


# ---- facts ------------------------------------------------------------------------------------


class JobStarted(_Entry, frozen=True):
    terms: RunSpec


class PriceChanged(_Entry, frozen=True):
    market: Market
    price: UsdPerHour


class Woke(_Entry, frozen=True):
    """The moment came that the newest ``WakeAt`` named."""


class Granted(_Entry, frozen=True):
    """The provider accepted the allocation; its instances exist from now on, but do not run yet."""

    allocation: str
    instances: tuple[str, ...]


class Refused(_Entry, frozen=True):
    """The provider gives nothing for this request; the next decision may ask another market."""

    allocation: str
    error: str
    """Name of the provider error, which says what to do (see spotctl.errors)."""
    detail: str


class InstancesRunning(_Entry, frozen=True):
    """Billing starts."""

    instances: tuple[str, ...]


class EvictionWarned(_Entry, frozen=True):
    """The provider will take these instances at ``ends_at``; it never takes that back."""

    instances: tuple[str, ...]
    ends_at: Instant


class EvictionNoticed(_Entry, frozen=True):
    """The instance itself heard that it is taken at ``ends_at``, before or beside its provider's own word."""

    instance: str
    ends_at: Instant


class InstancesEnded(_Entry, frozen=True):
    """Billing ends."""

    instances: tuple[str, ...]
    end: EndReason


class MachineJoined(_Entry, frozen=True):
    """The instance takes part in training."""

    instance: str


class MachineGivenUp(_Entry, frozen=True):
    """The training gave the instance up, though nobody reported its end: it hangs, or cannot run the job."""

    instance: str


class ControllerSilent(_Entry, frozen=True):
    """The training's controller has gone silent, and so has ``instance``, which runs it."""

    instance: str


class SafeToKill(_Entry, frozen=True):
    """Nothing of the training would be lost with this instance."""

    instance: str


class Progressed(_Entry, frozen=True):
    """All shards completed ``clock``; the reliable machines hold the state at ``consistent``."""

    clock: int
    consistent: int


class ProgramBegan(_Entry, frozen=True):
    """A command's program started on ``instance``, from a checkpoint at ``clock``; at 0 from nothing."""

    instance: str
    clock: int


class CheckpointStored(_Entry, frozen=True):
    """``instance`` wrote the newest checkpoint; recorded when its machine or its size has changed."""

    instance: str
    clock: int
    size_bytes: int


class CheckpointFetched(_Entry, frozen=True):
    """``instance`` fetched the checkpoint that ``stored_by`` wrote; egress is owed if it left a region."""

    instance: str
    stored_by: str
    clock: int
    size_bytes: int


class Checkpointed(_Entry, frozen=True):
    """``folder`` holds the whole state at ``clock``: a later run can go on from there."""

    clock: int
    folder: str


class CheckpointFailed(_Entry, frozen=True):
    """Storing the state at ``clock`` failed, or removing those of a finished job. Training goes on."""

    clock: int
    why: str


class TrainingResumed(_Entry, frozen=True):
    """Training continues after ``clock``, from the checkpoint in ``folder``.

    An earlier run left it or, where training begins again, this run wrote it. Before its first checkpoint it
    begins again with nothing (``folder`` empty).
    """

    clock: int
    folder: str


class ObjectiveReported(_Entry, frozen=True):
    """The application reported its objective after ``clock``, in the unit of its metric."""

    clock: int
    value: float


class StageEntered(_Entry, frozen=True):
    stage: int


class RolledBack(_Entry, frozen=True):
    """Training went back to clock ``to``; ``redone`` completed clocks are computed again."""

    to: int
    redone: int


class TrainingFinished(_Entry, frozen=True):
    clock: int
    model: str


class TrainingFailed(_Entry, frozen=True):
    why: str


class ControllerDown(_Entry, frozen=True):
    """spotctl was down from ``at`` to ``until``: nothing that happened between was acted upon.

    ``over_at``: when the training finished meanwhile, if it did and that shows; spotctl hears of it
    afterwards. ``lapsed_at``: when machines ended themselves because nothing had driven them for a lease, if
    they did.
    """

    until: Instant
    over_at: Instant | None = None
    lapsed_at: Instant | None = None


class Asked(_Entry, frozen=True):
    ask: UserRequest


class Leased(_Entry, frozen=True):
    """The queue that runs the job gave it a lease, or took it back (None).

    ``allowance``: the most that it may spend, past spending included; None: no budget is counted.
    """

    lease: Lease | None
    allowance: MicroUsd | None = None


class Stalled(_Entry, frozen=True):
    """Nominal time stood still for a due real effect. ``done``: the effect came before its floor ran out."""

    effect: str
    real_s: float
    done: bool


Fact: TypeAlias = (
    JobStarted
    | PriceChanged
    | Woke
    | Granted
    | Refused
    | InstancesRunning
    | EvictionWarned
    | EvictionNoticed
    | InstancesEnded
    | MachineJoined
    | MachineGivenUp
    | ControllerSilent
    | SafeToKill
    | Progressed
    | ProgramBegan
    | CheckpointStored
    | CheckpointFetched
    | Checkpointed
    | CheckpointFailed
    | TrainingResumed
    | ObjectiveReported
    | StageEntered
    | RolledBack
    | TrainingFinished
    | TrainingFailed
    | ControllerDown
    | Asked
    | Leased
    | Stalled
)

# ---- commands ---------------------------------------------------------------------------------


class Decided(_Entry, frozen=True):
    """BidBrain decided, and this is what it weighed. The effects follow as commands of their own."""

    decision: Decision
    spot_up: bool | None = None
    """Whether spot machines could be had, where a deadline strategy observed that."""


class Acquire(_Entry, frozen=True):
    """Asks the provider for instances. ``allocation`` is the idempotency token; ``bid`` None is on-demand.

    ``reliable``: they are the tier that holds the model and is never given up. Other machines on demand
    only compute, and go when a decision says so.
    """

    allocation: str
    market: Market
    count: int
    bid: UsdPerHour | None
    reliable: bool = False


class Release(_Entry, frozen=True):
    instances: tuple[str, ...]
    why: str


class TellJoin(_Entry, frozen=True):
    """Tells the training: these machines are yours from now on."""

    instances: tuple[str, ...]
    reliable: bool
    cores: int
    market: Market | None = None
    """Where they are; a training that stores everything within one place need not know."""


class TellWarning(_Entry, frozen=True):
    """Tells the training: these machines go at ``ends_at``; make them safe to kill."""

    instances: tuple[str, ...]
    ends_at: Instant


class TellLost(_Entry, frozen=True):
    """Tells the training: these machines went without having been safe to kill."""

    instances: tuple[str, ...]


class TellReleased(_Entry, frozen=True):
    """Tells the training: these machines went after they were safe to kill."""

    instances: tuple[str, ...]


class TellStop(_Entry, frozen=True):
    """Tells the training: save the model and stop."""


class StopGivenUp(_Entry, frozen=True):
    """The controller stops waiting for a training that should have ended by now, for reasons unknown."""


class TellRestart(_Entry, frozen=True):
    """Tells the training: all your machines are gone; begin again from the newest whole checkpoint.

    ``number`` counts these commands, this one included. ``in_time``: whether deadline and budget
    can still be kept; None where nothing is promised.
    """

    number: int
    in_time: bool | None = None


class WakeAt(_Entry, frozen=True):
    when: Instant


class Close(_Entry, frozen=True):
    """Ends the run: nothing is left to wait for."""

    outcome: RunOutcome
    exit_code: int
    why: str


Tell: TypeAlias = TellJoin | TellWarning | TellLost | TellReleased | TellStop | TellRestart
Command: TypeAlias = Decided | Acquire | Release | Tell | StopGivenUp | WakeAt | Close
Entry: TypeAlias = Fact | Command
