"""Defines the state of a run: the fold of its ledger, and the questions that rules ask of it.

Questions that one part of the state answers alone are methods of that part, in ``state_values.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from bidbrain.model import UNBOUNDED, Holding
from bidbrain.performance.scaling_fit import MeasuredScaling
from pricing_data.model.market import PriceHistory
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
    """Holds everything that a decision may depend on, and nothing later than ``now``."""

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

    def instances_of(self, allocation: str) -> tuple[Instance, ...]:
        """Returns the instances of an allocation, in the order they were granted."""
        return tuple(self.instances[name] for name in self.allocations[allocation].instances)

    def with_instances(self, *changed: Instance) -> State:
        """Returns the state with ``changed`` in place of the instances of the same names."""
        return replace(self, instances={**self.instances, **{i.name: i for i in changed}})

    def live_instances(self) -> Iterator[Instance]:
        return (instance for instance in self.instances.values() if instance.is_live)

    def ended_instances(self) -> Iterator[Instance]:
        return (instance for instance in self.instances.values() if not instance.is_live)

    def is_reliable(self, instance: Instance) -> bool:
        return self.allocations[instance.allocation].reliable

    def reliable_missing(self) -> int:
        """Counts the reliable machines that neither exist nor are requested."""
        mine = [allocation for allocation in self.allocations.values() if allocation.reliable]
        there = sum(1 for allocation in mine for i in self.instances_of(allocation.name) if i.is_live)
        # Unanswered requests count too, or a slow provider would receive a second one.
        asked = sum(allocation.count for allocation in mine if allocation.awaits_answer)
        return max(self.terms.reliable_count - there - asked, 0)

    def machine_speeds(self) -> Mapping[str, float]:
        """Returns nu by instance type: a machine's core-seconds of work per second, measured or nominal."""
        if self.trusted_measurements is not None:
            return {name: speed.value for name, speed in self.trusted_measurements.fit_speeds().items()}
        tradables = (*self.terms.spot, self.terms.reliable)
        return {tradable.market.instance_type: tradable.nu for tradable in tradables}

    @property
    def trusted_measurements(self) -> MeasuredScaling | None:
        """Returns the measurements that decisions use; None where the job file gives all values itself."""
        return self.knowledge.measured if self.terms.work.measure else None

    def hour_ends(self, allocation: Allocation) -> Instant:
        """Returns the end of the allocation's current hour, counted from its start.

        Before the start, an hour from now. Where seconds are billed this hour has no price, but decisions
        still renew allocations by the hour.
        """
        started = [i.running_at for i in self.instances_of(allocation.name) if i.running_at is not None]
        if not started:
            return Instant(self.now + HOUR_S)
        first = min(started)
        return Instant(first + ((self.now - first) // HOUR_S + 1) * HOUR_S)

    def held_until(self, allocation: Allocation) -> Instant:
        """Returns ``hour_ends``, or an hour later once that hour's renewal has been decided."""
        ends = self.hour_ends(allocation)
        # ``renewed_until`` names the hour that the decision was about: it must not prolong a later one.
        return Instant(ends + HOUR_S) if allocation.renewed_until == ends else ends

    def locked_price(self, allocation: Allocation) -> UsdPerHour:
        """Returns the price of the current hour: the list price, or the spot price when the hour began."""
        if allocation.on_demand:
            return self.terms.market_option(allocation.market).on_demand
        at = Instant(min(self.hour_ends(allocation) - HOUR_S, self.now))
        price = self.history.price(allocation.market, at)
        if price is None:
            raise ValueError(f"no price of {allocation.market} is known at {at}")
        return price

    def current_footprint(self) -> tuple[Holding, ...]:
        """Returns the allocations as BidBrain sees them: requested or running, without the reliable machines.

        Only machines that stay count; an allocation without any is left out.
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
        """Returns the youngest spot allocation that exceeds a queue's lease; None where all fit it."""
        if self.terms.queued is None:
            return None
        footprint = self.current_footprint()
        # A request without an answer has no machines yet that could be returned.
        return self.share.find_surplus(
            [h for h in footprint if not h.on_demand and not self.allocations[h.id].awaits_answer]
        )

    @property
    def leaving_spot_count(self) -> int:
        """Counts spot machines in the lease's markets that are leaving but still live."""
        markets = () if self.share.lease is None else self.share.lease.markets
        mine = {a.name for a in self.allocations.values() if not a.on_demand and a.market in markets}
        return sum(1 for i in self.live_instances() if i.allocation in mine and not i.is_staying)

    @property
    def rented_count(self) -> int:
        """Counts on-demand machines that are not reliable ones, including those that are leaving."""
        mine = {a.name for a in self.allocations.values() if a.on_demand and not a.reliable}
        return sum(1 for i in self.live_instances() if i.allocation in mine)

    @property
    def end_time_unknown(self) -> bool:
        """Tells whether training ended while spotctl was down and nothing shows when."""
        shows = self.interruptions.away is not None and self.interruptions.away.over_at is not None
        return (
            self.training.training_over_at is not None
            and self.training.training_over_at == self.interruptions.blind_until
            and not shows
        )

    @property
    def is_parked(self) -> bool:
        """Tells whether a queue gives the job nothing to decide about: neither a lease nor a promise."""
        queued = self.terms.queued
        return queued is not None and not queued.promised and self.share.lease is None

    @property
    def budget(self) -> MicroUsd | None:
        """Returns the most it may spend, by its own budget and its allowance in a queue; None: no limit."""
        limits = [limit for limit in (self.terms.objective.budget, self.share.allowance) if limit is not None]
        return min(limits, default=None)

    def working_instances(self) -> Iterator[Instance]:
        """Yields the machines that compute now."""
        if self.phase not in (Phase.TRAINING, Phase.STOPPING):
            return
        for instance in self.live_instances():
            # In stage 3 the reliable machines hold backups and compute nothing (Harlap 4.2.2).
            idle = self.training.stage == 3 and self.is_reliable(instance)
            if instance.joined and not (instance.safe or instance.given_up or idle):
                yield instance

    def working_by_type(self) -> Counter[str]:
        """Counts the machines that compute now, by instance type."""
        return Counter(self.allocations[i.allocation].market.instance_type for i in self.working_instances())

    @property
    def keeps_nothing(self) -> bool:
        """Tells whether a program starts from nothing on every machine."""
        if self.terms.recovery.keeps_nothing or not self.terms.engine.relies_on_checkpoints:
            return self.terms.recovery.keeps_nothing
        # Its file promises checkpoints, but it lost more than an interval's work and has never stored one.
        return (
            self.training.consistent == 0
            and self.programs.seconds_redone > self.terms.checkpointing.interval_s
        )

    @property
    def end_by(self) -> Instant | None:
        """Returns until when to wait for training to end; None while it should not end."""
        if self.training.ending_at is None or self.phase not in (Phase.TRAINING, Phase.STOPPING):
            return None
        # The wait begins anew after a downtime: only a running spotctl hears that training has ended.
        since = (
            self.training.ending_at
            if self.interruptions.blind_until is None
            else max(self.training.ending_at, self.interruptions.blind_until)
        )
        return seconds_after(since, self.terms.end_within_s)

    @property
    def work_done(self) -> float:
        """Returns the core-seconds of work that this run has done, at the nominal work of a clock."""
        clocks = max(0, self.training.clock - self.recovery.resumed_from)
        return clocks * self.terms.work.core_seconds_per_clock

    @property
    def work_left(self) -> float | None:
        """Returns the core-seconds of work left; None where the job does not end by clocks."""
        clocks = self.terms.work.stop.clocks
        if clocks is None:
            return None
        return max(0, clocks - self.training.clock) * self.terms.work.core_seconds_per_clock
