from __future__ import annotations

import itertools
from random import Random
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.node.arrays import Matrix
from agileml.protocol.messages import Patch, ProtocolError, ShardDelta
from agileml.server.partition import PartitionState
from agileml.sync.bounded_staleness import BulkSynchronous, StaleSynchronous

SHARDS, ROWS = 3, 5
BSP = BulkSynchronous(SHARDS, lag=2)
History: TypeAlias = list[tuple[dict[int, float], ...]]

deltas = st.dictionaries(st.integers(0, ROWS - 1), st.floats(-8, 8, width=32), max_size=ROWS)
clocks = st.lists(st.tuples(*[deltas] * SHARDS), min_size=1, max_size=6)


def patch(content: dict[int, float]) -> Patch:
    rows = np.array(sorted(content), np.int64)
    return Patch(
        rows, np.array([[content[row]] for row in sorted(content)], np.float32).reshape(len(rows), 1)
    )


def fresh(staleness: int = 0) -> PartitionState:
    values = np.arange(ROWS, dtype=np.float32).reshape(ROWS, 1)
    return PartitionState(values, 0, StaleSynchronous(SHARDS, staleness + 2, staleness))


ALL = np.arange(ROWS)


@given(clocks, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_and_repetition_of_deltas_do_not_show(history: History, random: Random) -> None:
    tidy, messy = fresh(), fresh()
    for clock, contents in enumerate(history, 1):
        arriving = [ShardDelta(shard, patch(content)) for shard, content in enumerate(contents)]
        tidy.add_deltas(clock, arriving)
        shuffled = arriving * 2
        random.shuffle(shuffled)
        for delta in shuffled:
            messy.add_deltas(clock, (delta,))
            messy.add_deltas(clock, (delta,))
        assert tidy.complete_clock()
        assert messy.complete_clock()
        assert not messy.complete_clock()
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
        state.add_deltas(clock, [ShardDelta(shard, patch(content)) for shard, content in enumerate(contents)])
        state.complete_clock()
        versions.append(state.values.copy())
        assert state.read_rows(ALL, clock).tobytes() == versions[clock - 1].tobytes()
        assert state.read_rows(ALL, clock + 1).tobytes() == versions[clock].tobytes()
    to = data.draw(st.integers(0, len(history)))
    backup = PartitionState(versions[to].copy(), to, BSP)
    later = (clock for clock in state.undo.returnable_clocks if clock > to)
    for since, clock in itertools.pairwise((to, *later)):
        backup.overwrite_rows(state.changes_between(since, clock), clock)
    assert backup.values.tobytes() == state.values.tobytes()
    for copy in (state, backup):
        copy.roll_back(to)
        assert copy.values.tobytes() == versions[to].tobytes()


def test_a_clock_waits_for_every_shard_even_for_one_that_adds_nothing() -> None:
    state = fresh()
    state.add_deltas(1, [ShardDelta(0, patch({1: 2.0})), ShardDelta(2, patch({}))])
    assert not state.complete_clock()
    state.add_deltas(1, [ShardDelta(1, patch({}))])
    assert state.complete_clock()
    touched = state.changes_between(0, 1)
    assert touched.rows.tolist() == [1]
    assert touched.values.tolist() == [[3.0]]


def test_trimming_keeps_what_a_failure_or_a_read_may_need() -> None:
    state = fresh()
    for clock in range(1, 5):
        state.add_deltas(clock, [ShardDelta(shard, patch({0: 1.0})) for shard in range(SHARDS)])
        state.complete_clock()
    state.trim_undo(backed=2)
    assert [undo.clock for undo in state.undo.steps] == [3, 4]
    state.trim_undo(backed=4)
    assert [undo.clock for undo in state.undo.steps] == [4]
    with pytest.raises(ProtocolError, match="cannot return from clock 4 to 1"):
        state.roll_back(1)


def test_a_clock_that_all_returned_to_is_kept() -> None:
    """Although nobody was to return to it when it was completed."""
    state = fresh()
    for clock in (1, 2, 3):
        state.add_deltas(clock, [ShardDelta(shard, patch({0: 1.0})) for shard in range(SHARDS)])
        state.complete_clock(keep=clock != 2)
    assert state.undo.returnable_clocks == (1, 3)
    state.roll_back(2)
    assert state.undo.returnable_clocks == (1, 2)


def test_stale_reads_see_what_has_arrived_and_only_that() -> None:
    state = fresh(staleness=1)
    state.add_deltas(2, [ShardDelta(0, patch({0: 5.0}))])
    state.add_deltas(1, [ShardDelta(0, patch({0: 1.0}))])
    assert state.read_rows(ALL, 2)[0].tolist() == [6.0]
    state.add_deltas(1, [ShardDelta(1, patch({})), ShardDelta(2, patch({1: 1.0}))])
    state.complete_clock()
    assert state.values[0].tolist() == [1.0]
    assert state.read_rows(ALL, 2)[:2].ravel().tolist() == [6.0, 2.0]
    state.roll_back(0)
    assert state.read_rows(ALL, 1).ravel().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


whole_numbers = st.dictionaries(st.integers(0, ROWS - 1), st.integers(-9, 9), max_size=ROWS)
"""Sums of them are the same in any order."""
dense = st.lists(st.integers(-9, 9), min_size=ROWS, max_size=ROWS).map(lambda made: dict(enumerate(made)))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_stale_reads_are_the_sum_of_what_has_arrived_whoever_is_ahead(data: st.DataObject) -> None:
    """Shards up to two clocks apart, reads at any moment, of all rows or some; nothing given out changes."""
    state, expected = fresh(staleness=2), np.arange(ROWS, dtype=np.float32)
    at, given_out = [0] * SHARDS, []
    for _ in range(data.draw(st.integers(1, 24))):
        shard = data.draw(st.sampled_from([one for one in range(SHARDS) if at[one] - min(at) < 2]))
        at[shard] += 1
        content = {row: float(value) for row, value in data.draw(whole_numbers | dense).items()}
        state.add_deltas(at[shard], [ShardDelta(shard, patch(content))])
        for row, value in content.items():
            expected[row] += value
        while state.complete_clock():
            pass
        if data.draw(st.booleans()):
            rows = np.array(
                sorted(data.draw(st.sets(st.integers(0, ROWS - 1)) | st.just(set(ALL)))), np.int64
            )
            found = state.read_rows(rows, min(at) + 1)
            assert found.ravel().tolist() == expected[rows].tolist()
            given_out.append((found, found.copy()))
    assert state.clock == min(at)
    assert all(np.array_equal(array, then) for array, then in given_out)
    state.drop_pending()
    assert state.read_rows(ALL, min(at) + 1).tobytes() == state.values.tobytes()


@given(clocks, st.data())
@settings(max_examples=80, deadline=None)
def test_merged_clocks_leave_the_kept_ones_reachable_bit_for_bit(
    history: History, data: st.DataObject
) -> None:
    """A backup that is sent ranges between kept clocks ends up with every bit, and so does a roll-back."""
    state = fresh()
    versions = [state.values.copy()]
    keeps = data.draw(st.lists(st.booleans(), min_size=len(history), max_size=len(history)))
    for clock, (contents, keep) in enumerate(zip(history, keeps, strict=True), 1):
        state.add_deltas(clock, [ShardDelta(shard, patch(content)) for shard, content in enumerate(contents)])
        assert state.complete_clock(keep=keep)
        versions.append(state.values.copy())
        assert state.read_rows(ALL, clock).tobytes() == versions[clock - 1].tobytes()
    kept = (0, *state.undo.returnable_clocks)
    assert kept == (0, *(clock for clock, keep in enumerate(keeps, 1) if keep))
    assert len(state.undo.steps) <= len(kept) + 1  # and the last two clocks, which a read may ask for
    first, last = sorted(data.draw(st.tuples(st.sampled_from(kept), st.sampled_from(kept))))
    backup = PartitionState(versions[first].copy(), first, BSP)
    if first < last:
        backup.overwrite_rows(state.changes_between(first, last), last)
    if last == len(history):
        backup.undo.split_last(state.undo.steps[-1:])
        assert backup.read_rows(ALL, last).tobytes() == versions[last - 1].tobytes()
    assert backup.values.tobytes() == state.values_at(last).tobytes() == versions[last].tobytes()
    moved = PartitionState(state.all_values(), state.clock, BSP, state.undo.steps, state.pending_deltas)
    for copy in (state, moved):
        copy.roll_back(first)
        assert copy.values.tobytes() == versions[first].tobytes()


@given(clocks, st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)))
@settings(max_examples=100, deadline=None)
def test_what_was_given_out_never_changes(history: History, dense: set[int], whole: set[int]) -> None:
    """Arrays on their way over the wire are those of the state, until it has to write."""
    state = fresh()
    given_out = [(state.all_values(), state.all_values().copy())]
    for clock, contents in enumerate(history, 1):
        every = dict.fromkeys(range(ROWS), 1.5) if clock in dense else {}
        deltas = [ShardDelta(shard, patch({**every, **content})) for shard, content in enumerate(contents)]
        state.add_deltas(clock, deltas)
        state.complete_clock()
        now = [state.read_rows(ALL[1:-1], clock + 1), state.read_rows(ALL[::2], clock + 1)]
        if clock in whole:
            now += [
                state.all_values(),
                state.read_rows(ALL, clock),
                state.changes_between(clock - 1, clock).values,
                state.values_at(0),
            ]
        given_out += [(array, array.copy()) for array in now]
    state.roll_back(0)
    state.add_deltas(1, [ShardDelta(shard, patch({0: 9.0})) for shard in range(SHARDS)])
    state.complete_clock()
    assert all(array.tobytes() == then.tobytes() for array, then in given_out)


