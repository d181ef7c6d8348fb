"""Computes what a run owes so far: settles every instance by the rules of its market, to the micro-dollar.

It depends on the state alone, so the live view, the budget and the final bill add up the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pricing_data.model.billing import Charge, settle, settle_on_demand
from pricing_data.model.market import Market, Refund
from pricing_data.model.units import HOUR_S, MicroUsd
from spotctl.control.state import State
from spotctl.control.state_values import Allocation, Instance

MICROS_PER_USD: Final = 1_000_000
NOTHING: Final = MicroUsd(0)


@dataclass(frozen=True, slots=True)
class InstanceBill:
    """Lists one instance's charges, one for each hour."""

    instance: Instance
    market: Market
    on_demand: bool
    charges: tuple[Charge, ...]

    @property
    def amount(self) -> MicroUsd:
        """Returns the amount owed, net of refunds."""
        return MicroUsd(sum(charge.amount for charge in self.charges))

    @property
    def refunded(self) -> MicroUsd:
        return MicroUsd(sum(charge.refunded for charge in self.charges))


@dataclass(frozen=True, slots=True)
class CostBreakdown:
    """Splits the cost. ``spot`` is net of ``refunded``; ``total`` includes egress (decision 20)."""

    spot: MicroUsd
    on_demand: MicroUsd
    refunded: MicroUsd
    egress: MicroUsd = NOTHING
    """Owed for checkpoints that left a region."""

    @property
    def total(self) -> MicroUsd:
        return MicroUsd(self.spot + self.on_demand + self.egress)


def instance_bills(state: State) -> Iterator[InstanceBill]:
    """Yields the bill of every instance that ever ran, up to ``state.now``."""
    for instance in state.instances.values():
        if instance.running_at is None:
            continue
        allocation = state.allocations[instance.allocation]
        yield InstanceBill(
            instance, allocation.market, allocation.on_demand, _instance_charges(state, instance, allocation)
        )


def cost_so_far(state: State) -> CostBreakdown:
    """Returns the sum of all bills, and of egress."""
    return _sum_bills(state, instance_bills(state))


def _sum_bills(state: State, owed: Iterable[InstanceBill]) -> CostBreakdown:
    spot = on_demand = refunded = 0
    for bill in owed:
        refunded += bill.refunded
        if bill.on_demand:
            on_demand += bill.amount
        else:
            spot += bill.amount
    egress = MicroUsd(sum(fetched.owed for fetched in state.programs.fetched))
    return CostBreakdown(MicroUsd(spot), MicroUsd(on_demand), MicroUsd(refunded), egress)


def certain_cost(state: State) -> MicroUsd:
    """Returns the total of ``cost_so_far``, less the hours that announced evictions will make free."""
    # Budgets are held against this: an hour that will be refunded must not end a job.
    free, owed = 0, tuple(instance_bills(state))
    if state.terms.rules.refund is Refund.EVICTED_HOUR:
        for bill in owed:
            ends_at = bill.instance.ends_at
            if bill.instance.is_live and bill.instance.warned_at is not None and ends_at is not None:
                # The refund is for the hour in which the machine will end, which may be the next one.
                free += sum(c.amount for c in bill.charges if c.start <= ends_at < c.start + HOUR_S)
    return MicroUsd(_sum_bills(state, owed).total - free)


def _instance_charges(state: State, instance: Instance, allocation: Allocation) -> tuple[Charge, ...]:
    assert instance.running_at is not None
    rules, now = state.terms.rules_of(allocation.market), None if instance.ended_at is not None else state.now
    if allocation.on_demand:
        price = state.terms.market_option(allocation.market).on_demand
        return settle_on_demand(rules, price, instance.running_at, instance.ended_at, now)
    series = state.history.series(allocation.market)
    return settle(rules, series, instance.running_at, instance.ended_at, instance.end, now)
