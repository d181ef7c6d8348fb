"""A round of a queue: from how its jobs stand to who is to hold which machines. Pure.

    j, p      jobs that want machines; pools (``pools.py``): the worker types of the policy
    scale     as many machines as a job may hold at once, or as there are for it
    T[j, p]   expected core-seconds per second of all of them (``bidbrain.outlook``), times what was measured
    c[p]      expected dollars per machine-hour in the pool's best market
    steps     core-seconds left

The policy answers with shares of time; ``bidbrain.rounds`` turns them into this round's choices. What is left
over goes to jobs that can use fewer machines than they asked for. Machines whose hour is paid stay where
they are until it is nearly over: what they would be given up for is not worth an hour's price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from bidbrain.lease import Lease
from bidbrain.outlook import Outlook, outlooks
from bidbrain.policies.base import Policy
from bidbrain.policies.problem import Cluster, Jobs, Kinds, ShareProblem
from bidbrain.rounds import FADE, Combinations, choose
from bidbrain.schedule import RENEWAL_LEAD_S
from pricing_data.market import Market
from pricing_data.units import HOUR_S, Instant, Seconds
from spotctl.control.deciding import market_of
from spotctl.control.spending import MICROS_PER_USD
from spotctl.control.state import State
from spotctl.queue.dealing import Holder
from spotctl.queue.pools import Pools

_MEASURED_FROM_S: Final = 600
"""Machine-seconds of work after which a job's own speed is believed."""
_LEAST_FACTOR: Final = 0.05
_WAY_OUT_S: Final = 600
"""From the end of a lease to the end of the last machine, at worst."""
_UNKNOWN_WORK_S: Final = HOUR_S
"""How much longer a job is taken to run of which nobody can say, on all that it wants."""


@dataclass(frozen=True, slots=True)
class Wanting:
    """A job that is not done. ``due``: when it should be, if that matters to the policy."""

    state: State
    holder: Holder
    weight: float
    entity: str
    due: Instant | None
    received: Mapping[str, float]
    """Seconds by pool, faded."""

    @property
    def name(self) -> str:
        return self.holder.name


@dataclass(frozen=True, slots=True)
class Hand:
    """What a round deals: leases wanted of every job, in the order in which they are to be served."""

    leases: Mapping[str, Lease | None]
    shares: Mapping[str, Mapping[str, float]]
    received: Mapping[str, Mapping[str, float]]
    broke: tuple[str, ...] = ()
    """Jobs that cannot be paid for any longer."""


@dataclass(frozen=True, slots=True)
class Table:
    """What is the same for every job of a round."""

    now: Instant
    round_s: Seconds
    pools: Pools
    policy: Policy
    entities: Mapping[str, float]
    purse: float = inf
    """Micro-dollars that are neither spent nor put aside for promises."""


def deal(jobs: Sequence[Wanting], table: Table) -> Hand:
    """Jobs in the order of their arrival. Raises what the policy raises."""
    free = _free(jobs, table.pools)
    purse = table.purse - sum(exposure(job.state, 0, (), table) for job in jobs if _counts(job))
    broke = tuple(job.name for job in jobs if _counts(job) and purse < 0)
    leases: dict[str, Lease | None] = {}
    for job in jobs:
        lease = job.holder.lease
        if lease is not None and _bound(job.state, table) and job.name not in broke:
            more = lease.count - job.holder.held.spot.total()
            price = exposure(job.state, max(more, 0), lease.markets, table) if _counts(job) else 0.0
            if price <= purse:
                leases[job.name], purse = lease, purse - price
                _take(free, lease, table.pools)
    others = [job for job in jobs if job.name not in leases and job.name not in broke]
    seen = [_seen(job, free, table) for job in others]
    usable = [(job, sight) for job, sight in zip(others, seen, strict=True) if sight.best]
    shares: Mapping[str, Mapping[str, float]] = {}
    if usable:
        problem, kinds = _problem(usable, free, table)
        answer = table.policy.share(problem).shares
        combinations = Combinations.of(answer)
        per_job = answer.per_job
        shares = {
            job.name: {p: float(per_job[n, k]) for k, p in enumerate(kinds) if per_job[n, k] > 0}
            for n, (job, _) in enumerate(usable)
        }
        order = _ordered(usable, problem, combinations, kinds)
        _serve(order, free, leases, replace(table, purse=purse))
    leases.update({job.name: None for job in jobs if job.name not in leases})
    received = {job.name: _faded(job, leases[job.name], table) for job in jobs}
    return Hand(leases, shares, received, broke)


