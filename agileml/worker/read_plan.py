"""Computes once which of a worker's rows are in which partition, and which shard needs which of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct

from agileml.node.arrays import Rows
from agileml.protocol.messages import Patch
from agileml.row_math import as_slice, fastest_index


class PartitionRows(Struct, frozen=True):
    """The rows among others that are in one partition: their local numbers, and their places among the
    others.
    """

    partition: int
    local: Rows
    places: slice | Rows


class ReadPlan(Struct, frozen=True):
    """The global rows that a set of shards needs, by partition, and the places of each shard's rows among
    them.
    """

    rows: Rows
    shares: Mapping[int, PartitionRows]
    places: Mapping[int, slice | Rows]


class ReadPlanner:
    """Makes read plans. ``rows(shard)``: the global rows a shard reads, sorted and unique (constant over the
    job).
    """

    def __init__(self, partitions: int, rows: Callable[[int], Rows]) -> None:
        self._partitions = partitions
        self._rows = rows
        self.plan = lru_cache(maxsize=8)(self._make_plan)
        self._own_shares = lru_cache(maxsize=64)(lambda shard: _rows_by_partition(rows(shard), partitions))

    def split_delta(self, shard: int, delta: Patch) -> list[Patch]:
        """Splits a delta into one for each partition, in local rows, empty ones too: a
        server counts shards.
        """
        own = self._rows(shard)
        # Most applications change exactly the rows that they read, whose split is cached.
        same = delta.rows is own or np.array_equal(delta.rows, own)
        shares = self._own_shares(shard) if same else _rows_by_partition(delta.rows, self._partitions)
        return [Patch(share.local, delta.values[share.places]) for share in shares]

    def _make_plan(self, shards: tuple[int, ...]) -> ReadPlan:
        of = {shard: self._rows(shard) for shard in shards}
        rows = next(iter(of.values())) if len(of) == 1 else np.unique(np.concatenate(tuple(of.values())))
        shares = {
            share.partition: share for share in _rows_by_partition(rows, self._partitions) if len(share.local)
        }
        places = {shard: _find_places(mine, rows) for shard, mine in of.items()}
        return ReadPlan(rows, shares, places)


def _rows_by_partition(rows: Rows, partitions: int) -> tuple[PartitionRows, ...]:
    """Returns the rows of each partition, in order. Of consecutive rows every N-th is a partition's: no
    lookup needed.
    """
    run = as_slice(rows)
    if run is None or not len(rows):
        owner = rows % partitions
        found: list[slice | Rows] = [np.flatnonzero(owner == p) for p in range(partitions)]
    else:
        found = [slice((p - run.start) % partitions, None, partitions) for p in range(partitions)]
    return tuple(PartitionRows(p, rows[places] // partitions, places) for p, places in enumerate(found))


def _find_places(some: Rows, among: Rows) -> slice | Rows:
    """Returns the places of ``some`` rows among others."""
    if len(some) == len(among):
        return slice(None)
    return fastest_index(np.searchsorted(among, some))
