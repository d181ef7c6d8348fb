"""Who is served with what is there: leases in an order, while machines and money last. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import Market
from pricing_data.model.units import Instant
from spotctl.queue.allocation.round_inputs import Table, Wanting, counts, exposure


@dataclass(frozen=True, slots=True)
class Place:
    """A job that the round would have in a pool, with ``count`` machines if there are as many."""

    job: Wanting
    pool: str
    markets: tuple[Market, ...]
    count: int
    chosen: bool


class Serving:
    """Leases given so far, and what is left for others."""

    def __init__(self, free: Mapping[str, int], table: Table) -> None:
        self.leases: dict[str, Lease | None] = {}
        self._free = dict(free)
        self._purse = table.purse
        self._table = table

    def keep(self, job: Wanting, lease: Lease, new: int) -> None:
        """The lease that a job has, where ``new`` machines of it can be paid for."""
        price = exposure(job.state, new, lease.markets, self._table) if counts(job) else 0.0
        if price <= self._purse:
            self._purse -= price
            self.leases[job.name] = lease
            self._take(lease)

    def serve(self, order: Sequence[Place]) -> None:
        """Give leases in ``order``."""
        until = Instant(int(self._table.now + self._table.round_s))
        for place in order:
            holder = place.job.holder
            beginning = holder.begins_with
            if place.job.name in self.leases or any(self._free.get(p, n) < n for p, n in beginning.items()):
                continue
            count = self._affordable(place, min(place.count, self._free[place.pool] - beginning[place.pool]))
            if count < 1 or (count < place.count and not holder.elastic):
                continue
            self._purse -= self._price(place, count)
            for pool, machines in beginning.items():
                if pool in self._free and self._table.pools.limit(pool) is not None:
                    self._free[pool] -= machines
            self.leases[place.job.name] = Lease(place.markets, count, until)
            self._free[place.pool] -= count

    def grow(self, order: Sequence[Place]) -> None:
        """What is left over goes to elastic jobs that kept less than they asked for, where they are."""
        pools = self._table.pools
        for place in order:
            lease = self.leases.get(place.job.name)
            if lease is None or not place.job.holder.elastic or pools.leased(lease) != place.pool:
                continue
            more = self._affordable(place, min(place.count - lease.count, self._free[place.pool]))
            if more > 0:
                self._purse -= self._price(place, more)
                self._free[place.pool] -= more
                self.leases[place.job.name] = replace(lease, count=lease.count + more)

    def _affordable(self, place: Place, count: int) -> int:
        while count > 0 and self._price(place, count) > self._purse:
            count -= 1
        return count

    def _price(self, place: Place, count: int) -> float:
        return exposure(place.job.state, count, place.markets, self._table) if counts(place.job) else 0.0

    def _take(self, lease: Lease) -> None:
        pool = self._table.pools.leased(lease)
        self._free[pool] = max(self._free.get(pool, 0) - lease.count, 0)
