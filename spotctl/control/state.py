"""Defines what the core knows: a fold of the ledger, and questions about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from bidbrain.bidding.decision_times import REFUSED_REST_S as REFUSED_REST_S
from bidbrain.cluster.lease import Lease
from bidbrain.deadline.availability_belief import Belief
from bidbrain.eviction.base import Estimates, MarketModel
from bidbrain.model import UNBOUNDED, Decision, Holding
from bidbrain.performance.scaling_fit import MeasuredScaling
from pricing_data.model.billing import EndReason
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import HOUR_S, Instant, MicroUsd, UsdPerHour, seconds_after
from spotctl.control.entries import Close, UserRequest
from spotctl.control.lifecycle import InstanceState
from spotctl.control.run_spec import RunSpec


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


class State(Struct, frozen=True):
    """Holds everything that a decision may depend on. ``history`` has no price later than ``now``."""

    now: Instant
    terms: RunSpec
    history: PriceHistory
    knowledge: MarketKnowledge
    phase: Phase = Phase.STARTING
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)
    deciding: Deciding = Deciding()
    training: TrainingProgress = TrainingProgress()
    programs: ProgramRuns = ProgramRuns()
    recovery: Recovery = Recovery()
    interruptions: Interruptions = Interruptions()
    share: QueueShare = QueueShare()
    ending: Ending = Ending()

    # ---- questions ----------------------------------------------------------------------------

    def instances_of(self, allocation: str) -> tuple[Instance, ...]:
        """Returns the instances of an allocation, in the order they were granted."""
        return tuple(self.instances[name] for name in self.allocations[allocation].instances)

    def with_instances(self, *changed: Instance) -> State:
        """Returns the state with these instances, which replace those of the same names."""
        return replace(self, instances={**self.instances, **{i.name: i for i in changed}})

    def live_instances(self) -> Iterator[Instance]:
        return (instance for instance in self.instances.values() if instance.is_live)

    def ended_instances(self) -> Iterator[Instance]:
        return (instance for instance in self.instances.values() if not instance.is_live)

    def is_reliable(self, instance: Instance) -> bool:
        return self.allocations[instance.allocation].reliable

    def cores_of(self, instance: Instance) -> int:
        return self.terms.market_option(self.allocations[instance.allocation].market).cores

    def reliable_missing(self) -> int:
        """Counts the reliable machines that neither exist nor are requested."""
        mine = [allocation for allocation in self.allocations.values() if allocation.reliable]
        there = sum(1 for allocation in mine for i in self.instances_of(allocation.name) if i.is_live)
        # Unanswered requests count too, so that a slow provider is not asked twice.
        asked = sum(allocation.count for allocation in mine if allocation.awaits_answer)
        return max(self.terms.reliable_count - there - asked, 0)

    def machine_speeds(self) -> Mapping[str, float]:
        """Returns nu, work per second of one machine, by instance type: its cores, or what was measured."""
        if self.trusted_measurements is not None:
            return {name: speed.value for name, speed in self.trusted_measurements.fit_speeds().items()}
        tradables = (*self.terms.spot, self.terms.reliable)
        return {tradable.market.instance_type: tradable.nu for tradable in tradables}

    def guaranteed_speeds(self) -> Mapping[str, float]:
        """Returns the speeds that a promise may rest on."""
        return (
            self.machine_speeds()
            if self.trusted_measurements is None
            else self.trusted_measurements.safe_speeds()
        )

    @property
    def trusted_measurements(self) -> MeasuredScaling | None:
        """Returns the measurements that the job's decisions go by; None where its file settles them all."""
        return self.knowledge.measured if self.terms.measure else None

    def hour_ends(self, allocation: Allocation) -> Instant:
        """Returns the end of the hour the allocation is in, counted from its start.

        While nothing runs that is an hour from now. Where seconds are billed an hour is no unit of money, but
        allocations are still held by the hour.
        """
        started = [i.running_at for i in self.instances_of(allocation.name) if i.running_at is not None]
        if not started:
            return Instant(self.now + HOUR_S)
        first = min(started)
        return Instant(first + ((self.now - first) // HOUR_S + 1) * HOUR_S)

    def held_until(self, allocation: Allocation) -> Instant:
        """Returns ``hour_ends``, and an hour more once the next hour has been decided for."""
        ends = self.hour_ends(allocation)
        # ``renewed_until`` names the hour that was decided about: an old decision must not prolong a later
        # hour.
        return Instant(ends + HOUR_S) if allocation.renewed_until == ends else ends

    def locked_price(self, allocation: Allocation) -> UsdPerHour:
        """Returns the price of its current billing hour: the spot price when it began, or the list price."""
        if allocation.on_demand:
            return self.terms.market_option(allocation.market).on_demand
        at = Instant(min(self.hour_ends(allocation) - HOUR_S, self.now))
        price = self.history.price(allocation.market, at)
        if price is None:
            raise ValueError(f"no price of {allocation.market} is known at {at}")
        return price

    def refused_lately(self, market: Market) -> bool:
        """Tells whether ``market`` refused machines a moment ago: asking again at once helps nobody."""
        return any(
            a.market == market and a.bid is not None and self.now < a.requested_at + REFUSED_REST_S
            for a in self.allocations.values()
            if a.refused is not None
        )

    def current_footprint(self) -> tuple[Holding, ...]:
        """Returns the footprint beside the reliable machines as BidBrain sees it: requested or running,
        staying.
        """
        found = []
        speeds = self.machine_speeds() if self.allocations else {}
        for allocation in self.allocations.values():
            if allocation.reliable or allocation.refused is not None:
                continue
            staying = [i for name in allocation.instances if (i := self.instances[name]).is_staying]
            counts_for = allocation.count if allocation.awaits_answer else len(staying)
            if counts_for:
                found.append(
                    Holding(
                        id=allocation.name,
                        market=allocation.market,
                        count=allocation.count,
                        cores=speeds[allocation.market.instance_type],
                        bid=allocation.bid if allocation.bid is not None else UNBOUNDED,
                        price=self.locked_price(allocation),
                        hour_ends=self.held_until(allocation),
                        counts_for=counts_for,
                        started=staying[0].running_at if staying else None,
                        on_demand=allocation.on_demand,
                    )
                )
        return tuple(found)

    def surplus_allocation(self) -> Holding | None:
        """Returns the youngest spot allocation that exceeds the lease, or None where the lease covers all."""
        if self.terms.queued is None:
            return None
        held = [
            h
            for h in self.current_footprint()
            if not h.on_demand and not self.allocations[h.id].awaits_answer
        ]
        lease = self.share.lease
        outside = [h for h in held if lease is None or h.market not in lease.markets]
        if outside:
            return outside[-1]
        too_many = lease is not None and sum(h.counts_for for h in held) > lease.count
        return held[-1] if too_many else None

    @property
    def leaving_spot_count(self) -> int:
        """Counts spot machines of its lease's markets that are on their way out, and not gone yet."""
        markets = () if self.share.lease is None else self.share.lease.markets
        mine = {a.name for a in self.allocations.values() if not a.on_demand and a.market in markets}
        return sum(1 for i in self.live_instances() if i.allocation in mine and not i.is_staying)

    @property
    def rented_count(self) -> int:
        """Counts machines on demand beside the reliable ones, those on their way out included."""
        mine = {a.name for a in self.allocations.values() if a.on_demand and not a.reliable}
        return sum(1 for i in self.live_instances() if i.allocation in mine)

    @property
    def end_time_unknown(self) -> bool:
        """Tells whether training ended while spotctl was down, and nothing shows when."""
        shows = self.interruptions.away is not None and self.interruptions.away.over_at is not None
        return (
            self.training.training_over_at is not None
            and self.training.training_over_at == self.interruptions.blind_until
            and not shows
        )

    @property
    def is_parked(self) -> bool:
        """Tells whether a queue gives it nothing to decide about: no lease, no promise."""
        queued = self.terms.queued
        return queued is not None and not queued.promised and self.share.lease is None

    @property
    def budget(self) -> MicroUsd | None:
        """Returns what it may spend: its own budget, or what is left of the queue's for it; None: no
        limit.
        """
        limits = [limit for limit in (self.terms.budget, self.share.allowance) if limit is not None]
        return min(limits, default=None)

    def working_instances(self) -> Iterator[Instance]:
        """Yields the machines that compute now: joined, and not leaving; in stage 3 without the reliable
        ones.
        """
        if self.phase not in (Phase.TRAINING, Phase.STOPPING):
            return
        for instance in self.live_instances():
            idle = self.training.stage == 3 and self.is_reliable(instance)
            if instance.joined and not (instance.safe or instance.given_up or idle):
                yield instance

    def working_by_type(self) -> Counter[str]:
        """Counts the machines that compute now, by instance type."""
        return Counter(self.allocations[i.allocation].market.instance_type for i in self.working_instances())

    @property
    def checkpoint_clock(self) -> int:
        """Returns the clock of the newest stored state, as far as is known; 0 where it would begin anew."""
        return self.recovery.resumed_from if self.recovery.checkpoint is None else self.recovery.checkpoint[0]

    @property
    def keeps_nothing(self) -> bool:
        """Tells whether a program begins anew on every machine.

        Its file says so; or it ran for longer than the checkpoint interval before it began again, and never
        stored one.
        """
        if self.terms.keeps_nothing or not self.terms.engine.relies_on_checkpoints:
            return self.terms.keeps_nothing
        return (
            self.training.consistent == 0
            and self.programs.seconds_redone > self.terms.checkpointing.interval_s
        )

    @property
    def end_by(self) -> Instant | None:
        """Returns how long to wait for a training that should end; time that spotctl was down does not
        count.
        """
        if self.training.ending_at is None or self.phase not in (Phase.TRAINING, Phase.STOPPING):
            return None
        since = (
            self.training.ending_at
            if self.interruptions.blind_until is None
            else max(self.training.ending_at, self.interruptions.blind_until)
        )
        return seconds_after(since, self.terms.end_within_s)

    @property
    def work_done(self) -> float:
        """Returns core-seconds of this run, at the nominal work of a clock."""
        return max(0, self.training.clock - self.recovery.resumed_from) * self.terms.core_seconds_per_clock

    @property
    def work_left(self) -> float | None:
        """Returns core-seconds to go; None where the job does not end by clocks."""
        clocks = self.terms.stop.clocks
        return (
            None
            if clocks is None
            else max(0, clocks - self.training.clock) * self.terms.core_seconds_per_clock
        )