def test_a_part_is_read_without_a_copy_where_clocks_make_new_arrays() -> None:
    state = fresh()
    for clock, touched in enumerate((ALL, ALL[:1]), 1):
        every = dict.fromkeys(touched.tolist(), 1.0)
        state.add_deltas(clock, [ShardDelta(shard, patch(every)) for shard in range(SHARDS)])
        state.complete_clock()
        part = state.read_rows(ALL[1:-1], clock + 1)
        assert np.shares_memory(part, state.values) is (len(touched) == ROWS)


OWN = (np.array([0, 1]), np.array([2]), np.array([3, 4]))
"""Rows of each shard, which are neighbours of the others' and together all."""


@given(st.data(), st.sampled_from([0, 2]))
@settings(max_examples=150, deadline=None)
def test_where_shards_have_rows_of_their_own_nothing_is_different(
    data: st.DataObject, staleness: int
) -> None:
    """They are added as they come; but sometimes one has others, or time goes back to the last clock."""
    state, at = fresh(staleness), [0] * SHARDS
    known, given_out = [state.values.copy()], []
    arrived: dict[tuple[int, int], Patch] = {}
    for _ in range(data.draw(st.integers(1, 30))):
        shard = data.draw(st.sampled_from([one for one in range(SHARDS) if at[one] - min(at) <= staleness]))
        at[shard] += 1
        rows = data.draw(st.sampled_from([OWN[shard]] * 15 + [ALL, ALL[:0], ALL[1:3]]))
        made = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=len(rows), max_size=len(rows))))
        arrived[at[shard], shard] = Patch(rows, made.astype(np.float32).reshape(-1, 1))
        for _ in range(data.draw(st.integers(1, 2))):
            state.add_deltas(at[shard], [ShardDelta(shard, arrived[at[shard], shard])])
        while state.complete_clock():
            known.append(summed(known[-1], [arrived[state.clock, one] for one in range(SHARDS)]))
        if data.draw(st.integers(0, 9)) == 9 and state.can_return_to(len(known) - 2):
            known.pop()
            state.roll_back(len(known) - 1)
            at = [state.clock] * SHARDS
            arrived = {(clock, one): delta for (clock, one), delta in arrived.items() if clock <= state.clock}
        assert state.values.tobytes() == known[-1].tobytes()
        if data.draw(st.booleans()):
            continue
        rows = data.draw(st.sampled_from([*OWN, ALL, ALL[1:]]))
        late = [delta for (clock, _), delta in sorted(arrived.items()) if clock > state.clock]
        found, expected = state.read_rows(rows, state.clock + 1), summed(known[-1], late if staleness else [])
        assert found.tolist() == expected[rows].tolist()
        given_out.append((found, found.copy()))
    assert len(known) == min(at) + 1
    assert all(np.array_equal(array, then) for array, then in given_out)


def test_what_was_read_of_a_clock_to_come_is_not_written_to_when_it_is_past() -> None:
    state, ones = fresh(staleness=1), [Patch(rows, np.ones((len(rows), 1), np.float32)) for rows in OWN]
    for clock in (1, 2):
        state.add_deltas(clock, [ShardDelta(1, ones[1])])
        found = state.read_rows(OWN[1], clock + 1)
        state.add_deltas(clock, [ShardDelta(0, ones[0]), ShardDelta(2, ones[2])])
        assert state.complete_clock()
    state.add_deltas(3, [ShardDelta(0, patch({})), ShardDelta(1, ones[1]), ShardDelta(2, ones[2])])
    assert state.complete_clock()
    assert found.tolist() == [[4.0]]
    assert state.values.ravel().tolist() == [2.0, 3.0, 5.0, 6.0, 7.0]


def summed(values: Matrix, deltas: list[Patch]) -> Matrix:
    values = values.copy()
    for delta in deltas:
        values[delta.rows] += delta.values
    return values
