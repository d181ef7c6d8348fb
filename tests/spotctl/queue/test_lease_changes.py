"""Leases as machines change hands: whatever is wanted, nobody may ever hold more than there is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import Market
from pricing_data.model.units import Instant
from spotctl.queue.allocation.lease_changes import LeaseChange, LeaseHolder, find_lease_changes, free_machines
from spotctl.queue.allocation.quotas import MachineUse, Pools

A, B = (Market("aws", "us-east-1", "us-east-1a", kind) for kind in ("c4.xlarge", "m4.xlarge"))
POOLS = Pools({"c4.xlarge": 6, "m4.xlarge": 3})
NAMES = ("one", "two", "three")


def lease(market: Market, count: int) -> Lease:
    return Lease((market,), count, Instant(360))


def holder(name: str, spot: int = 0, held: Lease | None = None, rented: int = 0) -> LeaseHolder:
    use = MachineUse(
        Counter({"c4.xlarge": spot} if spot else {}), Counter({"m4.xlarge": rented} if rented else {})
    )
    return LeaseHolder(name, use, held, use.rented)


LEASES = st.none() | st.builds(lease, st.sampled_from((A, B)), st.integers(1, 8))
COUNTS: st.SearchStrategy[Counter[str]] = st.builds(
    Counter, st.fixed_dictionaries({"c4.xlarge": st.integers(0, 3), "m4.xlarge": st.integers(0, 2)})
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[LeaseHolder, ...]:
    """Jobs that hold, rent and were leased what fits; nobody is there yet of some."""
    found: list[LeaseHolder] = []
    for name in NAMES:
        one = LeaseHolder(
            name,
            MachineUse(draw(COUNTS), draw(COUNTS)),
            draw(LEASES),
            draw(COUNTS),
            draw(st.just(Counter()) | COUNTS),
            draw(st.booleans()),
        )
        for simpler in (
            one,
            replace(one, lease=None),
            LeaseHolder(name, MachineUse(Counter(), Counter()), None),
        ):
            if all((free_machines([*found, simpler], pool, POOLS) or 0) >= 0 for pool in POOLS.limits):
                found.append(simpler)
                break
    return tuple(found)


@given(tables(), st.fixed_dictionaries(dict.fromkeys(NAMES, LEASES)))
def test_no_quota_is_crossed_whatever_is_wanted(
    holders: tuple[LeaseHolder, ...], wanted: dict[str, Lease | None]
) -> None:
    now = {one.name: one for one in holders}
    for change in find_lease_changes({n: w for n, w in wanted.items() if n in now}, holders, POOLS):
        one = now[change.job]
        begun = one.reserved + one.begins_with if change.lease is not None else one.reserved
        now[change.job] = replace(one, lease=change.lease, reserved=begun)
    for pool in POOLS.limits:
        left = free_machines(list(now.values()), pool, POOLS)
        assert left is not None
        assert left >= 0


@given(tables(), st.fixed_dictionaries(dict.fromkeys(NAMES, LEASES)))
def test_what_is_taken_back_is_taken_back_at_once(
    holders: tuple[LeaseHolder, ...], wanted: dict[str, Lease | None]
) -> None:
    there = {n: w for n, w in wanted.items() if n in {one.name for one in holders}}
    made = {change.job: change.lease for change in find_lease_changes(there, holders, POOLS)}
    for one in holders:
        if one.lease is not None and wanted[one.name] is None:
            assert made[one.name] is None


def test_a_machine_changes_hands_when_it_is_gone_and_not_before() -> None:
    wanted = {"one": None, "two": lease(A, 6)}
    has, wants = holder("one", 6, lease(A, 6)), holder("two")
    assert find_lease_changes(wanted, (has, wants), POOLS) == (LeaseChange("one", None),)
    half_gone = holder("one", 4)
    assert find_lease_changes(wanted, (half_gone, wants), POOLS) == (LeaseChange("two", lease(A, 2)),)
    stubborn = replace(wants, elastic=False)
    assert find_lease_changes(wanted, (half_gone, stubborn), POOLS) == ()
    assert find_lease_changes(wanted, (holder("one"), stubborn), POOLS) == (LeaseChange("two", lease(A, 6)),)


def test_a_job_begins_only_where_its_reliable_machines_have_room() -> None:
    begins = replace(holder("two"), begins_with=Counter({"m4.xlarge": 1}))
    full = holder("one", rented=3)
    assert find_lease_changes({"two": lease(A, 2)}, (full, begins), POOLS) == ()
    assert find_lease_changes({"two": lease(A, 2)}, (holder("one", rented=2), begins), POOLS) == (
        LeaseChange("two", lease(A, 2)),
    )


def test_the_same_lease_is_not_given_twice() -> None:
    held = holder("one", 2, lease(A, 2))
    again = Lease((A,), 2, Instant(720))
    assert find_lease_changes({"one": again}, (held,), POOLS) == ()


def test_a_type_in_a_zone_is_a_pool_of_its_own_where_it_has_a_quota() -> None:
    pools = Pools({"c4.xlarge@us-east-1a": 1})
    elsewhere = Market("aws", "us-east-1", "us-east-1b", "c4.xlarge")
    assert (pools.pool_of(A), pools.pool_of(elsewhere)) == ("c4.xlarge@us-east-1a", "c4.xlarge")
    assert (pools.limit_of(pools.pool_of(A)), pools.limit_of(pools.pool_of(elsewhere))) == (1, None)
