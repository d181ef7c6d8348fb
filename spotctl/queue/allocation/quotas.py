"""Pools of machines, and who holds how many of them: what quotas count. Pure.

A quota is of an instance type wherever it is, or of one in one zone. Markets that one quota counts are one
pool; a type without a quota is a pool too, without a limit. A machine counts from the moment it is asked for
until it has ended, on demand or spot, reliable or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import Market
from spotctl.control.state import Allocation, Phase, State


@dataclass(frozen=True, slots=True)
class Pools:
    """``limits``: machines at once, by TYPE or TYPE@ZONE."""

    limits: Mapping[str, int] = field(default_factory=dict)

    def of(self, market: Market) -> str:
        """The pool that a market's machines count in."""
        return str(market) if str(market) in self.limits else market.instance_type

    def leased(self, lease: Lease) -> str:
        """The pool that a lease is of: all of its markets are of one."""
        return self.of(lease.markets[0])

    def limit(self, pool: str) -> int | None:
        """None: as many as are wanted."""
        return self.limits.get(pool)

    def markets(self, state: State) -> Mapping[str, tuple[Market, ...]]:
        """The job's markets by pool, in order."""
        found: dict[str, list[Market]] = {}
        for tradable in state.terms.spot:
            found.setdefault(self.of(tradable.market), []).append(tradable.market)
        return {pool: tuple(markets) for pool, markets in found.items()}


def impossible(state: State, pools: Pools) -> str:
    """Why the quotas can never hold the job, whoever else is there; "" where they can."""
    terms, most = state.terms, state.terms.limits.max_instances
    reliable, least = pools.of(terms.reliable.market), 1 if state.terms.reliable_count else most
    limit = pools.limit(reliable)
    if limit is not None and limit < terms.reliable_count:
        return f"it needs {terms.reliable_count} reliable x {reliable}, and the quota of those is {limit}"
    if most == 0:
        return "it holds no spot machines (max_instances: 0), and a queue leases no others"
    room = 0
    for pool in pools.markets(state):
        limit = pools.limit(pool)
        beside = terms.reliable_count if pool == reliable else 0
        room = max(room, least if limit is None else limit - beside)
    if room >= least:
        return ""
    return f"it needs {least} spot machines of one type at once, and the quotas leave {room}"


@dataclass(frozen=True, slots=True)
class Use:
    """Machines of one job, by pool."""

    spot: Counter[str]
    rented: Counter[str]
    """On demand, reliable ones included."""


def use(state: State, pools: Pools) -> Use:
    """What a job holds now."""
    spot: Counter[str] = Counter()
    rented: Counter[str] = Counter()
    for allocation in state.allocations.values():
        held = _held(state, allocation)
        if held:
            (rented if allocation.on_demand else spot)[pools.of(allocation.market)] += held
    return Use(spot, rented)


def _held(state: State, allocation: Allocation) -> int:
    if state.phase is Phase.CLOSED:
        return 0
    return allocation.count if allocation.unanswered else sum(i.live for i in state.of(allocation.name))
