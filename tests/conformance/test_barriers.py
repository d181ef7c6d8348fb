"""The contract of ``agileml.sync.base``, on every barrier there is.

A barrier enters with a line in ``BARRIERS``: what makes it of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agileml.protocol.commands import Advance
from agileml.protocol.events import Setup
from agileml.sync.base import Barrier
from agileml.sync.bounded_staleness import BulkSynchronous, StaleSynchronous, make_barrier
from tests.agileml.simulated.two_workers import SETUP, created, start
from tests.fakes.all_but_one import all_but_one

MakeBarrier = Callable[[Setup], Barrier]


def _with_staleness(staleness: int) -> MakeBarrier:
    return lambda setup: make_barrier(replace(setup, staleness=staleness))


BARRIERS: dict[str, MakeBarrier] = {
    "bulk-synchronous": make_barrier,
    "1 clock stale": _with_staleness(1),
    "3 clocks stale": _with_staleness(3),
    "all but one": all_but_one,
}
clocks = st.integers(0, 50)
few_shards = st.integers(1, 5)


on_every_barrier = pytest.mark.parametrize("make", BARRIERS.values(), ids=BARRIERS.keys())


def _some_shards(shards: int) -> Iterator[frozenset[int]]:
    for many in range(shards + 1):
        yield from map(frozenset, combinations(range(shards), many))


def _job(shards: int, lag: int | None = None) -> Setup:
    return Setup(partitions=1, shards=shards, clocks=100, backup_lag=lag)


# ---- completion ----------------------------------------------------------------------------------


@on_every_barrier
@given(few_shards, clocks)
def test_all_shards_complete_a_clock_and_none_do_not(make: MakeBarrier, shards: int, clock: int) -> None:
    barrier = make(_job(shards))
    assert barrier.is_complete(clock, range(shards))
    assert not barrier.is_complete(clock, ())


@on_every_barrier
@given(few_shards, clocks)
def test_what_is_complete_stays_so_as_more_shards_deliver(make: MakeBarrier, shards: int, clock: int) -> None:
    barrier = make(_job(shards))
    for delivered in _some_shards(shards):
        if barrier.is_complete(clock, delivered):
            more = (delivered | {shard} for shard in range(shards))
            assert all(barrier.is_complete(clock, shards) for shards in more)


# ---- reading -------------------------------------------------------------------------------------


@on_every_barrier
@given(clocks, clocks)
def test_what_is_readable_stays_so_as_clocks_complete(make: MakeBarrier, clock: int, completed: int) -> None:
    barrier = make(_job(3))
    if barrier.is_readable(clock, completed):
        assert barrier.is_readable(clock, completed + 1)
        assert barrier.is_readable(clock - 1, completed)


@on_every_barrier
@given(clocks, clocks)
def test_nothing_is_read_before_it_is_complete(make: MakeBarrier, clock: int, completed: int) -> None:
    """An exact read has its version; any other is a bounded number of clocks off."""
    barrier = make(_job(3))
    if barrier.is_readable(clock, completed):
        assert barrier.shows_pending or completed >= clock - 1
    assert not barrier.is_readable(completed + 100, completed)


@on_every_barrier
@given(clocks)
def test_whoever_has_all_before_a_clock_may_read_and_start_it(make: MakeBarrier, over: int) -> None:
    barrier = make(_job(3, lag=1))
    assert barrier.is_readable(over + 1, over)
    assert barrier.last_startable(over) >= over + 1
    assert barrier.is_awaited(over + 1, over)


@on_every_barrier
@given(clocks)
def test_no_more_than_the_last_clock_is_in_doubt(make: MakeBarrier, completed: int) -> None:
    """Servers keep the version before the last clock: what is asked for is there, or known to be over."""
    barrier = make(_job(3))
    assert barrier.over_clock(completed) in (completed - 1, completed)


# ---- going on ------------------------------------------------------------------------------------


@on_every_barrier
@given(clocks, clocks)
def test_the_next_clock_leaves_out_none_and_repeats_none(
    make: MakeBarrier, delivered: int, over: int
) -> None:
    barrier = make(_job(3))
    assert barrier.next_clock(delivered, over) == max(delivered, over) + 1


@on_every_barrier
@given(clocks, clocks, clocks)
def test_what_is_awaited_or_startable_stays_so(
    make: MakeBarrier, clock: int, over: int, backed_up: int
) -> None:
    barrier = make(_job(3))
    assert barrier.last_startable(backed_up) <= barrier.last_startable(backed_up + 1)
    if barrier.is_awaited(clock, over):
        assert barrier.is_awaited(clock, over + 1)


@on_every_barrier
def test_every_process_makes_an_equal_one(make: MakeBarrier) -> None:
    """A controller's state holds it, which a restarted one has to come to again."""
    assert make(SETUP) == make(SETUP)
    assert make(SETUP) != make(replace(SETUP, shards=SETUP.shards + 1))


@on_every_barrier
@pytest.mark.parametrize("seed", range(10))
def test_whoever_is_fast_training_comes_to_its_end(make: MakeBarrier, seed: int) -> None:
    """Two workers compute in a random order, one of them at times alone for long."""
    fabric, chance = created(SETUP, barrier=make(SETUP)), Random(seed)
    start(fabric)
    fabric.deliver()
    for _ in range(10):
        likely = chance.choice([0.1, 0.9])
        for _ in range(20):
            fabric.compute_one("w1" if chance.random() < likely else "w2")
        if chance.random() < 0.5:
            over = min(max(fabric.completed(p), default=0) for p in range(SETUP.partitions))
            fabric.command(Advance("r", 0, over))
            fabric.deliver()
    fabric.run()
    assert all(fabric.completed(p) == [*range(1, SETUP.clocks + 1)] for p in range(SETUP.partitions))


# ---- the two that the product has ----------------------------------------------------------------


@given(few_shards, clocks, clocks, st.integers(1, 9))
def test_without_staleness_ssp_is_bsp(shards: int, clock: int, other: int, lag: int) -> None:
    bsp, ssp = BulkSynchronous(shards, lag), StaleSynchronous(shards, lag, staleness=0)
    assert bsp.shows_pending == ssp.shows_pending
    assert bsp.is_readable(clock, other) == ssp.is_readable(clock, other)
    assert bsp.over_clock(clock) == ssp.over_clock(clock)
    assert bsp.next_clock(clock, other) == ssp.next_clock(clock, other)
    assert bsp.is_awaited(clock, other) == ssp.is_awaited(clock, other)
    assert bsp.last_startable(clock) == ssp.last_startable(clock)
    for delivered in _some_shards(shards):
        assert bsp.is_complete(clock, delivered) == ssp.is_complete(clock, delivered)


@given(clocks, clocks, st.integers(0, 5))
def test_ssp_reads_all_but_the_last_s_clocks(clock: int, completed: int, staleness: int) -> None:
    """Ho et al. 2013, section 3: at clock c every update of clocks up to c - s - 1 is seen."""
    barrier = StaleSynchronous(3, staleness + 2, staleness)
    assert barrier.is_readable(clock, completed) == (completed >= clock - staleness - 1)
