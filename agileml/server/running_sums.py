"""Keeps the sums of clocks that are not complete yet, where every shard has rows of its own.

Often the deltas of a clock are neighbouring runs of rows, one of each shard, which together are the whole
partition. Then those of the next clocks most likely are the same runs. So each delta is added as soon as it
comes, to its part of a new array, rather than all of them when the last one is there; stale reads see what
was added. As soon as a delta has other rows nothing of this is used, until it begins anew.

Like the values, an array that was given out is never written to again; this holds for each run once its delta
is in.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch, ShardDelta
from agileml.row_math import as_slice, neighbouring_runs


class RunningSums:
    """The sums of one partition. Its owner reports when deltas come (each once) and when they are dropped."""

    __slots__ = ("_at", "_begun", "_newest", "_rows", "_runs")

    def __init__(self) -> None:
        self._runs: dict[int, slice] = {}  # by shard; empty where they are not known
        self._at: dict[int, slice] = {}  # by their first rows
        self._rows: Rows = np.empty(0, np.int64)  # all of the partition
        self._begun: dict[int, tuple[Matrix, set[int]]] = {}  # by clock: its values, and whose deltas are in
        self._newest: dict[int, Matrix] = {}  # by the first row of a run: where the last sum of it is

    def learn_runs(self, deltas: Mapping[int, Patch], extent: int) -> None:
        """Learns the runs from the deltas of a complete clock, by shard, in a partition
        of ``extent`` rows.
        """
        self.discard_runs()
        runs = neighbouring_runs(list(deltas.values())) if len(deltas) > 1 else None
        if runs is not None and runs[-1].stop - runs[0].start == extent:
            self._at = {run.start: run for run in runs}
            self._runs = {shard: self._at[int(patch.rows[0])] for shard, patch in deltas.items()}
            if len(self._rows) != extent:
                self._rows = np.arange(extent, dtype=np.int64)

    def discard_runs(self) -> None:
        """Forgets which rows the next deltas have."""
        self._runs, self._at = {}, {}
        self.clear_sums()

    def clear_sums(self) -> None:
        """Drops all sums: no delta is pending any more."""
        self._begun.clear()
        self._newest.clear()

    def add_delta(self, clock: int, delta: ShardDelta, values: Matrix, completed: int) -> None:
        """Adds a delta; a shard's come in the order of clocks. ``values``: those at the
        end of ``completed``.
        """
        if not self._runs:
            return
        run, before = self._runs.get(delta.shard), self._begun.get(clock - 1)
        if clock == completed + 1:
            below = values
        elif before is not None and delta.shard in before[1]:
            below = before[0]
        else:
            run = None
        # The pattern is broken. Sums of other shards go too, as their array would lack this delta.
        if run is None or as_slice(delta.patch.rows) != run:
            self.discard_runs()
            return
        # Uninitialised: every part is written by exactly one shard before anybody reads it.
        if clock not in self._begun:
            self._begun[clock] = np.empty_like(values), set()
        after, known = self._begun[clock]
        np.add(below[run], delta.patch.values, out=after[run])
        known.add(delta.shard)
        self._newest[run.start] = after

    def take_values(self, clock: int) -> Patch | None:
        """Returns the values at the end of ``clock``; None unless the deltas of all shards were added as they
        came.
        """
        begun = self._begun.pop(clock, None)
        # A barrier may complete a clock without some shard: its part of the array was never written.
        if begun is None or len(begun[1]) < len(self._runs):
            return None
        return Patch(self._rows, begun[0])

    def is_single_run(self, rows: Rows) -> bool:
        """Whether these are the rows of one shard, and nobody else's deltas touch them."""
        run = self._at.get(int(rows[0])) if len(rows) else None
        return run is not None and run == as_slice(rows)

    def newest_values(self, rows: Rows) -> Matrix | None:
        """Returns all that has arrived for these rows of a single run, not to be written to; None: the values
        have it.
        """
        first = int(rows[0])
        return self._newest[first][self._at[first]] if first in self._newest else None
