"""Where the money went: the bills of many runs, added up by job, day, cloud or market. Pure.

A baseline belongs to a whole run, so it is compared where whole runs are added up: by job, and in the
total. Days are those of nominal time, on which the prices were in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pricing_data.billing import Charge, End
from pricing_data.units import Instant, MicroUsd, format_instant
from spotctl.control.spending import NOTHING, InstanceBill
from spotctl.control.state import Fetched, State
from spotctl.report.by import By
from spotctl.report.fold import account


@dataclass(frozen=True, slots=True)
class Group:
    """What was paid, and for what. ``spot`` is net of ``refunded``; ``egress`` goes where it came from."""

    key: str
    runs: int
    paid_s: int
    """Instance-seconds on spot machines that were paid for."""
    free_s: int
    """Instance-seconds on spot machines that were given back."""
    on_demand_s: int
    spot: MicroUsd
    on_demand: MicroUsd
    refunded: MicroUsd
    evicted: int
    """Instances that the provider took back."""
    clocks_redone: int | None = None
    """Work lost; known of whole runs only, as is the baseline."""
    baseline: MicroUsd | None = None
    egress: MicroUsd = NOTHING
    """For checkpoints that left a region."""

    @property
    def total(self) -> MicroUsd:
        return MicroUsd(self.spot + self.on_demand + self.egress)

    @property
    def savings(self) -> float | None:
        """Share of the baseline that was not spent."""
        return None if not self.baseline else 1 - self.total / self.baseline


@dataclass(frozen=True, slots=True)
class _Item:
    """One charge of one instance of one run: what groups are added up from."""

    run: str
    bill: InstanceBill
    charge: Charge
    seconds: int


def grouped(runs: Mapping[str, State], by: By) -> tuple[Group, ...]:
    """One group for each key that occurs, in order. ``runs``: the states of runs, by run."""
    buckets: dict[str, list[_Item]] = {}
    left: dict[str, list[Fetched]] = {}
    for run, state in runs.items():
        for item in _items(run, state):
            buckets.setdefault(_KEYS[by](state, item), []).append(item)
        for fetched in state.fetched:
            left.setdefault(_LEFT[by](state, fetched), []).append(fetched)
    jobs = {state.terms.job for state in runs.values()} if by is By.JOB else ()
    whole = {job: [state for state in runs.values() if state.terms.job == job] for job in jobs}
    return tuple(
        _group(key, buckets.get(key, ()), left.get(key, ()), whole.get(key))
        for key in sorted(buckets.keys() | left.keys() | whole.keys())
    )


def total(runs: Mapping[str, State]) -> Group:
    """Everything in one group."""
    items = [item for run, state in runs.items() for item in _items(run, state)]
    fetched = [fetched for state in runs.values() for fetched in state.fetched]
    return _group("total", items, fetched, tuple(runs.values()))


def _items(run: str, state: State) -> Iterator[_Item]:
    for bill in account(state).bills:
        until = bill.instance.ended_at or state.now
        for charge in bill.charges:
            yield _Item(run, bill, charge, max(0, min(charge.end, until) - charge.start))


def _group(key: str, items: Iterable[_Item], left: Iterable[Fetched], whole: Iterable[State] | None) -> Group:
    """``whole``: the runs whose every item is among ``items``; None where there are parts of runs."""
    items = tuple(items)
    spot = [item for item in items if not item.bill.on_demand]
    on_demand = [item for item in items if item.bill.on_demand]
    evicted = {(i.run, i.bill.instance.name) for i in spot if i.bill.instance.end is End.EVICTED}
    states = None if whole is None else tuple(whole)
    return Group(
        key=key,
        runs=len({item.run for item in items}) if states is None else len(states),
        paid_s=sum(item.seconds for item in spot if not item.charge.refunded),
        free_s=sum(item.seconds for item in spot if item.charge.refunded),
        on_demand_s=sum(item.seconds for item in on_demand),
        spot=MicroUsd(sum(item.charge.amount for item in spot)),
        on_demand=MicroUsd(sum(item.charge.amount for item in on_demand)),
        refunded=MicroUsd(sum(item.charge.refunded for item in items)),
        evicted=len(evicted),
        clocks_redone=None if states is None else sum(state.clocks_redone for state in states),
        baseline=None if states is None else _baseline(states),
        egress=MicroUsd(sum(fetched.owed for fetched in left)),
    )


def _baseline(states: Iterable[State]) -> MicroUsd | None:
    compared = [money.baseline.cost for money in map(account, states) if money.baseline is not None]
    return MicroUsd(sum(compared)) if compared else None


def _day(_: State, item: _Item) -> str:
    return format_instant(Instant(item.charge.start))[:10]


_KEYS: Final[Mapping[By, Callable[[State, _Item], str]]] = {
    By.JOB: lambda state, _: state.terms.job,
    By.DAY: _day,
    By.CLOUD: lambda _, item: item.bill.market.cloud,
    By.MARKET: lambda _, item: str(item.bill.market),
}
_LEFT: Final[Mapping[By, Callable[[State, Fetched], str]]] = {
    By.JOB: lambda state, _: state.terms.job,
    By.DAY: lambda _, fetched: format_instant(fetched.at)[:10],
    By.CLOUD: lambda _, fetched: fetched.here.cloud,
    By.MARKET: lambda _, fetched: str(fetched.here),
}
