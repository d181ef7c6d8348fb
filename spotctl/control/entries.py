"""Defines the entries of the ledger: facts (what happened) and commands (what should happen).

Rule 1: a recorded command is a fact. It is folded the moment it is made, so nothing is requested twice, and a
crash between recording and executing leaves evidence.
Rule 2: every entry carries the nominal time ``at``, which passes faster than real time in a local run. Only
``Stalled`` holds real seconds, and no decision reads them.
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
    """Names the requests that a user may make about a running job."""

    CANCEL = "cancel"
    """End gracefully: save the model, then release the machines."""
    DOWN = "down"
    """Release the machines now."""


class RunOutcome(StrEnum):
    """Classifies how a run ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TAKEN_DOWN = "taken down"


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """Holds what every entry has. Unknown fields in a record are an error, not ignored."""

    at: Instant


# ---- facts ------------------------------------------------------------------------------------


class JobStarted(_Entry, frozen=True):
    terms: RunSpec


class PriceChanged(_Entry, frozen=True):
    market: Market
    price: UsdPerHour


class Woke(_Entry, frozen=True):
    """The moment of the newest ``WakeAt`` has come."""


class Granted(_Entry, frozen=True):
    """The provider granted the allocation: its instances exist from now on, but do not run yet."""

    allocation: str
    instances: tuple[str, ...]


class Refused(_Entry, frozen=True):
    """The provider refused the allocation; the next decision may choose another market."""

    allocation: str
    error: str
    """Class name of the provider's error, from ``spotctl.errors``."""
    detail: str


class InstancesRunning(_Entry, frozen=True):
    """These instances run: their billing starts."""

    instances: tuple[str, ...]


class EvictionWarned(_Entry, frozen=True):
    """The provider will take these instances at ``ends_at``; a warning is never withdrawn."""

    instances: tuple[str, ...]
    ends_at: Instant


class EvictionNoticed(_Entry, frozen=True):
    """The instance itself reports that it will be taken at ``ends_at``; its provider may report the same."""

    instance: str
    ends_at: Instant


class InstancesEnded(_Entry, frozen=True):
    """These instances are gone: their billing ends."""

    instances: tuple[str, ...]
    end: EndReason


class MachineJoined(_Entry, frozen=True):
    """The instance takes part in training."""

    instance: str


class MachineGivenUp(_Entry, frozen=True):
    """Training gave the instance up while it still lives: it hangs, or cannot run the job."""

    instance: str


class ControllerSilent(_Entry, frozen=True):
    """The controller of training is silent, and so is ``instance``, which runs it."""

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
    """``instance`` wrote the newest checkpoint; recorded only when instance or size change."""

    instance: str
    clock: int
    size_bytes: int


class CheckpointFetched(_Entry, frozen=True):
    """``instance`` fetched the checkpoint that ``stored_by`` wrote; out of a region this costs egress."""

    instance: str
    stored_by: str
    clock: int
    size_bytes: int


class Checkpointed(_Entry, frozen=True):
    """``folder`` holds the whole state at ``clock``: a later run can resume from it."""

    clock: int
    folder: str


class CheckpointFailed(_Entry, frozen=True):
    """The state at ``clock`` could not be stored, or a finished job's checkpoints could not be removed."""

    clock: int
    why: str


class TrainingResumed(_Entry, frozen=True):
    """Training continues after ``clock``, from a checkpoint of an earlier run or, in a restart, of this one.

    ``folder``: where the checkpoint is; empty if training restarts before its first one, from nothing.
    """

    clock: int
    folder: str


class ObjectiveReported(_Entry, frozen=True):
    """The application's objective after ``clock``, in the unit of its metric."""

    clock: int
    value: float


class StageEntered(_Entry, frozen=True):
    stage: int


class RolledBack(_Entry, frozen=True):
    """Training went back to clock ``to``; it repeats ``redone`` completed clocks."""

    to: int
    redone: int


class TrainingFinished(_Entry, frozen=True):
    clock: int
    model: str


class TrainingFailed(_Entry, frozen=True):
    why: str


class ControllerDown(_Entry, frozen=True):
    """spotctl was down from ``at`` to ``until``: it reacted to nothing that happened in between.

    ``over_at``: when training finished meanwhile; None where it did not, or nothing shows when.
    ``lapsed_at``: when machines ended themselves after a lease without spotctl; None where none did.
    """

    until: Instant
    over_at: Instant | None = None
    lapsed_at: Instant | None = None


class Asked(_Entry, frozen=True):
    ask: UserRequest


class Leased(_Entry, frozen=True):
    """The queue that runs the job granted it a lease, or took it back (None).

    ``allowance``: the most that it may spend, including what it has spent; None: no budget limits it.
    """

    lease: Lease | None
    allowance: MicroUsd | None = None


class Stalled(_Entry, frozen=True):
    """Nominal time waited for a real effect. ``done``: the effect came before its floor ran out."""

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
    """Records a decision of BidBrain and the candidates behind it; its effects are commands of their own."""

    decision: Decision
    spot_up: bool | None = None
    """Whether spot machines were available; None unless a deadline strategy observed that."""


class Acquire(_Entry, frozen=True):
    """Requests instances from the provider. ``allocation``: the idempotency token. ``bid`` None: on demand.

    ``reliable``: they belong to the tier that holds the model and is never given up. Other on-demand machines
    only compute, until a decision ends them.
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
    """Tells training that these machines have joined it."""

    instances: tuple[str, ...]
    reliable: bool
    cores: int
    market: Market | None = None
    """Where they are; only needed by training whose checkpoints may leave a region."""


class TellWarning(_Entry, frozen=True):
    """Tells training that these machines go at ``ends_at``: it should make them safe to kill."""

    instances: tuple[str, ...]
    ends_at: Instant


class TellLost(_Entry, frozen=True):
    """Tells training that these machines are gone and were not safe to kill."""

    instances: tuple[str, ...]


class TellReleased(_Entry, frozen=True):
    """Tells training that these machines are gone, after they were safe to kill."""

    instances: tuple[str, ...]


class TellStop(_Entry, frozen=True):
    """Tells training to save the model and stop."""


class StopGivenUp(_Entry, frozen=True):
    """Stops waiting for training that should have ended by now, for reasons unknown."""


class TellRestart(_Entry, frozen=True):
    """Tells training that all its machines are gone, and to restart from the newest whole checkpoint.

    ``number`` counts these commands, this one included. ``in_time``: whether deadline and budget
    can still be kept; None where none is promised.
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
