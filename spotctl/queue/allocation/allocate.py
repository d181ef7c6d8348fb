"""Allocates machines for one round: from the jobs' states to the leases they should hold. Pure.

    j, p      jobs that want machines; pools (``quotas.py``): the worker types of the policy
    scale     machines that a job uses at once: as many as it may hold, or as there are for it
    T[j, p]   expected core-seconds per second of all of them (``bidbrain.bidding.market_outlook``), from the
              job's own speed on that type (``throughput_estimates.py``)
    c[p]      expected dollars per machine-hour in the pool's best market
    steps     core-seconds left

The policy answers with shares of time; ``bidbrain.cluster.rounds`` turns them into this round's choices. A
lease moves only if that is worth its cost (``lease_moves.py``). Machines whose hour is paid stay where they
are until it is nearly over. Leftover machines go to elastic jobs that have fewer than they want.
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
from bidbrain.cluster.policies.base import Infeasible
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from bidbrain.cluster.policies.registry import make_policy
from bidbrain.cluster.rounds import FADE, Combinations, choose_slots
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant
from spotctl.control.estimation import refit_evictions
from spotctl.control.state import State
from spotctl.queue.allocation.lease_assignment import LeaseAssigner, LeaseRequest
from spotctl.queue.allocation.lease_moves import MinHold, keeps_lease, min_hold_s, move_s
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import (
    RoundInputs,
    RoundPlan,
    SchedulableJob,
    exposure,
    uses_shared_budget,
)
from spotctl.queue.allocation.throughput_estimates import market_with_throughputs

_UNKNOWN_WORK_S: Final = HOUR_S
"""Time that a job of unknown length is assumed to need yet, on all machines that it wants."""
_KEPT_TURNS: Final = 2.0
"""Holds after which past machine time counts half, if that is longer than five rounds."""


def allocate_round(jobs: Sequence[SchedulableJob], table: RoundInputs) -> RoundPlan:
    """Allocates a round; ``jobs`` come in the order of their arrival. Raises what the policy raises."""
    free = _leasable_machines(jobs, table.pools)
    budget_left = table.budget_left - sum(
        exposure(job.state, 0, (), table) for job in jobs if uses_shared_budget(job)
    )
    # What running jobs can owe until the next round is spent already. If that exceeds the shared money, it
    # does for all jobs that live on it: none of them may go on.
    broke = tuple(job.name for job in jobs if uses_shared_budget(job) and budget_left < 0)
    able = [job for job in jobs if job.name not in broke]
    seen = [(job, _view_pools(job, free, table)) for job in able]
    usable = [(job, sight) for job, sight in seen if sight.best]
    longest_s = max((min_hold_s(move_s(job.state)) for job in able), default=0.0)
    shares: Mapping[str, Mapping[str, float]] = {}
    order: list[LeaseRequest] = []
    if usable:
        problem, kinds = _build_problem(usable, free, table, longest_s)
        answer = table.policy.compute_shares(problem).shares
        per_job = answer.per_job
        shares = {
            job.name: {p: float(per_job[n, k]) for k, p in enumerate(kinds) if per_job[n, k] > 0}
            for n, (job, _) in enumerate(usable)
        }
        order = _order_requests(usable, problem, Combinations.from_shares(answer), kinds)
    # Kept leases come first: what moves would cost is saved before shares are followed.
    serving = LeaseAssigner(free, replace(table, budget_left=budget_left))
    _keep_leases(seen, order, shares, serving, table)
    serving.assign_leases(order)
    serving.grow_leases(order)
    leases = {**serving.leases, **{job.name: None for job in jobs if job.name not in serving.leases}}
    faded = _fade_factor(table, longest_s)
    received = {job.name: _update_received(job, leases[job.name], table, faded) for job in jobs}
    since = {
        job.name: _hold_since(job, lease, table) for job in jobs if (lease := leases[job.name]) is not None
    }
    return RoundPlan(leases, shares, received, broke, since)


def allocate_with_fallback(jobs: Sequence[SchedulableJob], table: RoundInputs) -> tuple[RoundPlan, str]:
    """Allocates a round by the policy, or by ``makespan`` while a budget policy has no answer.

    Also returns why the policy has none; "" if it has one.
    """
    try:
        return allocate_round(jobs, table), ""
    except Infeasible as error:
        # Jobs that run keep running, and what they spend still counts.
        return allocate_round(jobs, replace(table, policy=make_policy("makespan", {}))), str(error)


def rejects_newcomer(newcomer: SchedulableJob, jobs: Sequence[SchedulableJob], table: RoundInputs) -> str:
    """Returns why the policy has no answer with one more job; "" if it has one, or has none without it."""
    try:
        allocate_round([*jobs, newcomer], table)
    except Infeasible as error:
        # If it has none anyway, the newcomer is not to blame, and the fallback serves it too.
        _, before = allocate_with_fallback(jobs, table)
        return "" if before else str(error)
    return ""


# ---- what there is, and what it is worth to each job ----------------------------------------------


def _leasable_machines(jobs: Sequence[SchedulableJob], pools: Pools) -> dict[str, int]:
    """Counts the machines of each pool that are neither rented on demand nor reserved for a promise."""
    free: dict[str, int] = {}
    for job in jobs:
        for pool in pools.markets_by_pool(job.state):
            # Without a quota there are as many machines as all jobs together can hold.
            most = job.state.terms.limits.max_instances
            limit = pools.limit_of(pool)
            free[pool] = free.get(pool, 0) + most if limit is None else limit
        # Reliable machines may come from pools that no spot machine uses.
        for pool in job.holder.begins_with:
            limit = pools.limit_of(pool)
            if limit is not None:
                free[pool] = limit
    for job in jobs:
        for pool in job.holder.reserved.keys() | job.holder.held.rented.keys():
            if pool in free and pools.limit_of(pool) is not None:
                # Rented machines count within what is reserved, not on top of it.
                free[pool] -= max(job.holder.reserved[pool], job.holder.held.rented[pool])
    return {pool: max(count, 0) for pool, count in free.items()}


def _is_paid_beyond_round(state: State, table: RoundInputs) -> bool:
    """Tells whether the job holds machines whose paid hour goes on beyond this round."""
    # With short quanta nothing is lost by a release: no time is paid far ahead.
    if state.terms.rules.quantum_s < HOUR_S:
        return False
    ends = [h.hour_ends for h in state.current_footprint() if not h.on_demand]
    return bool(ends) and min(ends) - RENEWAL_LEAD_S >= table.now + table.round_s


@dataclass(frozen=True, slots=True)
class _PoolView:
    """Shows the pools to one job.

    ``scale``: machines that it would use at once; ``best``: the outlook of each pool's best market;
    ``markets``: all markets of each pool.
    """

    scale: int
    best: Mapping[str, MarketOutlook]
    markets: Mapping[str, tuple[Market, ...]]


def _view_pools(job: SchedulableJob, free: Mapping[str, int], table: RoundInputs) -> _PoolView:
    markets = table.pools.markets_by_pool(job.state)
    most = job.state.terms.limits.max_instances
    scale = min(most, max((free[pool] for pool in markets), default=0))
    if scale < 1 or (scale < most and not job.holder.elastic):
        return _PoolView(0, {}, markets)
    # Nothing happens to a job that waits, so its eviction estimates are refitted here.
    of_markets = market_outlooks(
        market_with_throughputs(refit_evictions(structs.replace(job.state, now=table.now))), scale
    )
    best = {}
    for pool, members in markets.items():
        known = [of_markets[market] for market in members if market in of_markets]
        if known:
            best[pool] = min(known, key=lambda outlook: outlook.cost_per_useful_hour)
    return _PoolView(scale, best, markets)


def _build_problem(
    usable: Sequence[tuple[SchedulableJob, _PoolView]],
    free: Mapping[str, int],
    table: RoundInputs,
    longest_s: float,
) -> tuple[ShareProblem, tuple[str, ...]]:
    kinds = tuple(sorted({pool for _, sight in usable for pool in sight.best}))
    rates = np.array([[s.best[p].rate if p in s.best else 0.0 for p in kinds] for _, s in usable])
    costs = [[s.best[p].cost for _, s in usable if p in s.best] for p in kinds]
    cluster = ClusterCapacity(
        kinds,
        np.array([float(free[pool]) for pool in kinds]),
        np.array([float(np.mean(cost)) for cost in costs]),
    )
    entities = sorted({job.entity for job, _ in usable})
    left = [_work_left(job.state, float(row.max())) for (job, _), row in zip(usable, rates, strict=True)]
    jobs = Jobs.from_kinds(
        np.arange(len(usable)),
        names=tuple(job.name for job, _ in usable),
        weight=[job.weight for job, _ in usable],
        steps=left,
        age_s=[float(max(table.now - job.state.terms.start, 0)) for job, _ in usable],
        slo_s=[_slo_s(job, table, longest_s) for job, _ in usable],
        entity=[entities.index(job.entity) for job, _ in usable],
    )
    weights = np.array([table.entities.get(entity, 1.0) for entity in entities])
    scale = np.array([sight.scale for _, sight in usable], np.int64)
    problem = ShareProblem(cluster, JobKinds(rates, scale), jobs, weights)
    alone = problem.isolated_throughput()
    done = np.array([job.state.work_done for job, _ in usable])
    # 0 for jobs that would get nothing alone.
    isolated_s = np.divide(done, alone, out=np.zeros(len(done)), where=alone > 0)
    return replace(problem, jobs=replace(jobs, isolated_s=isolated_s)), kinds


def _work_left(state: State, rate: float) -> float:
    left = state.work_left
    # Never 0: a job whose last clock is being saved still needs its machines, and policies divide by it.
    return max(left if left is not None else rate * _UNKNOWN_WORK_S, 1.0)


def _slo_s(job: SchedulableJob, table: RoundInputs, longest_s: float) -> float:
    """Returns the seconds until the job's deadline, less a margin; infinity without one.

    A deadline that has passed counts as none.
    """
    if job.due is None or job.due <= table.now:
        return inf
    left = float(job.due - table.now)
    # A job may wait for two rounds, or for another's hold, before its share is served.
    return max(left - max(2 * table.round_s, longest_s), left / 2)


# ---- which leases stay, and which jobs are served --------------------------------------------------


def _order_requests(
    usable: Sequence[tuple[SchedulableJob, _PoolView]],
    problem: ShareProblem,
    combinations: Combinations,
    kinds: Sequence[str],
) -> list[LeaseRequest]:
    """Orders the round's chosen jobs, then the others with a share: by priority, share, and arrival."""
    received = np.array([[job.received.get(pool, 0.0) for pool in kinds] for job, _ in usable])
    first = combinations.first
    had = np.concatenate([received, np.zeros((len(first) - len(received), len(kinds)))])
    slots = choose_slots(problem, combinations, had)
    chosen = [(int(first[slot.chosen]), slot.type) for slot in slots]
    priority = combinations.priorities(had)
    rest = sorted(
        ((c, k) for c, k in zip(*np.nonzero(priority), strict=True)),
        key=lambda at: (-priority[at], -combinations.share[at], at[0]),
    )
    wanted = [(at, True) for at in chosen]
    wanted += [((int(first[c]), int(k)), False) for c, k in rest]
    return [
        LeaseRequest(job, kinds[k], sight.markets[kinds[k]], sight.scale, was_chosen)
        for (n, k), was_chosen in wanted
        for job, sight in (usable[n],)
    ]


