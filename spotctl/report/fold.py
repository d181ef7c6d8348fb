"""From a run's state to what it cost, against what, and what was lost on the way. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pricing_data.billing import End, settle_on_demand, whole_s
from pricing_data.market import Market
from pricing_data.units import Instant, MicroUsd
from spotctl.control.spending import InstanceBill, Spending, bills, spent
from spotctl.control.state import State
from spotctl.control.terms import Terms, Tradable


@dataclass(frozen=True, slots=True)
class Baseline:
    """The same work on on-demand machines alone (decision 10): the mean working count of machines of the
    type that did most of the work, at nominal rate, under the same rules, in the region where the job could
    have had them for least."""

    machines: int
    instance_type: str
    region: str
    seconds: int
    cost: MicroUsd
    pace: float
    """How fast the run's own machines were, beside that nominal rate."""


@dataclass(frozen=True, slots=True)
class Account:
    """One run's money. ``savings`` is None where no work was done that could be compared."""

    spending: Spending
    baseline: Baseline | None
    bills: tuple[InstanceBill, ...]

    @property
    def savings(self) -> float | None:
        """Share of the on-demand baseline that was not spent; negative where more was."""
        if self.baseline is None or self.baseline.cost == 0:
            return None
        return 1 - self.spending.total / self.baseline.cost


@dataclass(frozen=True, slots=True)
class Eviction:
    """Of one allocation: warned ``at``, with how many of its machines taken in the end."""

    at: Instant
    market: Market
    machines: int


def evictions(state: State) -> Iterator[Eviction]:
    """One for each allocation that was warned; as many as ``State.evicted_allocations`` counts."""
    for allocation in state.allocations.values():
        members = state.of(allocation.name)
        warned = [member.warned_at for member in members if member.warned_at is not None]
        if warned:
            taken = sum(member.end is End.EVICTED for member in members)
            yield Eviction(min(warned), allocation.market, taken)


def account(state: State) -> Account:
    """The account of a run, finished or not."""
    return Account(spent(state), baseline(state), tuple(bills(state)))


def ended_at(state: State) -> Instant:
    """When a run was over: with its training, or with the last of its machines. It may be closed later, where
    nobody was there."""
    if state.training_over_at is None:
        return state.now
    ends = (instance.ended_at for instance in state.gone())
    return Instant(max([state.training_over_at, *(at for at in ends if at is not None)]))


def baseline(state: State) -> Baseline | None:
    """None before any work is done."""
    started = state.training_started_at
    lasted = 0 if started is None else (state.training_over_at or state.now) - started
    if state.work_done <= 0 or lasted <= 0 or not state.worked:
        return None
    machines = max(1, int(sum(state.worked.values()) / lasted + 0.5))
    terms = state.terms
    kinds = _cheapest_of_each_type(terms)
    core_seconds = {name: seconds * kinds[name].nu for name, seconds in sorted(state.worked.items())}
    kind = max(core_seconds, key=lambda name: core_seconds[name])
    tradable, efficiency = kinds[kind], terms.scaling.efficiency(machines)
    rate = machines * tradable.nu * efficiency
    capacity = sum(core_seconds.values()) * efficiency
    seconds, rules = whole_s(state.work_done / rate), terms.rules_of(tradable.market)
    charges = settle_on_demand(rules, tradable.on_demand, Instant(0), Instant(seconds))
    each = sum(charge.amount for charge in charges)
    return Baseline(
        machines,
        kind,
        tradable.market.region,
        seconds,
        MicroUsd(machines * each),
        state.work_done / capacity,
    )


def _cheapest_of_each_type(terms: Terms) -> Mapping[str, Tradable]:
    """By instance type, the market in which it is cheapest on demand; of equals the first."""
    found: dict[str, Tradable] = {}
    for tradable in (*terms.spot, terms.reliable):
        kind = tradable.market.instance_type
        if kind not in found or tradable.on_demand < found[kind].on_demand:
            found[kind] = tradable
    return found
