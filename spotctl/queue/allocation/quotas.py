"""Groups machines into pools, and counts each job's machines in them, as quotas do. Pure.

A quota covers an instance type wherever it is, or in one zone. Markets that one quota counts are one pool; a
type without a quota is a pool too, without a limit. A machine counts from its request until it has ended, on
demand or spot, reliable or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import Market
from spotctl.control.state import State
from spotctl.control.state_values import Allocation, Phase


@dataclass(frozen=True, slots=True)
class Pools:
    """Maps markets to pools. ``limits``: machines at once, by TYPE or TYPE@ZONE."""

    limits: Mapping[str, int] = field(default_factory=dict)

    def pool_of(self, market: Market) -> str:
        """Returns the pool that a market's machines count in."""
        return str(market) if str(market) in self.limits else market.instance_type

    def pool_of_lease(self, lease: Lease) -> str:
        """Returns the pool of a lease: all of its markets are in one."""
        return self.pool_of(lease.markets[0])

    def limit_of(self, pool: str) -> int | None:
        """Returns the quota of a pool; None: no limit."""
        return self.limits.get(pool)

    def markets_by_pool(self, state: State) -> Mapping[str, tuple[Market, ...]]:
        """Returns the job's markets by pool, in order."""
        found: dict[str, list[Market]] = {}
        for tradable in state.terms.spot:
            found.setdefault(self.pool_of(tradable.market), []).append(tradable.market)
        return {pool: tuple(markets) for pool, markets in found.items()}


def why_impossible(state: State, pools: Pools) -> str:
    """Returns why the quotas can never hold the job, even alone; "" if they can."""
    terms, most = state.terms, state.terms.limits.max_instances
    reliable, least = pools.pool_of(terms.reliable.market), 1 if state.terms.reliable_count else most
    limit = pools.limit_of(reliable)
    if limit is not None and limit < terms.reliable_count:
        return f"it needs {terms.reliable_count} reliable x {reliable}, and the quota of those is {limit}"
    if most == 0:
        return "it holds no spot machines (max_instances: 0), and a queue leases no others"
    room = 0
    for pool in pools.markets_by_pool(state):
        limit = pools.limit_of(pool)
        # Reliable machines of the same type count against the same quota.
        beside = terms.reliable_count if pool == reliable else 0
        room = max(room, least if limit is None else limit - beside)
    if room >= least:
        return ""
    return f"it needs {least} spot machines of one type at once, and the quotas leave {room}"


@dataclass(frozen=True, slots=True)
class MachineUse:
    """Counts machines of one job, by pool."""

    spot: Counter[str]
    rented: Counter[str]
    """On demand, reliable ones included."""


def machines_in_use(state: State, pools: Pools) -> MachineUse:
    """Counts the machines of a job now, those requested and those ending included."""
    spot: Counter[str] = Counter()
    rented: Counter[str] = Counter()
    for allocation in state.allocations.values():
        held = _held_count(state, allocation)
        if held:
            (rented if allocation.on_demand else spot)[pools.pool_of(allocation.market)] += held
    return MachineUse(spot, rented)


def _held_count(state: State, allocation: Allocation) -> int:
    if state.phase is Phase.CLOSED:
        return 0
    # Until the provider answers, all that was requested may come.
    return (
        allocation.count
        if allocation.awaits_answer
        else sum(i.is_live for i in state.instances_of(allocation.name))
    )
