"""Implements arithmetic on rows: sorted, unique row numbers, and the values that belong to them.

Training of a dense model touches every row in every clock. So a run of consecutive rows is recognised by its
two ends and becomes a slice: no gather, no scatter and, where all rows are wanted, no copy. Other sets of
rows are looked up in tables as long as the partition, which beats sorting and searching.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch


def as_slice(rows: Rows) -> slice | None:
    """Returns consecutive rows as a slice; None where they leave gaps. Empty rows are the empty slice."""
    if not len(rows):
        return slice(0, 0)
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else None


def fastest_index(rows: Rows) -> slice | Rows:
    """Returns the fastest way to address these rows."""
    found = as_slice(rows)
    return rows if found is None else found


def unite_rows(parts: Sequence[Rows], extent: int) -> Rows:
    """Returns all rows below ``extent`` that occur in any part, sorted and unique."""
    if len(parts) == 1:
        return parts[0]
    if any(len(part) == extent for part in parts):
        return np.arange(extent, dtype=np.int64)
    seen = np.zeros(extent, np.bool_)
    for part in parts:
        seen[fastest_index(part)] = True
    return np.flatnonzero(seen)


def place_table(among: Rows, extent: int) -> Rows:
    """Returns for every row below ``extent`` its place in ``among``; -1 where it has none."""
    found = np.full(extent, -1, np.int64)
    found[fastest_index(among)] = np.arange(len(among))
    return found


def sum_in_order(deltas: Sequence[Patch], extent: int) -> Patch:
    """Returns the sum of deltas, added in the order given: one order, one result, to the last bit.

    The values may be those of the only delta: they are not to be changed.
    """
    if len(deltas) == 1:
        return deltas[0]
    rows = unite_rows([delta.rows for delta in deltas], extent)
    if all(len(delta.rows) == len(rows) for delta in deltas):
        # A new array to add to: the deltas themselves may be sent on to another server.
        total = deltas[0].values + deltas[1].values
        for delta in deltas[2:]:
            total += delta.values
        return Patch(rows, total)
    total = np.zeros((len(rows), deltas[0].values.shape[1]), np.float32)
    place = None if len(rows) == extent else place_table(rows, extent)
    for delta in deltas:
        where = fastest_index(delta.rows)
        total[where if place is None else place[where]] += delta.values
    return Patch(rows, total)


def add_in_order(values: Matrix, deltas: Sequence[Patch]) -> Patch:
    """Returns the rows that deltas touch, with ``values`` and all deltas added there in the order given.

    Deltas of neighbouring runs, as of shards that have rows of their own, are added each to its part of the
    values in one pass. A new array; ``values`` holds no -0.0, so it is the same to the last bit.
    """
    runs = neighbouring_runs(deltas) if len(deltas) > 1 else None
    if runs is not None:
        rows = np.arange(runs[0].start, runs[-1].stop, dtype=np.int64)
        after = np.empty((len(rows), values.shape[1]), np.float32)
        for delta in deltas:
            first, end = int(delta.rows[0]), int(delta.rows[-1]) + 1
            np.add(values[first:end], delta.values, out=after[first - rows[0] : end - rows[0]])
        return Patch(rows, after)
    total = sum_in_order(deltas, len(values))
    own = total.values if len(deltas) > 1 else None
    below = values if len(total.rows) == len(values) else values[fastest_index(total.rows)]
    return Patch(total.rows, np.add(below, total.values, out=own))


def neighbouring_runs(deltas: Sequence[Patch]) -> list[slice] | None:
    """Returns the runs of their rows, in order, where each begins at the end of the last; else None."""
    runs = [as_slice(delta.rows) for delta in deltas if len(delta.rows)]
    known = sorted((run for run in runs if run is not None), key=lambda run: int(run.start))
    if not 1 < len(known) == len(deltas):
        return None
    meet = all(before.stop == after.start for before, after in pairwise(known))
    return known if meet else None


def overlay_rows(below: Matrix, rows: Rows, top: Patch, extent: int) -> Matrix:
    """Returns the values of ``rows``, with those of ``top`` where it has the row.
    ``below`` stays as it is.
    """
    if len(top.rows) == extent:
        return top.values if len(rows) == extent else top.values[fastest_index(rows)]
    place = place_table(rows, extent)[fastest_index(top.rows)]
    common = place >= 0
    values = below.copy()
    values[place[common]] = top.values[common]
    return values


def merge_undo(older: Patch, newer: Patch, extent: int) -> Patch:
    """Returns the rows of both patches; the older values where both have the row."""
    if len(older.rows) == extent or not len(newer.rows):
        return older
    if not len(older.rows):
        return newer
    rows = unite_rows([older.rows, newer.rows], extent)
    values = np.empty((len(rows), older.values.shape[1]), np.float32)
    place = place_table(rows, extent)
    values[place[fastest_index(newer.rows)]] = newer.values
    values[place[fastest_index(older.rows)]] = older.values
    return Patch(rows, values)
