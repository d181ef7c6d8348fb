"""From what a round wants to the leases that can be given now. Pure.

    need(j, p)  machines of pool p that job j may hold: leased or still held, and reserved or still rented
    room(p)     the quota of p less everybody's need

A lease is taken back at once; one is given, or grows, only as far as there is room. So machines change hands
when the last of them is gone, and no quota is crossed at any moment: nobody ever holds more than was reckoned
as its need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bidbrain.cluster.lease import Lease
from spotctl.queue.allocation.quotas import Pools, Use


@dataclass(frozen=True, slots=True)
class Holder:
    """A job as the dealer sees it.

    ``reserved``: machines on demand that are kept for it, by pool, whether it rents them or not.
    ``begins_with``: reliable machines that it would rent with its first lease. ``elastic``: fewer machines
    than it wants are of use too.
    """

    name: str
    held: Use
    lease: Lease | None
    reserved: Counter[str] = field(default_factory=Counter)
    begins_with: Counter[str] = field(default_factory=Counter)
    elastic: bool = True

    def need(self, pool: str, pools: Pools) -> int:
        """Machines of ``pool`` that it may hold by what it was given."""
        leased = 0 if self.lease is None or pools.leased(self.lease) != pool else self.lease.count
        return max(self.held.spot[pool], leased) + max(self.held.rented[pool], self.reserved[pool])


@dataclass(frozen=True, slots=True)
class Change:
    """A lease to be given, or (None) taken back."""

    job: str
    lease: Lease | None


def room(holders: Sequence[Holder], pool: str, pools: Pools) -> int | None:
    """Machines of ``pool`` that nobody may hold; None: without limit."""
    limit = pools.limit(pool)
    return None if limit is None else limit - sum(holder.need(pool, pools) for holder in holders)


def changes(
    wanted: Mapping[str, Lease | None], holders: Sequence[Holder], pools: Pools
) -> tuple[Change, ...]:
    """What can be changed now towards ``wanted``, in the order of ``wanted``: what is taken back first."""
    made: list[Change] = []
    now = {holder.name: holder for holder in holders}
    for name, lease in wanted.items():
        before = now[name].lease
        if before is not None and _taken_back(before, lease, pools):
            less = None if lease is None or pools.leased(lease) != pools.leased(before) else lease
            made.append(Change(name, less))
            now[name] = replace(now[name], lease=less)
    for name, lease in wanted.items():
        if lease is None or _same(now[name].lease, lease):
            continue
        given = _as_far_as_fits(now[name], lease, list(now.values()), pools)
        if given is not None and not _same(now[name].lease, given):
            made.append(Change(name, given))
            reserved = now[name].reserved + now[name].begins_with
            now[name] = replace(now[name], lease=given, reserved=reserved, begins_with=Counter())
    return tuple(made)


def _as_far_as_fits(holder: Holder, lease: Lease, holders: list[Holder], pools: Pools) -> Lease | None:
    """``lease``, or as much of it as there is room for; None where that is nothing or less than there was."""
    begun = replace(holder, reserved=holder.reserved + holder.begins_with)
    others = [other for other in holders if other.name != holder.name]
    for pool in holder.begins_with:
        free = room([*others, replace(begun, lease=None)], pool, pools)
        if free is not None and free < 0:
            return None
    pool = pools.leased(lease)
    free = room([*others, replace(begun, lease=None)], pool, pools)
    most = lease.count if free is None else min(lease.count, free + begun.held.spot[pool])
    had = 0 if holder.lease is None or pools.leased(holder.lease) != pool else holder.lease.count
    if most < 1 or most < had or (most < lease.count and not holder.elastic):
        return None
    return replace(lease, count=most)


def _taken_back(before: Lease, wanted: Lease | None, pools: Pools) -> bool:
    return wanted is None or pools.leased(wanted) != pools.leased(before) or wanted.count < before.count


def _same(one: Lease | None, other: Lease) -> bool:
    """Whether they allow the same; until when they are given is no difference worth telling."""
    return one is not None and (one.markets, one.count) == (other.markets, other.count)
