"""Defines the entries of the ledger: facts (what happened) and commands (what was asked for).

Rule 1: a recorded command is a fact. It is folded the moment it is made, so nothing is asked for
twice, and a crash between recording and executing leaves evidence.
Rule 2: every entry carries the nominal time ``at``. In the local world nominal time is sped up; no
entry holds a duration that was measured in real seconds, except ``Stalled``, which no decision reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

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


# ---- facts ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobStarted:
    at: Instant
    terms: RunSpec


@dataclass(frozen=True, slots=True)
class PriceChanged:
    at: Instant
    market: Market
    price: UsdPerHour


@dataclass(frozen=True, slots=True)
class Woke:
    at: Instant


@dataclass(frozen=True, slots=True)
class Granted:
    """The provider accepted the allocation; its instances exist from now on, but do not run yet."""

    at: Instant
    allocation: str
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider gives nothing for this request; the next decision may ask another market."""

    at: Instant
    allocation: str
    error: str
    """Name of the provider error, which says what to do (see spotctl.errors)."""
    detail: str


@dataclass(frozen=True, slots=True)
class InstancesRunning:
    """Billing starts."""

    at: Instant
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvictionWarned:
    """The provider will take these instances at ``ends_at``; it never takes that back."""

    at: Instant
    instances: tuple[str, ...]
    ends_at: Instant


@dataclass(frozen=True, slots=True)
class EvictionNoticed:
    """The instance itself heard that it is taken at ``ends_at``, before or beside its provider's
    own word.
    """

    at: Instant
    instance: str
    ends_at: Instant


@dataclass(frozen=True, slots=True)
class InstancesEnded:
    """Billing ends."""

    at: Instant
    instances: tuple[str, ...]
    end: EndReason


@dataclass(frozen=True, slots=True)
class MachineJoined:
    """The instance takes part in training."""

    at: Instant
    instance: str


@dataclass(frozen=True, slots=True)
class MachineGivenUp:
    """The training gave the instance up, though nobody reported its end: it hangs, or cannot run the job."""

    at: Instant
    instance: str


@dataclass(frozen=True, slots=True)
class ControllerSilent:
    """The training's controller has gone silent, and so has ``instance``, which runs it."""

    at: Instant
    instance: str


@dataclass(frozen=True, slots=True)
class SafeToKill:
    """Nothing of the training would be lost with this instance."""

    at: Instant
    instance: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """All shards completed ``clock``; the reliable machines hold the state at ``consistent``."""

    at: Instant
    clock: int
    consistent: int


@dataclass(frozen=True, slots=True)
class ProgramBegan:
    """A command's program started on ``instance``, from a checkpoint at ``clock``; at 0 from nothing."""

    at: Instant
    instance: str
    clock: int


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """``instance`` wrote the newest checkpoint; recorded when its machine or its size has changed."""

    at: Instant
    instance: str
    clock: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointFetched:
    """``instance`` fetched the checkpoint that ``stored_by`` wrote; egress is owed if it left a region."""

    at: Instant
    instance: str
    stored_by: str
    clock: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """``folder`` holds the whole state at ``clock``: a later run can go on from there."""

    at: Instant
    clock: int
    folder: str


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """Storing the state at ``clock`` failed, or removing those of a finished job. Training goes on."""

    at: Instant
    clock: int
    why: str


@dataclass(frozen=True, slots=True)
class TrainingResumed:
    """Training continues after ``clock``, from the checkpoint in ``folder``.

    An earlier run left it or, where training begins again, this run wrote it. Before its first checkpoint it
    begins again with nothing (``folder`` empty).
    """

    at: Instant
    clock: int
    folder: str


@dataclass(frozen=True, slots=True)
class ObjectiveReported:
    """The application reported its objective after ``clock``, in the unit of its metric."""

    at: Instant
    clock: int
    value: float


@dataclass(frozen=True, slots=True)
class StageEntered:
    at: Instant
    stage: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Training went back to clock ``to``; ``redone`` completed clocks are computed again."""

    at: Instant
    to: int
    redone: int


@dataclass(frozen=True, slots=True)
class TrainingFinished:
    at: Instant
    clock: int
    model: str


@dataclass(frozen=True, slots=True)
class TrainingFailed:
    at: Instant
    why: str


@dataclass(frozen=True, slots=True)
class ControllerDown:
    """spotctl was down from ``at`` to ``until``: nothing that happened between was acted upon.

    ``over_at``: when the training finished meanwhile, if it did and that shows; spotctl hears of it
    afterwards. ``lapsed_at``: when machines ended themselves because nothing had driven them for a lease, if
    they did.
    """

    at: Instant
    until: Instant
    over_at: Instant | None = None
    lapsed_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    at: Instant
    ask: UserRequest


@dataclass(frozen=True, slots=True)
class Leased:
    """The queue that runs the job gave it a lease, or took it back (None).

    ``allowance``: the most that it may spend, past spending included; None: no budget is counted.
    """

    at: Instant
    lease: Lease | None
    allowance: MicroUsd | None = None


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nominal time stood still for a due real effect. ``done``: the effect came before its floor ran out."""

    at: Instant
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


@dataclass(frozen=True, slots=True)
class Decided:
    """BidBrain decided, and this is what it weighed. The effects follow as commands of their own."""

    at: Instant
    decision: Decision
    spot_up: bool | None = None
    """Whether spot machines could be had, where a deadline strategy observed that."""


@dataclass(frozen=True, slots=True)
class Acquire:
    """Asks the provider for instances. ``allocation`` is the idempotency token; ``bid`` None is on-demand.

    ``reliable``: they are the tier that holds the model and is never given up. Other machines on demand
    only compute, and go when a decision says so.
    """

    at: Instant
    allocation: str
    market: Market
    count: int
    bid: UsdPerHour | None
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    at: Instant
    instances: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class TellJoin:
    """Tells the training: these machines are yours from now on."""

    at: Instant
    instances: tuple[str, ...]
    reliable: bool
    cores: int
    market: Market | None = None
    """Where they are; a training that stores everything within one place need not know."""


@dataclass(frozen=True, slots=True)
class TellWarning:
    """Tells the training: these machines go at ``ends_at``; make them safe to kill."""

    at: Instant
    instances: tuple[str, ...]
    ends_at: Instant


@dataclass(frozen=True, slots=True)
class TellLost:
    """Tells the training: these machines went without having been safe to kill."""

    at: Instant
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TellReleased:
    """Tells the training: these machines went after they were safe to kill."""

    at: Instant
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TellStop:
    """Tells the training: save the model and stop."""

    at: Instant


@dataclass(frozen=True, slots=True)
class StopGivenUp:
    """The controller stops waiting for a training that should have ended by now, for reasons unknown."""

    at: Instant


@dataclass(frozen=True, slots=True)
class TellRestart:
    """Tells the training: all your machines are gone; begin again from the newest whole checkpoint.

    ``number`` counts these commands, this one included. ``in_time``: whether deadline and budget
    can still be kept; None where nothing is promised.
    """

    at: Instant
    number: int
    in_time: bool | None = None


@dataclass(frozen=True, slots=True)
class WakeAt:
    at: Instant
    when: Instant


@dataclass(frozen=True, slots=True)
class Close:
    """Ends the run: nothing is left to wait for."""

    at: Instant
    outcome: RunOutcome
    exit_code: int
    why: str


Tell: TypeAlias = TellJoin | TellWarning | TellLost | TellReleased | TellStop | TellRestart
Command: TypeAlias = Decided | Acquire | Release | Tell | StopGivenUp | WakeAt | Close
Entry: TypeAlias = Fact | Command
