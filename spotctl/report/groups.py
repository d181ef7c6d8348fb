"""Where the money went: the bills of many runs, added up by job, day, cloud or market. Pure.

A baseline belongs to a whole run, so it is compared where whole runs are added up: by job, and in the
total. Days are those of nominal time: of a charge the one on which it began, of an eviction the warning's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class _Part:
    """All that goes into one group."""

    items: list[_Item] = field(default_factory=list)
    left: list[Fetched] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)


def grouped(runs: Mapping[str, State], by: By) -> tuple[Group, ...]:
    """One group for each key that occurs, in order. ``runs``: the states of runs, by run."""
    parts = _parted(runs, _KEYS[by])
    whole: dict[str, list[State]] = {}
    for state in runs.values() if by is By.JOB else ():
        whole.setdefault(state.terms.job, []).append(state)
    unfinished = _unfinished(runs)
    return tuple(
        _group(key, parts.get(key, _Part()), unfinished, whole.get(key))
        for key in sorted(parts.keys() | whole.keys())
    )


def total(runs: Mapping[str, State]) -> Group:
    """Everything in one group."""
    everything = _parted(runs, lambda *_: "total").get("total", _Part())
    return _group("total", everything, _unfinished(runs), tuple(runs.values()))


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


def _group(key: str, part: _Part, unfinished: frozenset[str], states: Sequence[State] | None) -> Group:
    """``states``: of the runs whose every item is in ``part``; None where there are parts of runs."""
    items = part.items
    spot = [item for item in items if not item.bill.on_demand]
    on_demand = [item for item in items if item.bill.on_demand]
    runs = {item.run for item in items}
    return Group(
        key=key,
        runs=len(runs) if states is None else len(states),
        unfinished=len(runs & unfinished)
        if states is None
        else sum(state.closed is None for state in states),
        paid_s=sum(item.seconds for item in spot if not item.charge.refunded),
        free_s=sum(item.seconds for item in spot if item.charge.refunded),
        on_demand_s=sum(item.seconds for item in on_demand),
        spot=MicroUsd(sum(item.charge.amount for item in spot)),
        on_demand=MicroUsd(sum(item.charge.amount for item in on_demand)),
        refunded=MicroUsd(sum(item.charge.refunded for item in items)),
        evictions=len(part.evictions),
        evicted=sum(eviction.machines for eviction in part.evictions),
        clocks_redone=None if states is None else sum(state.clocks_redone for state in states),
        baseline=None if states is None else _baseline(states),
        egress=MicroUsd(sum(fetched.owed for fetched in part.left)),
    )


def _baseline(states: Iterable[State]) -> MicroUsd | None:
    compared = [money.baseline.cost for money in map(account, states) if money.baseline is not None]
    return MicroUsd(sum(compared)) if compared else None


_Key: TypeAlias = Callable[[State, Instant, Market], str]
"""Where something that happened then, in that market, goes."""

_KEYS: Final[Mapping[By, _Key]] = {
    By.JOB: lambda state, _at, _market: state.terms.job,
    By.DAY: lambda _state, at, _market: format_instant(at)[:10],
    By.CLOUD: lambda _state, _at, market: market.cloud,
    By.MARKET: lambda _state, _at, market: str(market),
}
