"""Where the money went: the bills of many runs, added up by job, day, cloud or market. Pure.

A baseline belongs to a whole run, so it is compared where whole runs are added up: by job, and in the
total. What a run cost that has none is part of what was paid, and of no comparison. Days are those of
nominal time: of a charge the one on which it began, of an eviction the warning's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pricing_data.billing import Charge
from pricing_data.market import Market
from pricing_data.units import Instant, MicroUsd, format_instant
from spotctl.control.spending import NOTHING, InstanceBill
from spotctl.control.state import Fetched, State
from spotctl.report.by import By
from spotctl.report.fold import Eviction, account, evictions


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
    evictions: int
    """Allocations that were warned, as a run counts them."""
    evicted: int
    """Instances that the provider took back."""
    unfinished: int = 0
    """How many of ``runs`` have not ended: what they cost is known up to their last entry."""
    clocks_redone: int | None = None
    """Work lost; known of whole runs only, as is the baseline."""
    seconds_redone: int | None = None
    """For how long commands' programs ran for nothing, likewise."""
    baseline: MicroUsd | None = None
    """Of those of ``runs`` that did work which can be compared; None where none did."""
    egress: MicroUsd = NOTHING
    """For checkpoints that left a region."""
    uncompared: MicroUsd = NOTHING
    """Of ``total``, what runs cost that have no baseline."""
    uncompared_runs: tuple[str, ...] = ()
    """Those runs."""

    @property
    def total(self) -> MicroUsd:
        return MicroUsd(self.spot + self.on_demand + self.egress)

    @property
    def savings(self) -> float | None:
        """Share of the baseline that was not spent, of runs that have one."""
        return None if not self.baseline else 1 - (self.total - self.uncompared) / self.baseline


@dataclass(frozen=True, slots=True)
class _Item:
    """One charge of one instance of one run: what groups are added up from."""

    run: str
    bill: InstanceBill
    charge: Charge
    seconds: int


@dataclass(frozen=True, slots=True)
class _Part:
    """All that goes into one group."""

    items: list[_Item] = field(default_factory=list)
    left: list[Fetched] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)


def grouped(runs: Mapping[str, State], by: By) -> tuple[Group, ...]:
    """One group for each key that occurs, in order. ``runs``: the states of runs, by run."""
    parts = _parted(runs, _KEYS[by])
    whole: dict[str, dict[str, State]] = {}
    for run, state in runs.items() if by is By.JOB else ():
        whole.setdefault(state.terms.job, {})[run] = state
    unfinished = _unfinished(runs)
    return tuple(
        _group(key, parts.get(key, _Part()), unfinished, whole.get(key))
        for key in sorted(parts.keys() | whole.keys())
    )


def total(runs: Mapping[str, State]) -> Group:
    """Everything in one group."""
    everything = _parted(runs, lambda *_: "total").get("total", _Part())
    return _group("total", everything, _unfinished(runs), runs)


def _parted(runs: Mapping[str, State], key: _Key) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}

    def part(state: State, at: Instant, market: Market) -> _Part:
        return parts.setdefault(key(state, at, market), _Part())

    for run, state in runs.items():
        for item in _items(run, state):
            part(state, item.charge.start, item.bill.market).items.append(item)
        for fetched in state.fetched:
            part(state, fetched.at, fetched.here).left.append(fetched)
        for eviction in evictions(state):
            part(state, eviction.at, eviction.market).evictions.append(eviction)
    return parts


def _items(run: str, state: State) -> Iterator[_Item]:
    for bill in account(state).bills:
        until = bill.instance.ended_at or state.now
        for charge in bill.charges:
            yield _Item(run, bill, charge, max(0, min(charge.end, until) - charge.start))


def _unfinished(runs: Mapping[str, State]) -> frozenset[str]:
    return frozenset(run for run, state in runs.items() if state.closed is None)


def _group(key: str, part: _Part, unfinished: frozenset[str], whole: Mapping[str, State] | None) -> Group:
    """``whole``: the runs whose every item is in ``part``; None where there are parts of runs."""
    items = part.items
    spot = [item for item in items if not item.bill.on_demand]
    on_demand = [item for item in items if item.bill.on_demand]
    runs = {item.run for item in items}
    compared = _Compared() if whole is None else _compared(whole)
    return Group(
        key=key,
        runs=len(runs) if whole is None else len(whole),
        unfinished=len(runs & unfinished)
        if whole is None
        else sum(state.closed is None for state in whole.values()),
        paid_s=sum(item.seconds for item in spot if not item.charge.refunded),
        free_s=sum(item.seconds for item in spot if item.charge.refunded),
        on_demand_s=sum(item.seconds for item in on_demand),
        spot=MicroUsd(sum(item.charge.amount for item in spot)),
        on_demand=MicroUsd(sum(item.charge.amount for item in on_demand)),
        refunded=MicroUsd(sum(item.charge.refunded for item in items)),
        evictions=len(part.evictions),
        evicted=sum(eviction.machines for eviction in part.evictions),
        clocks_redone=None if whole is None else sum(state.clocks_redone for state in whole.values()),
        seconds_redone=None if whole is None else sum(state.seconds_redone for state in whole.values()),
        baseline=compared.baseline,
        egress=MicroUsd(sum(fetched.owed for fetched in part.left)),
        uncompared=compared.uncompared,
        uncompared_runs=compared.uncompared_runs,
    )


@dataclass(frozen=True, slots=True)
class _Compared:
    """As the fields of ``Group``."""

    baseline: MicroUsd | None = None
    uncompared: MicroUsd = NOTHING
    uncompared_runs: tuple[str, ...] = ()


def _compared(runs: Mapping[str, State]) -> _Compared:
    """A run that cost nothing and has no baseline is missing in no comparison."""
    accounts = {run: account(state) for run, state in runs.items()}
    baselines = [money.baseline.cost for money in accounts.values() if money.baseline is not None]
    beside = {
        run: money.spending.total
        for run, money in accounts.items()
        if money.baseline is None and money.spending.total
    }
    return _Compared(
        MicroUsd(sum(baselines)) if baselines else None, MicroUsd(sum(beside.values())), tuple(beside)
    )


_Key: TypeAlias = Callable[[State, Instant, Market], str]
"""Where something that happened then, in that market, goes."""

_KEYS: Final[Mapping[By, _Key]] = {
    By.JOB: lambda state, _at, _market: state.terms.job,
    By.DAY: lambda _state, at, _market: format_instant(at)[:10],
    By.CLOUD: lambda _state, _at, market: market.cloud,
    By.MARKET: lambda _state, _at, market: str(market),
}
