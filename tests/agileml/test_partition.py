from __future__ import annotations

from random import Random
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.messages import Patch, ProtocolError, ShardDelta
from agileml.partition import PartitionState

SHARDS, ROWS = 3, 5
History: TypeAlias = list[tuple[dict[int, float], ...]]

deltas = st.dictionaries(st.integers(0, ROWS - 1), st.floats(-8, 8, width=32), max_size=ROWS)
clocks = st.lists(st.tuples(*[deltas] * SHARDS), min_size=1, max_size=6)


def patch(content: dict[int, float]) -> Patch:
    rows = np.array(sorted(content), np.int64)
    return Patch(
        rows, np.array([[content[row]] for row in sorted(content)], np.float32).reshape(len(rows), 1)
    )


def fresh(staleness: int = 0) -> PartitionState:
    return PartitionState(np.arange(ROWS, dtype=np.float32).reshape(ROWS, 1), 0, SHARDS, staleness)


ALL = np.arange(ROWS)


@given(clocks, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_and_repetition_of_deltas_do_not_show(history: History, random: Random) -> None:
    tidy, messy = fresh(), fresh()
    for clock, contents in enumerate(history, 1):
        arriving = [ShardDelta(shard, patch(content)) for shard, content in enumerate(contents)]
        tidy.update(clock, arriving)
        shuffled = arriving * 2
        random.shuffle(shuffled)
        for delta in shuffled:
            messy.update(clock, (delta,))
            messy.update(clock, (delta,))
        tidy.complete()
        messy.complete()
        assert messy.complete() is None
    assert tidy.clock == messy.clock == len(history)
    assert tidy.values.tobytes() == messy.values.tobytes()


@given(clocks, st.data())
@settings(max_examples=60, deadline=None)
def test_rolling_back_restores_every_bit_and_reads_see_their_version(
    history: History, data: st.DataObject
) -> None:
    state = fresh()
    versions = [state.values.copy()]
    for clock, contents in enumerate(history, 1):
        state.update(clock, [ShardDelta(shard, patch(content)) for shard, content in enumerate(contents)])
        state.complete()
        versions.append(state.values.copy())
        assert state.read(ALL, clock).tobytes() == versions[clock - 1].tobytes()
        assert state.read(ALL, clock + 1).tobytes() == versions[clock].tobytes()
    to = data.draw(st.integers(0, len(history)))
    backup = PartitionState(versions[to].copy(), to, SHARDS, 0)
    for _, missing in state.patches_after(to):
        backup.overwrite(missing)
    assert backup.values.tobytes() == state.values.tobytes()
    for copy in (state, backup):
        copy.rollback(to)
        assert copy.values.tobytes() == versions[to].tobytes()


def test_a_clock_waits_for_every_shard_even_for_one_that_adds_nothing() -> None:
    state = fresh()
    state.update(1, [ShardDelta(0, patch({1: 2.0})), ShardDelta(2, patch({}))])
    assert state.complete() is None
    state.update(1, [ShardDelta(1, patch({}))])
    touched = state.complete()
    assert touched is not None
    assert touched.rows.tolist() == [1]
    assert touched.values.tolist() == [[3.0]]


def test_trimming_keeps_what_a_failure_or_a_read_may_need() -> None:
    state = fresh()
    for clock in range(1, 5):
        state.update(clock, [ShardDelta(shard, patch({0: 1.0})) for shard in range(SHARDS)])
        state.complete()
    state.trim(backed=2)
    assert [undo.clock for undo in state.undo] == [3, 4]
    state.trim(backed=4)
    assert [undo.clock for undo in state.undo] == [4]
    with pytest.raises(ProtocolError, match="cannot return from clock 4 to 1"):
        state.rollback(1)


def test_stale_reads_see_what_has_arrived_and_only_that() -> None:
    state = fresh(staleness=1)
    state.update(2, [ShardDelta(0, patch({0: 5.0}))])
    state.update(1, [ShardDelta(0, patch({0: 1.0}))])
    assert state.read(ALL, 2)[0].tolist() == [6.0]
    state.update(1, [ShardDelta(1, patch({})), ShardDelta(2, patch({1: 1.0}))])
    state.complete()
    assert state.values[0].tolist() == [1.0]
    assert state.read(ALL, 2)[:2].ravel().tolist() == [6.0, 2.0]
    state.rollback(0)
    assert state.read(ALL, 1).ravel().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
