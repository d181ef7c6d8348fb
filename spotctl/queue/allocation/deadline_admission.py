"""Decides which deadlines a queue promises, and what it reserves for them. Pure.

A promise rests on machines on demand alone (``bidbrain.deadline``), which must be available whatever the
other jobs do. So the queue reserves them in their pool, beside the reliable machines, and the money to pay
for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from bidbrain.deadline.feasibility import Promise, is_covered, round_up_budget
from pricing_data.model.market import Market
from pricing_data.model.units import MicroUsd
from spotctl.control.bidding import deadline_promise
from spotctl.control.billing import MICROS_PER_USD
from spotctl.control.run_spec import QueueMembership, RunSpec
from spotctl.control.state import State
from spotctl.queue.allocation.quotas import Pools

_NOTHING: Final = MicroUsd(0)
_PART_NEEDED: Final = 0.85
"""Largest part of its deadline that a job should need on demand."""
_SPARE: Final = 1.5
"""Factor by which a promised job may exceed the cost of its promise, if the budget allows it: spot machines
that are lost were paid for too."""


@dataclass(frozen=True, slots=True)
class DeadlineVerdict:
    """Holds the verdict on a job's deadline before the job begins.

    ``terms``: the spec to run under. ``why``: why nothing can be promised, and what would help; "" if the
    promise is made, or none is requested. ``reserved``: machines by pool; None without a promise.
    """

    terms: RunSpec
    why: str = ""
    reserved: Counter[str] | None = None
    least_budget: MicroUsd = _NOTHING

    @property
    def is_promised(self) -> bool:
        return self.reserved is not None


def judge_deadline(
    state: State, pools: Pools, taken: Mapping[str, int], money_left: MicroUsd | None
) -> DeadlineVerdict:
    """Decides whether a queue can promise the deadline of a job that is about to begin.

    ``state``: the job's opening state. ``taken``: machines by pool that are reserved for others;
    ``money_left``: what is not reserved for others, None without a budget.
    """
    terms = replace(state.terms, queued=QueueMembership(promised=False))
    plain = DeadlineVerdict(terms)
    if terms.objective.deadline_s is None:
        return plain
    if terms.work.stop.clocks is None:
        return replace(plain, why="nobody can say how much work it is")
    found = list(_possible_ways(state, pools, taken))
    in_time = [way for way in found if way.promise.in_time]
    if not in_time:
        return replace(plain, why=_too_slow(state, found, pools, taken))
    affordable = [way for way in in_time if _is_affordable(terms, way.promise, money_left)]
    if not affordable:
        least = min(way.promise.least_budget for way in in_time)
        return replace(
            plain,
            why=f"${round_up_budget(least) / MICROS_PER_USD:.2f} have to be put aside for it, "
            "and are not there",
        )
    ample = [w for w in affordable if w.promise.least_deadline_s <= _PART_NEEDED * terms.objective.deadline_s]
    # The fewest machines that leave time for cheaper spot machines; if none do, the fastest way.
    if ample:
        way = min(ample, key=lambda way: (way.count, way.promise.least_budget))
    else:
        way = min(affordable, key=lambda way: way.promise.least_deadline_s)
    reserved = Counter[str]()
    if terms.reliable_count:
        reserved[pools.pool_of(terms.reliable.market)] += terms.reliable_count
    reserved[way.pool] += way.count
    return DeadlineVerdict(way.terms, "", reserved, round_up_budget(way.promise.least_budget, step=1))


def judge_deadlines(
    states: Mapping[str, State], pools: Pools, taken: Mapping[str, int], money_left: MicroUsd | None
) -> Mapping[str, DeadlineVerdict]:
    """Judges jobs one after the other: each gets what those before it left of room and money."""
    reserved, found = Counter(taken), {}
    for name, state in states.items():
        one = found[name] = judge_deadline(state, pools, reserved, money_left)
        if one.reserved is not None:
            reserved += one.reserved
            money_left = None if money_left is None else MicroUsd(money_left - one.least_budget)
    return found


def promise_allowances(
    promised_jobs: Mapping[str, DeadlineVerdict], budget: MicroUsd | None
) -> Mapping[str, MicroUsd | None]:
    """Returns what each promised job may spend: the cost of its promise, and up to half as much again."""
    if budget is None:
        return dict.fromkeys(promised_jobs)
    least = {name: one.least_budget for name, one in promised_jobs.items()}
    needed = sum(least.values())
    spare = min((_SPARE - 1) * needed, budget - needed) if needed else 0.0
    return {name: MicroUsd(int(of + spare * of / needed)) if needed else of for name, of in least.items()}


@dataclass(frozen=True, slots=True)
class _Way:
    """Describes a way to keep a deadline: with ``count`` machines on demand of a pool."""

    pool: str
    count: int
    terms: RunSpec
    promise: Promise


def _possible_ways(state: State, pools: Pools, taken: Mapping[str, int]) -> Iterator[_Way]:
    """Yields the ways for which there is room beside ``taken``: the fewest machines of each pool first."""
    terms = state.terms
    reliable = pools.pool_of(terms.reliable.market)
    room = _free_machines(reliable, pools, taken)
    if room < terms.reliable_count:
        return
    for pool, markets in pools.markets_by_pool(state).items():
        beside = terms.reliable_count if pool == reliable else 0
        most = int(min(terms.limits.max_instances, _free_machines(pool, pools, taken) - beside))
        # Without a quota nothing is gained by reserving fewer; without reliable machines the job is rigid.
        least = 1 if pools.limit_of(pool) is not None and terms.reliable_count else terms.limits.max_instances
        for count in range(least, most + 1):
            yield from _evaluate_way(state, pool, markets, count)


def _evaluate_way(state: State, pool: str, markets: tuple[Market, ...], count: int) -> Iterator[_Way]:
    together = min(state.terms.limits.max_per_allocation, count)
    limits = replace(state.terms.limits, max_instances=count, max_per_allocation=together)
    terms = replace(state.terms, limits=limits, queued=QueueMembership(promised=True, rents=markets))
    found = deadline_promise(structs.replace(state, terms=terms))
    if found is not None:
        yield _Way(pool, count, terms, found)


def _free_machines(pool: str, pools: Pools, taken: Mapping[str, int]) -> float:
    limit = pools.limit_of(pool)
    return math.inf if limit is None else limit - taken.get(pool, 0)


def _is_affordable(terms: RunSpec, promise: Promise, money_left: MicroUsd | None) -> bool:
    own = math.inf if terms.objective.budget is None else terms.objective.budget / MICROS_PER_USD
    left = math.inf if money_left is None else money_left / MICROS_PER_USD
    return is_covered(min(own, left), promise.least_budget)


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
