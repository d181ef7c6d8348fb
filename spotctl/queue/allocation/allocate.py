"""A round of a queue: from how its jobs stand to who is to hold which machines. Pure.

    j, p      jobs that want machines; pools (``quotas.py``): the worker types of the policy
    scale     as many machines as a job may hold at once, or as there are for it
    T[j, p]   expected core-seconds per second of all of them (``bidbrain.bidding.market_outlook``), by what
              the job has shown on that type (``throughput_estimates.py``)
    c[p]      expected dollars per machine-hour in the pool's best market
    steps     core-seconds left

The policy answers with shares of time; ``bidbrain.cluster.rounds`` turns them into this round's choices. A
lease moves only where that is worth what it costs (``lease_moves.py``), and machines whose hour is paid stay
where they are until it is nearly over: what they would be given up for is not worth an hour's price. What is
left over goes to jobs that can use fewer machines than they asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np
from msgspec import structs

from bidbrain.bidding.decision_times import RENEWAL_LEAD_S
from bidbrain.bidding.market_outlook import MarketOutlook, market_outlooks
from bidbrain.cluster.lease import Lease
from bidbrain.cluster.policies.problem import Cluster, Jobs, Kinds, ShareProblem
from bidbrain.cluster.rounds import FADE, Combinations, choose
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant
from spotctl.control.estimation import refit
from spotctl.control.state import State
from spotctl.queue.allocation.lease_assignment import Place, Serving
from spotctl.queue.allocation.lease_moves import Turn, move_s, stays, turn_s
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import Hand, Table, Wanting, counts, exposure
from spotctl.queue.allocation.throughput_estimates import market_at

_UNKNOWN_WORK_S: Final = HOUR_S
"""How much longer a job is taken to run of which nobody can say, on all that it wants."""
_KEPT_TURNS: Final = 2.0
"""Turns after which time that was had counts half, where five rounds are less."""


def deal(jobs: Sequence[Wanting], table: Table) -> Hand:
    """Jobs in the order of their arrival. Raises what the policy raises."""
    free = _free(jobs, table.pools)
    purse = table.purse - sum(exposure(job.state, 0, (), table) for job in jobs if counts(job))
    broke = tuple(job.name for job in jobs if counts(job) and purse < 0)
    able = [job for job in jobs if job.name not in broke]
    seen = [(job, _seen(job, free, table)) for job in able]
    usable = [(job, sight) for job, sight in seen if sight.best]
    longest_s = max((turn_s(move_s(job.state)) for job in able), default=0.0)
    shares: Mapping[str, Mapping[str, float]] = {}
    order: list[Place] = []
    if usable:
        problem, kinds = _problem(usable, free, table, longest_s)
        answer = table.policy.compute_shares(problem).shares
        per_job = answer.per_job
        shares = {
            job.name: {p: float(per_job[n, k]) for k, p in enumerate(kinds) if per_job[n, k] > 0}
            for n, (job, _) in enumerate(usable)
        }
        order = _ordered(usable, problem, Combinations.of(answer), kinds)
    serving = Serving(free, replace(table, purse=purse))
    _keep(seen, order, shares, serving, table)
    serving.serve(order)
    serving.grow(order)
    leases = {**serving.leases, **{job.name: None for job in jobs if job.name not in serving.leases}}
    faded = _fade(table, longest_s)
    received = {job.name: _received(job, leases[job.name], table, faded) for job in jobs}
    since = {job.name: _since(job, lease, table) for job in jobs if (lease := leases[job.name]) is not None}
    return Hand(leases, shares, received, broke, since)


# ---- what there is, and what it is worth to whom --------------------------------------------------


def _free(jobs: Sequence[Wanting], pools: Pools) -> dict[str, int]:
    """Machines of each pool that can be leased: those that are rented, or kept for a promise, are not."""
    free: dict[str, int] = {}
    for job in jobs:
        for pool in pools.markets(job.state):
            most = job.state.terms.limits.max_instances
            limit = pools.limit(pool)
            free[pool] = free.get(pool, 0) + most if limit is None else limit
        for pool in job.holder.begins_with:
            limit = pools.limit(pool)
            if limit is not None:
                free[pool] = limit
    for job in jobs:
        for pool in job.holder.reserved.keys() | job.holder.held.rented.keys():
            if pool in free and pools.limit(pool) is not None:
                free[pool] -= max(job.holder.reserved[pool], job.holder.held.rented[pool])
    return {pool: max(count, 0) for pool, count in free.items()}


def _bound(state: State, table: Table) -> bool:
    """Whether the job holds machines whose paid hour goes on beyond this round."""
    if state.terms.rules.quantum_s < HOUR_S:
        return False
    ends = [h.hour_ends for h in state.holdings() if not h.on_demand]
    return bool(ends) and min(ends) - RENEWAL_LEAD_S >= table.now + table.round_s


@dataclass(frozen=True, slots=True)
class _Sight:
    """A job's view of the pools: its machines at once, and of each pool its markets and the best's
    outlook.
    """

    scale: int
    best: Mapping[str, MarketOutlook]
    markets: Mapping[str, tuple[Market, ...]]


def _seen(job: Wanting, free: Mapping[str, int], table: Table) -> _Sight:
    markets = table.pools.markets(job.state)
    most = job.state.terms.limits.max_instances
    scale = min(most, max((free[pool] for pool in markets), default=0))
    if scale < 1 or (scale < most and not job.holder.elastic):
        return _Sight(0, {}, markets)
    # Nothing happens to a job that waits: what it believes of evictions is brought up to this moment.
    of_markets = market_outlooks(market_at(refit(structs.replace(job.state, now=table.now))), scale)
    best = {}
    for pool, members in markets.items():
        known = [of_markets[market] for market in members if market in of_markets]
        if known:
            best[pool] = min(known, key=lambda outlook: outlook.cost_per_useful_hour)
    return _Sight(scale, best, markets)


def _problem(
    usable: Sequence[tuple[Wanting, _Sight]], free: Mapping[str, int], table: Table, longest_s: float
) -> tuple[ShareProblem, tuple[str, ...]]:
    kinds = tuple(sorted({pool for _, sight in usable for pool in sight.best}))
    rates = np.array([[s.best[p].rate if p in s.best else 0.0 for p in kinds] for _, s in usable])
    costs = [[s.best[p].cost for _, s in usable if p in s.best] for p in kinds]
    cluster = Cluster(
        kinds,
        np.array([float(free[pool]) for pool in kinds]),
        np.array([float(np.mean(cost)) for cost in costs]),
    )
    entities = sorted({job.entity for job, _ in usable})
    left = [_left(job.state, float(row.max())) for (job, _), row in zip(usable, rates, strict=True)]
    jobs = Jobs.of(
        np.arange(len(usable)),
        names=tuple(job.name for job, _ in usable),
        weight=[job.weight for job, _ in usable],
        steps=left,
        age_s=[float(max(table.now - job.state.terms.start, 0)) for job, _ in usable],
        slo_s=[_slo(job, table, longest_s) for job, _ in usable],
        entity=[entities.index(job.entity) for job, _ in usable],
    )
    weights = np.array([table.entities.get(entity, 1.0) for entity in entities])
    scale = np.array([sight.scale for _, sight in usable], np.int64)
    problem = ShareProblem(cluster, Kinds(rates, scale), jobs, weights)
    alone = problem.isolated()
    done = np.array([job.state.work_done for job, _ in usable])
    isolated_s = np.divide(done, alone, out=np.zeros(len(done)), where=alone > 0)
    return replace(problem, jobs=replace(jobs, isolated_s=isolated_s)), kinds


def _left(state: State, rate: float) -> float:
    left = state.work_left
    return max(left if left is not None else rate * _UNKNOWN_WORK_S, 1.0)


def _slo(job: Wanting, table: Table, longest_s: float) -> float:
    """Until its deadline, two rounds early, or a turn, as shares are kept to that; one that has passed is
    none.
    """
    if job.due is None or job.due <= table.now:
        return inf
    left = float(job.due - table.now)
    return max(left - max(2 * table.round_s, longest_s), left / 2)


# ---- who stays, and who is served ------------------------------------------------------------------


def _ordered(
    usable: Sequence[tuple[Wanting, _Sight]],
    problem: ShareProblem,
    combinations: Combinations,
    kinds: Sequence[str],
) -> list[Place]:
    """What was chosen, then whoever has a share and was not: by priority, then by share, then by arrival."""
    received = np.array([[job.received.get(pool, 0.0) for pool in kinds] for job, _ in usable])
    first = combinations.first
    had = np.concatenate([received, np.zeros((len(first) - len(received), len(kinds)))])
    slots = choose(problem, combinations, had)
    chosen = [(int(first[slot.chosen]), slot.type) for slot in slots]
    priority = combinations.priorities(had)
    rest = sorted(
        ((c, k) for c, k in zip(*np.nonzero(priority), strict=True)),
        key=lambda at: (-priority[at], -combinations.share[at], at[0]),
    )
    wanted = [(at, True) for at in chosen]
    wanted += [((int(first[c]), int(k)), False) for c, k in rest]
    return [
        Place(job, kinds[k], sight.markets[kinds[k]], sight.scale, was_chosen)
        for (n, k), was_chosen in wanted
        for job, sight in (usable[n],)
    ]


def _keep(
    seen: Sequence[tuple[Wanting, _Sight]],
    order: Sequence[Place],
    shares: Mapping[str, Mapping[str, float]],
    serving: Serving,
    table: Table,
) -> None:
    """Leases that stay where they are: of paid hours first, then those that are not worth moving."""
    at = {job.name: table.pools.leased(job.holder.lease) for job, _ in seen if job.holder.lease is not None}
    chosen = {place.job.name: place.pool for place in order if place.chosen}
    contested = {pool for name, pool in chosen.items() if at.get(name) != pool}
    for job, _ in seen:
        if job.holder.lease is not None and _bound(job.state, table):
            held = job.holder.held.spot.total()
            serving.keep(job, job.holder.lease, max(job.holder.lease.count - held, 0))
    for job, sight in seen:
        lease, since = job.holder.lease, job.since
        if lease is None or since is None or job.name in serving.leases or not job.holder.held.spot.total():
            continue
        pool, of = at[job.name], shares.get(job.name, {})
        here = sight.best.get(pool)
        left_s = inf if here is None else _left(job.state, here.rate) / here.rate
        turn = Turn(
            pool,
            table.now - since,
            move_s(job.state),
            left_s,
            chosen.get(job.name),
            bool(of),
            sight.best,
        )
        if stays(turn, contested):
            serving.keep(job, lease, lease.count)


def _fade(table: Table, longest_s: float) -> float:
    """What part of time had counts a round later: half of it after five rounds, or two turns."""
    return float(max(FADE, 0.5 ** (table.round_s / (_KEPT_TURNS * longest_s)))) if longest_s else FADE


def _received(job: Wanting, lease: Lease | None, table: Table, fade: float) -> Mapping[str, float]:
    """What the job has had lately, with the round that begins."""
    had: dict[str, float] = {pool: seconds * fade for pool, seconds in job.received.items()}
    if lease is not None:
        pool = table.pools.leased(lease)
        had[pool] = had.get(pool, 0.0) + table.round_s
    return {pool: round(seconds, 3) for pool, seconds in had.items() if seconds > 1.0}


def _since(job: Wanting, lease: Lease, table: Table) -> Instant:
    """When the turn began that it has with ``lease``."""
    before = job.holder.lease
    same = before is not None and table.pools.leased(before) == table.pools.leased(lease)
    return job.since if job.since is not None and same else table.now
