"""Shows stale reads all of a partition that has arrived, pending deltas too, for the SSP bound s > 0.

Most of the time that equals the values themselves, so an array of its own is made only when somebody reads
while deltas are pending. Like the values, an array that was given out is never written to again: later deltas
go into a new one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch
from agileml.row_math import fastest_index


class StaleView:
    """The partition's values and every pending delta. ``values``: those at the completed clock."""

    __slots__ = ("_given_out", "_own", "_unread")

    def __init__(self) -> None:
        self._own: Matrix | None = None  # None: the values
        self._given_out = False
        self._unread: list[Patch] = []  # what is not in it yet

    def add_delta(self, delta: Patch) -> None:
        """Adds a delta that is pending from now on."""
        self._unread.append(delta)

    def read_rows(self, rows: Rows, values: Matrix) -> Matrix | None:
        """Returns ``rows`` of it, not to be written to; None where the values are all there is."""
        self._add_unread(values)
        if self._own is None:
            return None
        if len(rows) == len(values):
            self._given_out = True
            return self._own
        taken: Matrix = self._own[fastest_index(rows)]
        return taken.copy() if taken.base is not None else taken

    def advance_clock(self, rows: Rows, values: Matrix, pending: Iterable[Patch]) -> None:
        """Moves to a new clock with ``values``, which touched ``rows``. ``pending``:
        the deltas that it left.
        """
        # A clock that touched every row leaves nothing of the own array to keep.
        if self._own is None or len(rows) == len(values):
            self._own, self._unread = None, list(pending)
            return
        self._add_unread(values)
        own = self._writable_values(values)
        where = fastest_index(rows)
        own[where] = values[where]
        touched = np.zeros(len(values), np.bool_)
        touched[where] = True
        for delta in pending:
            again = touched[fastest_index(delta.rows)]
            own[delta.rows[again]] += delta.values[again]

    def clear_pending(self) -> None:
        """Drops all pending deltas."""
        self._own = None
        self._unread.clear()

    def _add_unread(self, values: Matrix) -> None:
        for delta in self._unread:
            if len(delta.rows) == len(values) and (self._own is None or self._given_out):
                below = values if self._own is None else self._own
                self._own, self._given_out = below + delta.values, False  # one pass, not a copy and a sum
            else:
                self._writable_values(values)[fastest_index(delta.rows)] += delta.values
        self._unread.clear()

    def _writable_values(self, values: Matrix) -> Matrix:
        """Returns the array of its own, which nobody else has."""
        if self._own is None:
            self._own = values.copy()
        elif self._given_out:
            self._own = self._own.copy()
        self._given_out = False
        return self._own
