"""Defines what the core knows: a fold of the ledger, and questions about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from bidbrain.bidding.decision_times import REFUSED_REST_S as REFUSED_REST_S
from bidbrain.model import UNBOUNDED, Holding
from bidbrain.performance.scaling_fit import MeasuredScaling
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import HOUR_S, Instant, MicroUsd, UsdPerHour, seconds_after
from spotctl.control.run_spec import RunSpec
from spotctl.control.state_values import (
    Allocation,
    Deciding,
    Ending,
    Instance,
    Interruptions,
    MarketKnowledge,
    Phase,
    ProgramRuns,
    QueueShare,
    Recovery,
    TrainingProgress,
)


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
        return self.knowledge.measured if self.terms.work.measure else None

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
        limits = [limit for limit in (self.terms.objective.budget, self.share.allowance) if limit is not None]
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
        if self.terms.recovery.keeps_nothing or not self.terms.engine.relies_on_checkpoints:
            return self.terms.recovery.keeps_nothing
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
        return (
            max(0, self.training.clock - self.recovery.resumed_from) * self.terms.work.core_seconds_per_clock
        )

    @property
    def work_left(self) -> float | None:
        """Returns core-seconds to go; None where the job does not end by clocks."""
        clocks = self.terms.work.stop.clocks
        return (
            None
            if clocks is None
            else max(0, clocks - self.training.clock) * self.terms.work.core_seconds_per_clock
        )