def exposure(state: State, machines: int, markets: Sequence[Market], table: Table) -> float:
    """Micro-dollars that a job may come to owe before anybody can stop it, at list prices: its reliable
    machines, and ``machines`` of the dearest of ``markets``, for a billing step more than a round and
    their way out.
    """
    terms = state.terms
    dearest = max((t.on_demand for t in terms.spot if t.market in markets), default=0.0)
    begins = machines > 0 and not state.allocations
    rented = terms.reliable_count if machines == 0 or begins else 0
    hourly = machines * dearest + rented * terms.reliable.on_demand
    quantum_s = terms.rules.quantum_s if machines or begins else 0
    return hourly * (quantum_s + table.round_s + _WAY_OUT_S) / HOUR_S * MICROS_PER_USD


def _counts(job: Wanting) -> bool:
    """Whether the job lives on money that is not put aside for it."""
    queued = job.state.terms.queued
    return queued is not None and not queued.promised


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
    best: Mapping[str, Outlook]
    markets: Mapping[str, tuple[Market, ...]]


def _seen(job: Wanting, free: Mapping[str, int], table: Table) -> _Sight:
    markets = table.pools.markets(job.state)
    most = job.state.terms.limits.max_instances
    scale = min(most, max((free[pool] for pool in markets), default=0))
    if scale < 1 or (scale < most and not job.holder.elastic):
        return _Sight(0, {}, markets)
    of_markets = outlooks(market_of(job.state), scale)
    factor = _measured(job.state)
    best = {}
    for pool, members in markets.items():
        known = [of_markets[market] for market in members if market in of_markets]
        if known:
            one = min(known, key=lambda outlook: outlook.cost_per_useful_hour)
            best[pool] = replace(one, rate=one.rate * factor)
    return _Sight(scale, best, markets)


def _measured(state: State) -> float:
    """The job's own speed over what the catalogue says of its machines; 1 before it has shown it, and where
    speeds are measured by type already.
    """
    machine_s = sum(state.worked.values())
    began = state.training_started_at
    if state.measured is not None or began is None or machine_s < _MEASURED_FROM_S or state.now <= began:
        return 1.0
    cores = {t.market.instance_type: t.cores for t in (*state.terms.spot, state.terms.reliable)}
    nominal = sum(seconds * cores[kind] for kind, seconds in state.worked.items())
    together = state.terms.scaling.efficiency(machine_s / (state.now - began))
    return max(state.work_done / (nominal * together), _LEAST_FACTOR)


def _problem(
    usable: Sequence[tuple[Wanting, _Sight]], free: Mapping[str, int], table: Table
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
        slo_s=[_slo(job, table) for job, _ in usable],
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


def _slo(job: Wanting, table: Table) -> float:
    """Until its deadline, two rounds early as shares are kept to a round; one that has passed is none."""
    if job.due is None or job.due <= table.now:
        return inf
    left = float(job.due - table.now)
    return max(left - 2 * table.round_s, left / 2)


# ---- who is served ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A job that the round would have in a pool, with ``count`` machines if there are as many."""

    job: Wanting
    pool: str
    markets: tuple[Market, ...]
    count: int
    chosen: bool


def _ordered(
    usable: Sequence[tuple[Wanting, _Sight]],
    problem: ShareProblem,
    combinations: Combinations,
    kinds: Sequence[str],
) -> list[_Place]:
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
        _Place(job, kinds[k], sight.markets[kinds[k]], sight.scale, was_chosen)
        for (n, k), was_chosen in wanted
        for job, sight in (usable[n],)
    ]


def _serve(
    order: Sequence[_Place], free: dict[str, int], leases: dict[str, Lease | None], table: Table
) -> None:
    """Give leases in ``order`` while machines last."""
    until, purse = Instant(int(table.now + table.round_s)), table.purse
    for place in order:
        holder = place.job.holder
        beginning = holder.begins_with
        if place.job.name in leases or any(free.get(p, n) < n for p, n in beginning.items()):
            continue
        room = free[place.pool] - beginning[place.pool]
        count = min(place.count, room)
        while count > 0 and _price(place, count, table) > purse:
            count -= 1
        if count < 1 or (count < place.count and not holder.elastic):
            continue
        purse -= _price(place, count, table)
        for pool, machines in beginning.items():
            if pool in free and table.pools.limit(pool) is not None:
                free[pool] -= machines
        leases[place.job.name] = Lease(place.markets, count, until)
        free[place.pool] -= count


def _price(place: _Place, count: int, table: Table) -> float:
    return exposure(place.job.state, count, place.markets, table) if _counts(place.job) else 0.0


def _take(free: dict[str, int], lease: Lease, pools: Pools) -> None:
    pool = pools.of(lease.markets[0])
    free[pool] = max(free.get(pool, 0) - lease.count, 0)


def _faded(job: Wanting, lease: Lease | None, table: Table) -> Mapping[str, float]:
    """What the job has had lately, with the round that begins."""
    had: dict[str, float] = {pool: seconds * FADE for pool, seconds in job.received.items()}
    if lease is not None:
        pool = table.pools.of(lease.markets[0])
        had[pool] = had.get(pool, 0.0) + table.round_s
    return {pool: round(seconds, 3) for pool, seconds in had.items() if seconds > 1.0}
