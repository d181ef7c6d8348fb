"""One partition of the model: its values, what undoes them, and the deltas still waiting.

The same structure on ParamServs, ActivePSs and BackupPSs. It knows clocks and rows, and refuses to know
machines, epochs or messages. Deterministic: the deltas of a clock are summed in shard order, whatever
order they came in, so that with staleness 0 the model is bit for bit the same under any elasticity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from agileml.messages import Matrix, Patch, PendingDelta, ProtocolError, Rows, ShardDelta, Undo


@dataclass(frozen=True, slots=True)
class Shape:
    """The whole model: a float32 matrix."""

    rows: int
    columns: int


def rows_of(shape: Shape, partition: int, partitions: int) -> Rows:
    """The global rows of a partition, in local order: r with r % N == partition.

    >>> rows_of(Shape(7, 2), 1, 3)
    array([1, 4])
    """
    return np.arange(partition, shape.rows, partitions, dtype=np.int64)


class PartitionState:
    """Values at the completed clock C (``clock``), and how to get from there to its neighbours.

    ``shards``: how many deltas complete a clock; ``staleness``: the SSP bound s.
    """

    __slots__ = ("_live", "_pending", "_shards", "_staleness", "_undo", "clock", "values")

    def __init__(
        self,
        values: Matrix,
        clock: int,
        shards: int,
        staleness: int,
        undo: Iterable[Undo] = (),
        pending: Iterable[PendingDelta] = (),
    ) -> None:
        self.values = values
        self.clock = clock
        self._shards = shards
        self._staleness = staleness
        self._undo = {step.clock: step.patch for step in undo}
        self._pending: dict[int, dict[int, Patch]] = {}
        self._live = values.copy() if staleness else values
        for late in pending:
            self.update(late.clock, (late.delta,))

    @property
    def undo(self) -> tuple[Undo, ...]:
        return tuple(Undo(clock, patch) for clock, patch in sorted(self._undo.items()))

    @property
    def pending(self) -> tuple[PendingDelta, ...]:
        """In order of clock and shard."""
        return tuple(
            PendingDelta(clock, ShardDelta(shard, patch))
            for clock, deltas in sorted(self._pending.items())
            for shard, patch in sorted(deltas.items())
        )

    def read(self, rows: Rows, clock: int) -> Matrix:
        """A copy of ``rows`` as computing ``clock`` may see them, shape (len(rows), columns).

        With s = 0 exactly the version clock - 1 (for clock C or C + 1); otherwise everything that has
        arrived, which is all of clock - s - 1 and read-your-writes.
        """
        if self._staleness or clock == self.clock + 1:
            return self._live[rows]
        if clock != self.clock or clock not in self._undo:
            raise ProtocolError(f"version {clock - 1} was asked of a partition at clock {self.clock}")
        return self._before(rows, self._undo[clock])

    def _before(self, rows: Rows, undo: Patch) -> Matrix:
        values = self.values[rows]
        if len(undo.rows):
            place = np.minimum(np.searchsorted(undo.rows, rows), len(undo.rows) - 1)
            touched = undo.rows[place] == rows
            values[touched] = undo.values[place[touched]]
        return values

    def update(self, clock: int, deltas: Iterable[ShardDelta]) -> None:
        """Keep deltas of a clock beyond C, each (shard, clock) at most once; older ones are known already."""
        if clock <= self.clock:
            return
        known = self._pending.setdefault(clock, {})
        for delta in deltas:
            if delta.shard in known:
                continue
            known[delta.shard] = delta.patch
            if self._staleness:
                self._live[delta.patch.rows] += delta.patch.values

    def complete(self) -> Patch | None:
        """Move to clock C + 1 if all its deltas are in; returns the rows it touched with their new values."""
        if len(self._pending.get(self.clock + 1, ())) < self._shards:
            return None
        deltas = self._pending.pop(self.clock + 1)
        rows = np.unique(np.concatenate([patch.rows for patch in deltas.values()]))
        total = np.zeros((len(rows), self.values.shape[1]), np.float32)
        for _, patch in sorted(deltas.items()):
            total[np.searchsorted(rows, patch.rows)] += patch.values
        after = Patch(rows, self.values[rows] + total)
        self.overwrite(after)
        self._refresh_live()
        return after

    def overwrite(self, patch: Patch) -> None:
        """Move to clock C + 1 by setting the rows it touched, remembering what they held."""
        self.clock += 1
        self._undo[self.clock] = Patch(patch.rows, self.values[patch.rows])
        self.values[patch.rows] = patch.values

    def patches_after(self, clock: int) -> tuple[tuple[int, Patch], ...]:
        """(k, the rows clock k touched with their values at its end) for every clock k beyond ``clock``.

        What a backup at ``clock`` or later may lack; as far back as the undo reaches.
        """
        values, patches = self.values.copy(), []
        for step in sorted((step for step in self._undo if step > clock), reverse=True):
            undo = self._undo[step]
            patches.append((step, Patch(undo.rows, values[undo.rows])))
            values[undo.rows] = undo.values
        return tuple(reversed(patches))

    def rollback(self, clock: int) -> None:
        """Back to the end of ``clock``, bit for bit; every pending delta is dropped.

        Raises ProtocolError when what undoes it was trimmed already, or it was never reached.
        """
        missing = [step for step in range(clock + 1, self.clock + 1) if step not in self._undo]
        if clock > self.clock or missing:
            raise ProtocolError(f"cannot return from clock {self.clock} to {clock}: no undo of {missing}")
        for step in range(self.clock, clock, -1):
            undo = self._undo.pop(step)
            self.values[undo.rows] = undo.values
        self.clock = clock
        self.drop_pending()

    def drop_pending(self) -> None:
        self._pending.clear()
        self._refresh_live()

    def trim(self, backed: int) -> None:
        """Forget how to return to before ``backed``, but never what a read may still ask for."""
        oldest = min(backed, self.clock - self._staleness - 1)
        for step in [step for step in self._undo if step <= oldest]:
            del self._undo[step]

    def _refresh_live(self) -> None:
        if not self._staleness:
            return
        self._live = self.values.copy()
        for late in self.pending:
            self._live[late.delta.patch.rows] += late.delta.patch.values
