"""Defines the parts of a run's state: machines, progress, losses, decisions, ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field

from bidbrain.bidding.decision_times import REFUSED_REST_S
from bidbrain.cluster.lease import Lease
from bidbrain.deadline.availability_belief import Belief
from bidbrain.eviction.base import Estimates, MarketModel
from bidbrain.model import Decision, Holding
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
    """Lost its last reliable machine; releases the others, then training restarts from a checkpoint."""
    STOPPING = "stopping"
    """Training saves its model, because it was told to stop."""
    CLOSING = "closing"
    """Training is over, finished or failed; machines are being released."""
    CLOSED = "closed"


class Instance(Struct, frozen=True):
    """Represents one machine, from grant to end."""

    name: str
    allocation: str
    life: InstanceState = InstanceState.PENDING
    running_at: Instant | None = None
    warned_at: Instant | None = None
    ends_at: Instant | None = None
    """When it will end: the provider warned of its eviction, or its renewal was declined. None: it stays."""
    ended_at: Instant | None = None
    end: EndReason | None = None
    told_join: bool = False
    told_warning: bool = False
    told_gone: bool = False
    joined: bool = False
    joined_at: Instant | None = None
    safe: bool = False
    given_up: bool = False
    """Training gave it up, because it hangs or cannot run the job."""

    @property
    def is_live(self) -> bool:
        return self.life is not InstanceState.ENDED

    @property
    def is_staying(self) -> bool:
        """Tells whether it is neither warned nor leaving."""
        return self.ends_at is None and self.life in (InstanceState.PENDING, InstanceState.RUNNING)


class Allocation(Struct, frozen=True):
    """Groups instances of one market, requested together at one bid (None: on-demand)."""

    name: str
    market: Market
    count: int
    bid: UsdPerHour | None
    requested_at: Instant
    """When the provider received the request, as far as is known: after a crash it is sent again, later."""
    instances: tuple[str, ...] = ()
    refused: str | None = None
    renewed_until: Instant | None = None
    """The end of the billing hour for which renewal has been decided."""
    beta: float | None = None
    """Eviction probability within its first hour, as estimated at the request."""
    reliable: bool = False

    @property
    def on_demand(self) -> bool:
        """Tells whether its machines are irrevocable, at the list price."""
        return self.bid is None

    @property
    def awaits_answer(self) -> bool:
        """Tells whether the provider has neither granted nor refused it yet."""
        return not self.instances and self.refused is None

    @property
    def rests_until(self) -> Instant | None:
        """Returns when its market may receive another request; None unless the provider refused this one."""
        return None if self.refused is None else Instant(self.requested_at + REFUSED_REST_S)


class CheckpointTransfer(Struct, frozen=True):
    """Records that a checkpoint left a region, and the egress owed to the cloud it left."""

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
    """A checkpoint holds all its work up to this moment. Without one, the moment it began."""
    told_at: Instant | None = None
    """When it received the order to stop."""
    stopped_at: Instant | None = None
    """When it stopped working; None while it runs."""


class Downtime(Struct, frozen=True):
    """Describes the last period in which no spotctl drove the run."""

    since: Instant
    worked: Mapping[str, int]
    """``TrainingProgress.worked`` when it began."""
    over_at: Instant | None
    """When training finished during it; None where it did not, or where that is unknown."""
    lapsed_at: Instant | None = None
    """When machines ended themselves because nothing had driven them for a lease; None where none did."""


class MarketKnowledge(Struct, frozen=True):
    """Holds estimates about markets and about the job's scaling, with the data behind them."""

    estimator: MarketModel
    """The model that ``evictions`` is fitted by, at ``fitted_at``."""
    evictions: Estimates
    fitted_at: Instant
    capacity: Observations
    """Observations of capacity from before the start."""
    measured: MeasuredScaling | None
    """How the job scales, as measured while it runs; None where nothing uses it."""
    belief: Belief | None = None
    """What a job with a deadline has learned of spot capacity; None without one."""


class Deciding(Struct, frozen=True):
    """Holds the last decision, and when the next one is due."""

    alarm: Instant | None = None
    last_decision: Decision | None = None
    decisions: int = 0
    decide_from: Instant | None = None
    """When the next acquisition may be considered; None before the reliable machines take part."""


class TrainingProgress(Struct, frozen=True):
    """Holds the progress of training: stage, clocks, objective, and when it began and ended."""

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
    """Since when training should be ending: it was told to stop, or finished its last clock."""
    stop_given_up: bool = False
    training_over_at: Instant | None = None
    """When training ended. An upper bound, if it ended while spotctl was down and nothing shows when."""


class ProgramRuns(Struct, frozen=True):
    """Holds the starts of a command job's program, and where its newest checkpoint is."""

    program: ProgramRun | None = None
    """The newest start; None before the first."""
    program_starts: int = 0
    seconds_redone: int = 0
    """Seconds of work that later starts had to repeat, because no checkpoint held it."""
    checkpoint_at: Market | None = None
    """Market where the newest checkpoint was written; None before the first."""
    checkpoint_bytes: int | None = None
    fetched: tuple[CheckpointTransfer, ...] = ()


class Recovery(Struct, frozen=True):
    """Counts losses, and holds the checkpoint from which training continues after one."""

    evicted_allocations: int = 0
    failures: int = 0
    resumed_from: int = 0
    """The clock that an earlier run had reached, where this one continues its work; else 0."""
    checkpoint: tuple[int, str] | None = None
    """Clock and folder of the newest stored state of an elastic job."""
    restarts: int = 0
    """How many times training restarted from a checkpoint within this run."""
    restarted_at: Instant | None = None
    restarted_from: int = 0
    """The clock from which it last restarted."""
    in_vain: int = 0
    """Restarts in a row, after faults, that reached no newer checkpoint."""
    taken_in_vain: int = 0
    """The same, for restarts after the provider took the reliable machines, which ran on spot."""

    @property
    def checkpoint_clock(self) -> int:
        """Returns the clock of the newest known checkpoint; without one, the clock the run began with."""
        return self.resumed_from if self.checkpoint is None else self.checkpoint[0]


class Interruptions(Struct, frozen=True):
    """Holds when spotctl was down, and for how long nominal time stood still."""

    blind_until: Instant | None = None
    """End of spotctl's last downtime: no decision could follow in time on what happened before."""
    away: Downtime | None = None
    held: Mapping[Instant, float] = field(default_factory=dict)
    """Real seconds for which nominal time stood still, by the nominal moment. No decision reads them."""

    def is_blind_at(self, now: Instant) -> bool:
        """Tells whether facts from the last downtime are still being folded at ``now``."""
        return self.blind_until is not None and now < self.blind_until


class QueueShare(Struct, frozen=True):
    """Holds the share of a queue's machines and money that the job may use."""

    lease: Lease | None = None
    """The spot machines that it may hold; None: none of a queue's, or no queue runs it."""
    allowance: MicroUsd | None = None
    """The most of the queue's money that it may spend; None: no budget limits it."""

    def find_surplus(self, spot: Sequence[Holding]) -> Holding | None:
        """Returns the youngest of the ``spot`` allocations that exceeds the lease; None where all fit it."""
        outside = [h for h in spot if self.lease is None or h.market not in self.lease.markets]
        if outside:
            return outside[-1]
        too_many = self.lease is not None and sum(h.counts_for for h in spot) > self.lease.count
        return spot[-1] if too_many else None


class Ending(Struct, frozen=True):
    """Holds why and how the run ends."""

    asked: UserRequest | None = None
    failure: str | None = None
    model: str | None = None
    closed: Close | None = None
