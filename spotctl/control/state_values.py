"""Values that the state of a run is made of: machines, progress, losses, decisions, ends."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from bidbrain.bidding.decision_times import REFUSED_REST_S as REFUSED_REST_S
from bidbrain.cluster.lease import Lease
from bidbrain.deadline.availability_belief import Belief
from bidbrain.eviction.base import Estimates, MarketModel
from bidbrain.model import Decision
from bidbrain.performance.scaling_fit import MeasuredScaling
from pricing_data.model.billing import EndReason
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, MicroUsd, UsdPerHour
from spotctl.control.entries import Close, UserRequest
from spotctl.control.lifecycle import InstanceState


class Phase(StrEnum):
    STARTING = "starting"
    """Waits for its first machines (the reliable ones, where the job has some); nothing trains yet."""
    TRAINING = "training"
    RESTARTING = "restarting"
    """Lost its last reliable machine: releases the others, to begin again from a checkpoint."""
    STOPPING = "stopping"
    """Saves the model, because somebody asked for a stop."""
    CLOSING = "closing"
    """Training is over, one way or the other; machines are being released."""
    CLOSED = "closed"


class Instance(Struct, frozen=True):
    """Represents one machine, from grant to end."""

    name: str
    allocation: str
    life: InstanceState = InstanceState.PENDING
    running_at: Instant | None = None
    warned_at: Instant | None = None
    ends_at: Instant | None = None
    """When it will end, once the provider warned of its eviction or we are retiring it."""
    ended_at: Instant | None = None
    end: EndReason | None = None
    told_join: bool = False
    told_warning: bool = False
    told_gone: bool = False
    joined: bool = False
    joined_at: Instant | None = None
    safe: bool = False
    given_up: bool = False
    """The training gave it up: it hangs, or cannot run the job, and is of no more use."""

    @property
    def is_live(self) -> bool:
        return self.life is not InstanceState.ENDED

    @property
    def is_staying(self) -> bool:
        """Tells whether it is neither warned nor on its way out."""
        return self.ends_at is None and self.life in (InstanceState.PENDING, InstanceState.RUNNING)


class Allocation(Struct, frozen=True):
    """Groups instances of one market, requested together at one bid (None: on-demand)."""

    name: str
    market: Market
    count: int
    bid: UsdPerHour | None
    requested_at: Instant
    """When the provider was asked, as far as is known; after a crash the controller asks again, later."""
    instances: tuple[str, ...] = ()
    refused: str | None = None
    renewed_until: Instant | None = None
    """The end of the billing hour for which renewal has been decided."""
    beta: float | None = None
    """Eviction probability within its first hour, as estimated at the request."""
    reliable: bool = False

    @property
    def on_demand(self) -> bool:
        """Tells whether it is not revocable, at the list price."""
        return self.bid is None

    @property
    def awaits_answer(self) -> bool:
        """Tells whether the provider has neither granted nor refused it yet, so that its machines would be
        nobody's.
        """
        return not self.instances and self.refused is None


class CheckpointTransfer(Struct, frozen=True):
    """Records a checkpoint that left a region, and the egress owed to the cloud it left."""

    at: Instant
    instance: str
    size_bytes: int
    here: Market
    """The market where it was written."""
    there: Market
    owed: MicroUsd


class ProgramRun(Struct, frozen=True):
    """Describes the newest start of a command's program."""

    instance: str
    kept_at: Instant
    """Up to this moment a checkpoint holds all that it did; at first, the moment it began."""
    told_at: Instant | None = None
    """When it was told to stop."""
    stopped_at: Instant | None = None
    """When it stopped working; None while it runs."""


class Downtime(Struct, frozen=True):
    """Describes the last time that no controller was there to act on what happened."""

    since: Instant
    worked: Mapping[str, int]
    """``State.worked`` at its beginning."""
    over_at: Instant | None
    """When the training finished meanwhile; None where it did not, or that is unknown."""
    lapsed_at: Instant | None = None
    """When machines ended themselves because no controller drove them; None where none did."""


