"""Which deadlines a queue promises, and what it keeps free for them. Pure.

A promise rests on machines on demand alone (``bidbrain.deadline``). In a queue these must be there
whatever the other jobs do: as many as the deadline needs are reserved in the pool that they are had in,
beside the reliable machines, and so is the money. As few are reserved as leave a third of the time for
spot machines, where that can be had; as many as there are where it cannot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from bidbrain.deadline.feasibility import Promise, covers, least_asked
from pricing_data.model.market import Market
from pricing_data.model.units import MicroUsd
from spotctl.control.bidding import promised
from spotctl.control.billing import MICROS_PER_USD
from spotctl.control.run_spec import Queued, Terms
from spotctl.control.state import State
from spotctl.queue.allocation.quotas import Pools

_NOTHING: Final = MicroUsd(0)
_PART_NEEDED: Final = 0.85
"""Of its deadline that a job should need on demand at most."""
_SPARE: Final = 1.5
"""What a promised job may spend, over what its promise takes, where the budget has it: spot machines that are
lost were paid for too."""


@dataclass(frozen=True, slots=True)
class Promised:
    """What the queue says of a job's deadline before it begins. ``terms``: those it is to run under.

    ``why``: what speaks against a promise, and what would have to give; empty where it was made, or none
    asked.
    """

    terms: Terms
    why: str = ""
    reserved: Counter[str] | None = None
    least_budget: MicroUsd = _NOTHING

    @property
    def made(self) -> bool:
        return self.reserved is not None


def judged(state: State, pools: Pools, taken: Mapping[str, int], money_left: MicroUsd | None) -> Promised:
    """Whether the deadline of a job that is about to begin can be promised beside what is ``taken``.

    ``state``: of the job before anything happened, with its terms as they are. ``taken``: machines by pool
    that are reserved for others; ``money_left``: what is not put aside for others, None without a budget.
    """
    terms = replace(state.terms, queued=Queued(promised=False))
    plain = Promised(terms)
    if terms.deadline_s is None:
        return plain
    if terms.stop.clocks is None:
        return replace(plain, why="nobody can say how much work it is")
    found = list(_ways(state, pools, taken))
    in_time = [way for way in found if way.promise.in_time]
    if not in_time:
        return replace(plain, why=_too_slow(state, found, pools, taken))
    affordable = [way for way in in_time if _covered(terms, way.promise, money_left)]
    if not affordable:
        least = min(way.promise.least_budget for way in in_time)
        return replace(
            plain,
            why=f"${least_asked(least) / MICROS_PER_USD:.2f} have to be put aside for it, and are not there",
        )
    ample = [w for w in affordable if w.promise.least_deadline_s <= _PART_NEEDED * terms.deadline_s]
    if ample:
        way = min(ample, key=lambda way: (way.count, way.promise.least_budget))
    else:
        way = min(affordable, key=lambda way: way.promise.least_deadline_s)
    reserved = Counter[str]()
    if terms.reliable_count:
        reserved[pools.of(terms.reliable.market)] += terms.reliable_count
    reserved[way.pool] += way.count
    return Promised(way.terms, "", reserved, least_asked(way.promise.least_budget, step=1))


def judge_all(
    states: Mapping[str, State], pools: Pools, taken: Mapping[str, int], money_left: MicroUsd | None
) -> Mapping[str, Promised]:
    """``judged`` of several jobs, one after the other: each leaves room and money for those before it."""
    reserved, found = Counter(taken), {}
    for name, state in states.items():
        one = found[name] = judged(state, pools, reserved, money_left)
        if one.reserved is not None:
            reserved += one.reserved
            money_left = None if money_left is None else MicroUsd(money_left - one.least_budget)
    return found


def allowances(
    promised_jobs: Mapping[str, Promised], budget: MicroUsd | None
) -> Mapping[str, MicroUsd | None]:
    """What each promised job may spend: what its promise takes, and half as much again if the budget
    has it.
    """
    if budget is None:
        return dict.fromkeys(promised_jobs)
    least = {name: one.least_budget for name, one in promised_jobs.items()}
    needed = sum(least.values())
    spare = min((_SPARE - 1) * needed, budget - needed) if needed else 0.0
    return {name: MicroUsd(int(of + spare * of / needed)) if needed else of for name, of in least.items()}


@dataclass(frozen=True, slots=True)
class _Way:
    """To keep a deadline: ``count`` machines on demand of a pool, and what they promise."""

    pool: str
    count: int
    terms: Terms
    promise: Promise


def _ways(state: State, pools: Pools, taken: Mapping[str, int]) -> Iterator[_Way]:
    """What there is room for beside what is taken: the fewest machines of each pool first."""
    terms = state.terms
    reliable = pools.of(terms.reliable.market)
    room = _room(reliable, pools, taken)
    if room < terms.reliable_count:
        return
    for pool, markets in pools.markets(state).items():
        beside = terms.reliable_count if pool == reliable else 0
        most = int(min(terms.limits.max_instances, _room(pool, pools, taken) - beside))
        least = 1 if pools.limit(pool) is not None and terms.reliable_count else terms.limits.max_instances
        for count in range(least, most + 1):
            yield from _way(state, pool, markets, count)


def _way(state: State, pool: str, markets: tuple[Market, ...], count: int) -> Iterator[_Way]:
    together = min(state.terms.limits.max_per_allocation, count)
    limits = replace(state.terms.limits, max_instances=count, max_per_allocation=together)
    terms = replace(state.terms, limits=limits, queued=Queued(promised=True, rents=markets))
    found = promised(structs.replace(state, terms=terms))
    if found is not None:
        yield _Way(pool, count, terms, found)


def _room(pool: str, pools: Pools, taken: Mapping[str, int]) -> float:
    limit = pools.limit(pool)
    return math.inf if limit is None else limit - taken.get(pool, 0)


def _covered(terms: Terms, promise: Promise, money_left: MicroUsd | None) -> bool:
    own = math.inf if terms.budget is None else terms.budget / MICROS_PER_USD
    left = math.inf if money_left is None else money_left / MICROS_PER_USD
    return covers(min(own, left), promise.least_budget)


def _too_slow(state: State, found: list[_Way], pools: Pools, taken: Mapping[str, int]) -> str:
    most = state.terms.limits.max_instances
    kept = ", ".join(f"{taken.get(p, 0)} of {n} x {p}" for p, n in pools.limits.items() if taken.get(p, 0))
    others = f" ({kept} are kept for others)" if kept else ""
    if not found:
        return f"its quotas leave no machines on demand for it{others}"
    best = min(found, key=lambda way: way.promise.least_deadline_s)
    minutes = _minutes_up(best.promise.least_deadline_s)
    least = f"with {best.count} x {best.pool} on demand it takes {minutes}m"
    if best.count < most:
        return f"{least}, and the quotas allow no more{others}"
    return f"{least}, and that is the least that could be promised"


def _minutes_up(seconds: float) -> int:
    return math.ceil(seconds / 60)
