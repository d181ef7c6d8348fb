"""A barrier that the product does not have trains a job: servers, workers and controller are as they are."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest

from agileml.model_shape import Shape
from agileml.node.arrays import Matrix
from agileml.protocol.commands import Finished, RolledBack, SaveModel
from agileml.protocol.events import BackedUp, Setup
from agileml.protocol.messages import Patch, ShardDelta
from agileml.server.partition import PartitionState
from agileml.sync.base import Barrier
from agileml.sync.bounded_staleness import make_barrier
from tests.agileml.simulated.fabric import SHAPE, Fabric, assignment, initial, shard_rows, toy_delta
from tests.agileml.simulated.network import Network
from tests.agileml.simulated.schedules import FAULTS, train_to_end
from tests.agileml.simulated.toy import Toy
from tests.agileml.simulated.two_workers import SETUP, advance, created, two_actives
from tests.fakes.all_but_one import AllButOne, all_but_one

SLOW = 1
"""The shard of the worker that stands still."""


def one_slow(barrier: Barrier, slow: int = SLOW, *, backed_up: bool = False) -> Fabric:
    """Worker w2 has a shard of its own; w1, which has the others, goes as far as it can without it."""
    fabric = two_actives(barrier=barrier) if backed_up else created(barrier=barrier)
    owners, epochs = (("a", "b"), (2, 2)) if backed_up else (("r", "r"), (1, 1))
    others = tuple(shard for shard in range(SETUP.shards) if shard != slow)
    for machine, shards in (("w1", others), ("w2", (slow,))):
        fabric.assign(assignment(fabric, machine, shards, owners, epochs=epochs))
    fabric.deliver()
    while fabric.compute_one("w1"):
        advance(fabric)
        fabric.deliver()
    return fabric


def serial_without(shard: int, clocks: int) -> Matrix:
    """The model of the other shards."""
    model = initial(np.arange(SHAPE.rows))
    for clock in range(1, clocks + 1):
        total = np.zeros_like(model)
        for other in range(SETUP.shards):
            if other != shard:
                delta = toy_delta(other, clock, model[shard_rows(other)])
                total[delta.rows] += delta.values
        model = model + total
    return model


def test_a_slow_worker_is_not_waited_for() -> None:
    assert one_slow(make_barrier(SETUP)).completed(0) == [], "bulk-synchronous training waits for it"
    fabric = one_slow(all_but_one(SETUP))
    assert fabric.completed(0) == fabric.completed(1) == [*range(1, SETUP.clocks + 1)]
    fabric.command(SaveModel("r", 0, SETUP.clocks, (0, 1)))
    assert np.array_equal(fabric.model(), serial_without(SLOW, SETUP.clocks))


def test_what_comes_late_changes_nothing_and_its_worker_goes_on_where_the_others_are() -> None:
    fabric = one_slow(all_but_one(SETUP))
    worked = []
    while work := fabric.workers["w2"].take_work():
        worked.append(work[0].clock)
        fabric.compute("w2", work[0])
    assert worked == [1, SETUP.clocks], "it had read clock 1; of the last one nobody knows that it is over"
    fabric.command(SaveModel("r", 0, SETUP.clocks, (0, 1)))
    assert np.array_equal(fabric.model(), serial_without(SLOW, SETUP.clocks))


@pytest.mark.parametrize("slow", range(SETUP.shards))
def test_backups_follow_also_without_the_shard_that_ends_ranges(slow: int) -> None:
    fabric = one_slow(all_but_one(SETUP), slow, backed_up=True)
    last = {event.partition: event.clock for event in fabric.events if isinstance(event, BackedUp)}
    assert last == {0: SETUP.clocks, 1: SETUP.clocks}


def test_a_clock_without_one_of_its_runs_of_rows_keeps_what_was_there() -> None:
    """Sums are kept as deltas come, in an array of which nobody has written that part."""
    start = np.full((4, 1), 7, np.float32)
    state = PartitionState(start.copy(), 0, AllButOne(2, lag=2))
    deltas = [ShardDelta(n, Patch(np.arange(2) + 2 * n, np.full((2, 1), n + 1, np.float32))) for n in (0, 1)]
    state.add_deltas(1, deltas)
    assert state.complete_clock()
    state.add_deltas(2, deltas[:1])
    assert state.complete_clock()
    assert state.all_values().ravel().tolist() == [9, 9, 9, 9]
    state.add_deltas(3, deltas[1:])
    assert state.complete_clock()
    assert state.all_values().ravel().tolist() == [9, 9, 11, 11]


# ---- with a controller, and everything that may happen to a job ----------------------------------

SHARDS, PARTITIONS, CLOCKS = 3, 2, 5
TOY = Toy(Shape(9, 2), SHARDS, looks_at_values=False)


@cache
def possible_models() -> tuple[frozenset[bytes], ...]:
    """Every model that leaves out at most one shard in each clock, partition by partition."""
    zeros = np.zeros((TOY.shape.rows, TOY.shape.columns), np.float32)
    found = []
    for partition in range(PARTITIONS):
        values = {TOY.initial(np.arange(TOY.shape.rows))[partition::PARTITIONS].tobytes()}
        for clock in range(1, CLOCKS + 1):
            deltas = []
            for shard in range(SHARDS):
                delta = TOY.delta(shard, clock, zeros[TOY.rows(shard)])
                whole = zeros.copy()
                whole[delta.rows] = delta.values
                deltas.append(whole[partition::PARTITIONS])
            sums = [sum(deltas) - left_out for left_out in (zeros[partition::PARTITIONS], *deltas)]
            values = {
                (np.frombuffer(before, np.float32).reshape(total.shape) + total).tobytes()
                for before in values
                for total in sums
            }
        found.append(frozenset(values))
    return tuple(found)


def trained(seed: int, faults: int) -> Network:
    setup = Setup(PARTITIONS, SHARDS, CLOCKS, backup_lag=1 + seed % 3)
    net = Network(setup, TOY, Random(seed), barrier_of=all_but_one)
    train_to_end(net, faults, FAULTS[:5] + FAULTS[6:])  # without a stop, which ends at another clock
    return net


def test_jobs_end_whatever_happens_to_them_and_leave_out_one_shard_a_clock_at_most() -> None:
    models = set()
    rolled_back = 0
    for seed in range(60):
        net = trained(seed, faults=seed % 5)
        assert any(isinstance(word, Finished) for word in net.upwards), f"seed {seed}"
        rolled_back += any(isinstance(word, RolledBack) for word in net.upwards)
        for partition, possible in enumerate(possible_models()):
            assert net.model[partition::PARTITIONS].tobytes() in possible, f"seed {seed}"
        models.add(net.model.tobytes())
    assert len(models) > 30, "else it waited for everybody"
    assert rolled_back > 5