class MarketKnowledge(Struct, frozen=True):
    """Holds what is known of markets and of how the job scales: fitted estimates, and what they rest on."""

    estimator: MarketModel
    """Estimates evictions; refitted as time goes by."""
    evictions: Estimates
    fitted_at: Instant
    capacity: Observations
    """Observations of capacity from before the start."""
    measured: MeasuredScaling | None
    """How the job scales, as measured while it runs; None where nothing uses it."""
    belief: Belief | None = None
    """What the job has learned of spot capacity, where it has a deadline to keep."""


class Deciding(Struct, frozen=True):
    """Holds the last decision, and when the next one is due."""

    alarm: Instant | None = None
    last_decision: Decision | None = None
    decisions: int = 0
    decide_from: Instant | None = None
    """When the next acquisition may be considered; None before the reliable machines take part."""


class TrainingProgress(Struct, frozen=True):
    """Holds how far the training is: stage, clocks, objective, and when it began and ended."""

    stage: int = 1
    stage_transitions: int = 0
    clock: int = 0
    consistent: int = 0
    objective: float | None = None
    objective_clock: int = 0
    objective_settled: bool = False
    clocks_redone: int = 0
    worked: Mapping[str, int] = field(default_factory=dict)
    """Machine-seconds of machines that computed, by instance type."""
    training_started_at: Instant | None = None
    ending_at: Instant | None = None
    """Since when the training should end: it was told to stop, or its last clock is done."""
    stop_given_up: bool = False
    training_over_at: Instant | None = None
    """The latest possible moment, where the end was heard of afterwards and nothing shows when it was."""


class ProgramRuns(Struct, frozen=True):
    """Holds how far a command's program is, and where its newest checkpoint is."""

    program: ProgramRun | None = None
    """The program of a command job; None before its first start."""
    program_starts: int = 0
    seconds_redone: int = 0
    """Seconds that programs ran for and had to repeat, because they began again without that work."""
    checkpoint_at: Market | None = None
    """Market where the newest checkpoint was written; None before the first."""
    checkpoint_bytes: int | None = None
    fetched: tuple[CheckpointTransfer, ...] = ()


class Recovery(Struct, frozen=True):
    """Counts losses, and holds what the training goes on from after one."""

    evicted_allocations: int = 0
    failures: int = 0
    resumed_from: int = 0
    """The clock that an earlier run had reached."""
    checkpoint: tuple[int, str] | None = None
    """Clock and folder of the newest stored state of an elastic job."""
    restarts: int = 0
    """How many times the training began again from a checkpoint within this run."""
    restarted_at: Instant | None = None
    restarted_from: int = 0
    """The clock from which it last began again."""
    in_vain: int = 0
    """Restarts in a row, after faults, that reached no newer checkpoint."""
    taken_in_vain: int = 0
    """The same, for restarts after the provider took the reliable machines, which ran on spot."""


class Interruptions(Struct, frozen=True):
    """Holds when spotctl was away, and for how long nominal time stood still."""

    blind_until: Instant | None = None
    """End of the last time spotctl was down: nothing before it can be acted upon in time."""
    away: Downtime | None = None
    held: Mapping[Instant, float] = field(default_factory=dict)
    """Real seconds for which nominal time stood still, by the nominal moment. No decision reads them."""


class QueueShare(Struct, frozen=True):
    """Holds what a queue lets the job have."""

    lease: Lease | None = None
    """The spot machines that the queue lets it hold, where a queue runs it."""
    allowance: MicroUsd | None = None
    """The most of the queue's money that it may spend; None: no budget is counted."""


class Ending(Struct, frozen=True):
    """Holds why and how the run ends."""

    asked: UserRequest | None = None
    failure: str | None = None
    model: str | None = None
    closed: Close | None = None