def _keep_leases(
    seen: Sequence[tuple[SchedulableJob, _PoolView]],
    order: Sequence[LeaseRequest],
    shares: Mapping[str, Mapping[str, float]],
    serving: LeaseAssigner,
    table: RoundInputs,
) -> None:
    """Keeps leases with paid hours first, then those that are not worth moving."""
    at = {
        job.name: table.pools.pool_of_lease(job.holder.lease)
        for job, _ in seen
        if job.holder.lease is not None
    }
    chosen = {place.job.name: place.pool for place in order if place.chosen}
    # In pools that the round chose for no other job, a lease may stay although its job was not chosen.
    contested = {pool for name, pool in chosen.items() if at.get(name) != pool}
    for job, _ in seen:
        if job.holder.lease is not None and _is_paid_beyond_round(job.state, table):
            # The money for the machines it holds is owed already; only those it still lacks cost more.
            held = job.holder.held.spot.total()
            serving.keep_lease(job, job.holder.lease, max(job.holder.lease.count - held, 0))
    for job, sight in seen:
        lease, since = job.holder.lease, job.since
        # A job without machines loses nothing by a move.
        if lease is None or since is None or job.name in serving.leases or not job.holder.held.spot.total():
            continue
        pool, of = at[job.name], shares.get(job.name, {})
        here = sight.best.get(pool)
        left_s = inf if here is None else _work_left(job.state, here.rate) / here.rate
        turn = MinHold(
            pool,
            table.now - since,
            move_s(job.state),
            left_s,
            chosen.get(job.name),
            bool(of),
            sight.best,
        )
        if keeps_lease(turn, contested):
            serving.keep_lease(job, lease, lease.count)


def _fade_factor(table: RoundInputs, longest_s: float) -> float:
    """Returns the weight of past time one round later: it halves after five rounds, or two holds."""
    return float(max(FADE, 0.5 ** (table.round_s / (_KEPT_TURNS * longest_s)))) if longest_s else FADE


def _update_received(
    job: SchedulableJob, lease: Lease | None, table: RoundInputs, fade: float
) -> Mapping[str, float]:
    """Returns the seconds of machine time by pool that the job got lately, this round included."""
    had: dict[str, float] = {pool: seconds * fade for pool, seconds in job.received.items()}
    if lease is not None:
        pool = table.pools.pool_of_lease(lease)
        had[pool] = had.get(pool, 0.0) + table.round_s
    # Every round writes these figures to the journal: rounding and dropping dust keeps its lines short.
    return {pool: round(seconds, 3) for pool, seconds in had.items() if seconds > 1.0}


def _hold_since(job: SchedulableJob, lease: Lease, table: RoundInputs) -> Instant:
    """Returns when the job's hold of the pool of ``lease`` began."""
    before = job.holder.lease
    same = before is not None and table.pools.pool_of_lease(before) == table.pools.pool_of_lease(lease)
    return job.since if job.since is not None and same else table.now
