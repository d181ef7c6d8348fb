"""Accounts for a run: what it cost, beside what baseline, and what was lost on the way. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bidbrain.bidding.on_demand_cost import Rental
from pricing_data.model.billing import EndReason
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, MicroUsd
from spotctl.control.billing import CostBreakdown, InstanceBill, cost_so_far, instance_bills
from spotctl.control.entries import RunOutcome
from spotctl.control.state import State
from spotctl.report.baselines import Baselines, run_baselines

_WORK_TOLERANCE: Final = 0.01
"""Share of work beyond what is possible that counts as rounding: bills count whole seconds."""
_WHOLE_S: Final = 1
"""Seconds; moments are whole, so a machine may have lived for one more than the bill says."""


@dataclass(frozen=True, slots=True)
class RunAccount:
    """Holds one run's money, and what the same work would have cost on demand."""

    spending: CostBreakdown
    baselines: Baselines | None
    """None where no work was done that could be compared."""
    bills: tuple[InstanceBill, ...]
    no_savings_reason: str | None = None
    """Why no savings are given: the run has not ended, was of no use or cannot be compared."""
    not_comparable: str | None = None
    """Why even a finished run cannot be compared: it did more work than its billed machines can do."""

    @property
    def baseline(self) -> Rental | None:
        """Returns the cheaper baseline, to which savings are relative."""
        return None if self.baselines is None else self.baselines.rental

    @property
    def savings(self) -> float | None:
        """Returns the share of the cheaper baseline that was not spent; negative where more was."""
        if self.baseline is None or self.no_savings_reason is not None:
            return None
        return saved_share(self.spending.total, self.baseline.cost)


def saved_share(cost: MicroUsd, baseline: MicroUsd) -> float | None:
    """Returns the share of ``baseline`` that was not spent; None where that is nothing."""
    return 1 - cost / baseline if baseline else None


@dataclass(frozen=True, slots=True)
class Eviction:
    """Describes the eviction of one allocation: when it was warned, and how many machines were taken."""

    at: Instant
    market: Market
    machines: int


def list_evictions(state: State) -> Iterator[Eviction]:
    """Yields one eviction per warned allocation; as many as ``State.evicted_allocations`` counts."""
    for allocation in state.allocations.values():
        members = state.instances_of(allocation.name)
        warned = [member.warned_at for member in members if member.warned_at is not None]
        if warned:
            taken = sum(member.end is EndReason.EVICTED for member in members)
            yield Eviction(min(warned), allocation.market, taken)


def build_account(state: State) -> RunAccount:
    """Returns the account of a run, finished or not."""
    baselines, limit = run_baselines(state), not_comparable(state)
    reason = _no_savings_reason(state, baselines) or limit
    return RunAccount(cost_so_far(state), baselines, tuple(instance_bills(state)), reason, limit)


def not_comparable(state: State) -> str | None:
    """Returns why no saving may be claimed: the run did more work than the machines it was billed for can do.

    Machines work at their nominal rate at most: one core-second per core and second, or what was measured of
    their type where decisions go by that. Work beyond that was done without being billed.
    """
    possible = work_possible(state)
    if state.work_done <= (1 + _WORK_TOLERANCE) * possible:
        return None
    return (
        f"{state.work_done:.0f} core-seconds of work were done, but the machines that were billed can do "
        f"{possible:.0f} at most"
    )


def work_possible(state: State) -> float:
    """Returns the core-seconds that all billed machines can do from their start to their end."""
    speeds = state.machine_speeds()
    possible = 0.0
    for instance in state.instances.values():
        if instance.running_at is not None:
            ended = state.now if instance.ended_at is None else instance.ended_at
            market = state.allocations[instance.allocation].market
            rate = max(speeds[market.instance_type], state.terms.market_option(market).nu)
            possible += rate * (max(0, ended - instance.running_at) + _WHOLE_S)
    return possible


def _no_savings_reason(state: State, baselines: Baselines | None) -> str | None:
    """Returns why savings are not given: only finished work could have cost less."""
    closed = state.ending.closed
    if closed is None:
        return "it has not ended"
    if closed.outcome is RunOutcome.FAILED:
        return "it failed"
    if closed.outcome is not RunOutcome.DONE:
        return f"it was {closed.outcome.value}"
    return "it did no work that could be compared" if baselines is None else None


def ended_at(state: State) -> Instant:
    """Returns when a run was over: with its training, or with the last of its machines.

    The run may be closed later, if no process was there.
    """
    if state.training.training_over_at is None:
        return state.now
    ends = (instance.ended_at for instance in state.ended_instances())
    return Instant(max([state.training.training_over_at, *(at for at in ends if at is not None)]))
