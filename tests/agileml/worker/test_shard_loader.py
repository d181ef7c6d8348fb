"""Tests what a worker keeps in memory, and when it reads: in the background, once, and within its room."""

from __future__ import annotations

import select
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.api import Arrays
from agileml.worker.shard_cache import ShardCache
from agileml.worker.shard_loader import ShardLoader

SIZE = 80


def arrays(number: int) -> Arrays:
    return {"x": np.full(SIZE // 8, float(number))}


def filled(room: int | None, *numbers: int) -> ShardCache:
    cache = ShardCache(room)
    for number in numbers:
        cache.add_shard(number, arrays(number))
    return cache


def test_without_a_bound_everything_stays() -> None:
    assert filled(None, *range(50)).cached_shards == frozenset(range(50))


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = filled(3 * SIZE, 1, 2, 3)
    assert cache.get_shard(1) is not None
    cache.add_shard(4, arrays(4))
    assert cache.cached_shards == {1, 3, 4}
    assert cache.get_shard(2) is None


def test_what_is_owned_or_ahead_stays_before_what_was_used_lately() -> None:
    cache = filled(3 * SIZE, 1, 2, 3)
    cache.set_wanted([1], [2])
    cache.add_shard(4, arrays(4))
    assert cache.cached_shards == {1, 2, 4}
    cache.add_shard(5, arrays(5))
    assert cache.cached_shards == {1, 2, 5}
    cache.set_wanted([1, 2, 6], [])
    cache.add_shard(6, arrays(6))
    assert cache.cached_shards == {1, 2, 6}


def test_of_more_than_there_is_room_for_the_one_read_last_stays() -> None:
    cache = ShardCache(SIZE)
    cache.set_wanted([0, 1, 2], [])
    for number in (0, 1, 2, 0):
        cache.add_shard(number, arrays(number))
        assert cache.get_shard(number) is not None
        assert cache.cached_shards == {number}


def test_reading_ahead_ends_when_the_room_does() -> None:
    cache = ShardCache(2 * SIZE)
    cache.set_wanted([0], [5, 6, 7])
    read = []
    while (number := cache.next_to_read()) is not None:
        read.append(number)
        cache.add_shard(number, arrays(number))
        assert len(read) < 10, f"it reads {read} again and again"
    assert read[:3] == [0, 5, 6]
    assert 0 in cache.cached_shards


def test_what_has_no_room_at_all_can_still_be_computed() -> None:
    with loading(Reader(), room=SIZE // 2) as made:
        made.set_wanted([1, 2], [])
        assert [shard["x"][0] for shard in made.get_shards([1, 2])] == [1, 2]


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sets(st.integers(0, 9)), st.lists(st.integers(0, 9), unique=True)), max_size=6),
    st.lists(st.integers(0, 9), max_size=12),
)
@settings(max_examples=100, deadline=None)
def test_memory_is_bounded_and_reading_comes_to_an_end(
    room: int, wants: list[tuple[set[int], list[int]]], used: list[int]
) -> None:
    cache = ShardCache(room * SIZE)
    for owned, ahead in wants:
        cache.set_wanted(owned, ahead)
        for _ in range(20):
            number = cache.next_to_read()
            if number is None:
                break
            cache.add_shard(number, arrays(number))
        assert cache.next_to_read() is None
        assert cache.size_bytes <= room * SIZE
        if len(owned) <= room:
            assert owned <= cache.cached_shards
        for number in used:
            found = cache.get_shard(number)
            assert (found is None) == (number not in cache.cached_shards)
            assert found is None or found["x"][0] == number


# ---- with threads --------------------------------------------------------------------------------


class Reader:
    """Counts what is read; ``gates`` hold reading back."""

    def __init__(self) -> None:
        self.read: Counter[int] = Counter()
        self.gates: dict[int, threading.Event] = {}

    def __call__(self, number: int) -> Arrays:
        assert number not in self.gates or self.gates[number].wait(60)
        self.read[number] += 1
        return arrays(number)


@contextmanager
def loading(reader: Reader, room: int | None = None) -> Iterator[ShardLoader]:
    made = ShardLoader(reader, ShardCache(room), threads=2)
    yield made
    for gate in reader.gates.values():
        gate.set()
    made.close()


def collect(made: ShardLoader, wanted: set[int]) -> None:
    """Wait until all of these were told."""
    told: set[int] = set()
    until = time.monotonic() + 60
    while told != wanted:
        assert time.monotonic() < until, f"told {told}, not {wanted}"
        select.select([made.wake_fd], [], [], 0.05)
        news = made.collect_loaded()
        told = told if news is None else set(news[0])


def test_taking_over_what_was_preloaded_costs_no_read() -> None:
    reader = Reader()
    with loading(reader) as made:
        made.set_wanted([0, 1], [5, 6])
        collect(made, {0, 1, 5, 6})
        made.set_wanted([0, 1, 5, 6], [])
        assert [shard["x"][0] for shard in made.get_shards([5, 0, 6])] == [5, 0, 6]
        made.set_wanted([1], [])
        made.set_wanted([0, 1], [])
        assert made.get_shards([0])
        assert reader.read == {0: 1, 1: 1, 5: 1, 6: 1}


def test_computing_waits_only_for_what_it_needs() -> None:
    reader = Reader()
    first, rest = threading.Event(), threading.Event()
    reader.gates = {3: first, 4: rest, 5: rest}
    with loading(reader) as made:
        made.set_wanted([3], [4, 5])
        assert made.collect_loaded() is None
        threading.Timer(0.1, first.set).start()
        assert made.get_shards([3])[0]["x"][0] == 3, "while nothing else can be read"
        assert not reader.read.keys() & {4, 5}
        rest.set()
        collect(made, {3, 4, 5})
        assert reader.read[3] == 1, "what is being read already is not read again"


def test_what_cannot_be_read_is_raised_where_it_is_needed() -> None:
    def fails(number: int) -> Arrays:
        raise OSError(f"shard {number} is not there")

    made = ShardLoader(fails, ShardCache(), threads=1)
    made.set_wanted([2], [])
    with pytest.raises(OSError, match="shard 2"):
        made.get_shards([2])
    made.close()


def test_it_says_when_there_is_no_room_for_the_rest() -> None:
    reader = Reader()
    with loading(reader, room=2 * arrays(0)["x"].nbytes) as made:
        made.set_wanted([0], [1, 2, 3])
        told: tuple[tuple[int, ...], bool] = ((), False)
        until = time.monotonic() + 60
        while not told[1]:
            assert time.monotonic() < until, f"told {told}"
            select.select([made.wake_fd], [], [], 0.05)
            told = made.collect_loaded() or told
        assert len(told[0]) == 2
        made.set_wanted([0], [1])
        collect(made, {0, 1})
