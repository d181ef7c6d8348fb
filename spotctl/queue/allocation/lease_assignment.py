"""Assigns machines to jobs, in an order, while machines and money last. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import Market
from pricing_data.model.units import Instant
from spotctl.queue.allocation.round_inputs import RoundInputs, SchedulableJob, exposure, uses_shared_budget


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Requests a lease of up to ``count`` machines of a pool; ``chosen``: by this round's slots."""

    job: SchedulableJob
    pool: str
    markets: tuple[Market, ...]
    count: int
    chosen: bool


class LeaseAssigner:
    """Collects the leases given so far, and counts the machines and the money left for others."""

    def __init__(self, free: Mapping[str, int], table: RoundInputs) -> None:
        self.leases: dict[str, Lease | None] = {}
        self._free = dict(free)
        self._budget_left = table.budget_left
        self._table = table

    def keep_lease(self, job: SchedulableJob, lease: Lease, new: int) -> None:
        """Keeps a job's lease if there is money for its ``new`` machines, those that are not paid yet."""
        price = exposure(job.state, new, lease.markets, self._table) if uses_shared_budget(job) else 0.0
        if price <= self._budget_left:
            self._budget_left -= price
            self.leases[job.name] = lease
            self._take_machines(lease)

    def assign_leases(self, order: Sequence[LeaseRequest]) -> None:
        """Gives each job in ``order`` its first lease that there are machines and money for."""
        until = Instant(int(self._table.now + self._table.round_s))
        for place in order:
            holder = place.job.holder
            # A first lease needs the reliable machines as well, maybe of the same pool.
            beginning = holder.begins_with
            if place.job.name in self.leases or any(self._free.get(p, n) < n for p, n in beginning.items()):
                continue
            count = self._affordable_count(
                place, min(place.count, self._free[place.pool] - beginning[place.pool])
            )
            # A job that needs all its machines waits rather than hold some of them idle.
            if count < 1 or (count < place.count and not holder.elastic):
                continue
            self._budget_left -= self._exposure_of(place, count)
            for pool, machines in beginning.items():
                if pool in self._free and self._table.pools.limit_of(pool) is not None:
                    self._free[pool] -= machines
            self.leases[place.job.name] = Lease(place.markets, count, until)
            self._free[place.pool] -= count

    def grow_leases(self, order: Sequence[LeaseRequest]) -> None:
        """Gives leftover machines to elastic jobs whose leases have fewer than they want, pool by pool."""
        pools = self._table.pools
        for place in order:
            lease = self.leases.get(place.job.name)
            if lease is None or not place.job.holder.elastic or pools.pool_of_lease(lease) != place.pool:
                continue
            more = self._affordable_count(place, min(place.count - lease.count, self._free[place.pool]))
            if more > 0:
                self._budget_left -= self._exposure_of(place, more)
                self._free[place.pool] -= more
                self.leases[place.job.name] = replace(lease, count=lease.count + more)

    def _affordable_count(self, place: LeaseRequest, count: int) -> int:
        while count > 0 and self._exposure_of(place, count) > self._budget_left:
            count -= 1
        return count

    def _exposure_of(self, place: LeaseRequest, count: int) -> float:
        return (
            exposure(place.job.state, count, place.markets, self._table)
            if uses_shared_budget(place.job)
            else 0.0
        )

    def _take_machines(self, lease: Lease) -> None:
        pool = self._table.pools.pool_of_lease(lease)
        # A kept lease may be larger than what reservations made since have left.
        self._free[pool] = max(self._free.get(pool, 0) - lease.count, 0)
