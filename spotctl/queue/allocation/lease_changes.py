"""Finds which leases of a round can be given now. Pure.

    need(j, p)  machines of pool p that job j may hold: leased or still held, and reserved or still rented
    room(p)     the quota of p less the need of all jobs

A job loses a lease at once, and gets or grows one only as far as there is room. So machines change hands when
the last of them is gone, and no quota is exceeded at any moment: a job never holds more than its need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bidbrain.cluster.lease import Lease
from spotctl.queue.allocation.quotas import MachineUse, Pools


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Describes a job as a holder of machines.

    ``reserved``: machines on demand that are reserved for it, by pool, whether it rents them or not.
    ``begins_with``: reliable machines that it would rent with its first lease. ``elastic``: it can also use
    fewer machines than it wants.
    """

    name: str
    held: MachineUse
    lease: Lease | None
    reserved: Counter[str] = field(default_factory=Counter)
    begins_with: Counter[str] = field(default_factory=Counter)
    elastic: bool = True

    def machines_needed(self, pool: str, pools: Pools) -> int:
        """Counts the machines of ``pool`` that it may hold until the next change of its lease."""
        # The larger of both: a grown lease is not filled yet, and a lost one has machines that still end.
        leased = 0 if self.lease is None or pools.pool_of_lease(self.lease) != pool else self.lease.count
        return max(self.held.spot[pool], leased) + max(self.held.rented[pool], self.reserved[pool])


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """Gives a lease, or (None) takes it back."""

    job: str
    lease: Lease | None


def free_machines(holders: Sequence[LeaseHolder], pool: str, pools: Pools) -> int | None:
    """Counts machines of ``pool`` that no job may hold; None: without limit."""
    limit = pools.limit_of(pool)
    return None if limit is None else limit - sum(holder.machines_needed(pool, pools) for holder in holders)


def find_lease_changes(
    wanted: Mapping[str, Lease | None], holders: Sequence[LeaseHolder], pools: Pools
) -> tuple[LeaseChange, ...]:
    """Returns the changes towards ``wanted`` that are possible now: leases taken back, then leases given."""
    made: list[LeaseChange] = []
    now = {holder.name: holder for holder in holders}
    # Taking back comes first: it makes the room that the second loop gives away.
    for name, lease in wanted.items():
        before = now[name].lease
        if before is not None and _is_taken_back(before, lease, pools):
            # A lease of another pool ends here; the loop below gives the new one as far as there is room.
            less = (
                None if lease is None or pools.pool_of_lease(lease) != pools.pool_of_lease(before) else lease
            )
            made.append(LeaseChange(name, less))
            now[name] = replace(now[name], lease=less)
    for name, lease in wanted.items():
        if lease is None or _allows_same(now[name].lease, lease):
            continue
        given = _limit_to_room(now[name], lease, list(now.values()), pools)
        if given is not None and not _allows_same(now[name].lease, given):
            made.append(LeaseChange(name, given))
            # From now on its reliable machines count, so that the next job cannot get the same room.
            reserved = now[name].reserved + now[name].begins_with
            now[name] = replace(now[name], lease=given, reserved=reserved, begins_with=Counter())
    return tuple(made)


def _limit_to_room(
    holder: LeaseHolder, lease: Lease, holders: list[LeaseHolder], pools: Pools
) -> Lease | None:
    """Returns as much of ``lease`` as there is room for; None if that is nothing, or less than before."""
    # A first lease brings the reliable machines along: they need room too.
    begun = replace(holder, reserved=holder.reserved + holder.begins_with)
    others = [other for other in holders if other.name != holder.name]
    for pool in holder.begins_with:
        free = free_machines([*others, replace(begun, lease=None)], pool, pools)
        if free is not None and free < 0:
            return None
    pool = pools.pool_of_lease(lease)
    free = free_machines([*others, replace(begun, lease=None)], pool, pools)
    # Machines that the job itself still holds count as its room, or it could never keep them.
    most = lease.count if free is None else min(lease.count, free + begun.held.spot[pool])
    had = 0 if holder.lease is None or pools.pool_of_lease(holder.lease) != pool else holder.lease.count
    if most < 1 or most < had or (most < lease.count and not holder.elastic):
        return None
    return replace(lease, count=most)


def _is_taken_back(before: Lease, wanted: Lease | None, pools: Pools) -> bool:
    return (
        wanted is None
        or pools.pool_of_lease(wanted) != pools.pool_of_lease(before)
        or wanted.count < before.count
    )


def _allows_same(one: Lease | None, other: Lease) -> bool:
    """Tells whether they allow the same machines; their end times do not matter."""
    return one is not None and (one.markets, one.count) == (other.markets, other.count)
