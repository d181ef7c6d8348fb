"""Holds one partition of the model: its values, what undoes them, and the deltas still waiting.

The same structure serves ParamServs, ActivePSs and BackupPSs. It knows clocks and rows, but no machines,
epochs or messages. Deterministic: the deltas of a clock are summed in shard order, whatever order they came
in, so that with staleness 0 the model is bit for bit the same under any elasticity.

Arrays that were given out (read, sent, kept as undo) are never written to again. A clock that touches every
row makes a new array and keeps the old one as its undo, which copies nothing. A clock that touches some rows
writes in place, after a copy if the array was given out. So a part of the values is given out as a view where
the last clock made a new array, as the next one likely will, and as a copy where it wrote in place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch, PendingDelta, ProtocolError, ShardDelta, Undo
from agileml.row_math import add_in_order, fastest_index
from agileml.server.running_sums import RunningSums
from agileml.server.stale_view import StaleView
from agileml.server.undo_log import UndoLog
from agileml.sync.base import Barrier


class PartitionState:
    """Values at the completed clock C (``clock``), and how to get from there to its neighbours.

    ``barrier`` says which deltas complete a clock, and what reads see; ``undo``: in their order.
    """

    __slots__ = (
        "_barrier",
        "_given_out",
        "_made_new",
        "_pending",
        "_running_sums",
        "_stale",
        "clock",
        "undo",
        "values",
    )

    def __init__(
        self,
        values: Matrix,
        clock: int,
        barrier: Barrier,
        undo: Iterable[Undo] = (),
        pending: Iterable[PendingDelta] = (),
    ) -> None:
        self.values = values
        self.clock = clock
        self._given_out = True  # its maker may still hold it
        self._made_new = False  # whether the last clock did
        self._barrier = barrier
        self.undo = UndoLog(len(values), undo)
        self._pending: dict[int, dict[int, Patch]] = {}
        self._running_sums = RunningSums()
        self._stale = StaleView() if barrier.shows_pending else None
        for late in pending:
            self.add_deltas(late.clock, (late.delta,))

    @property
    def pending_deltas(self) -> tuple[PendingDelta, ...]:
        """The waiting deltas, in order of clock and shard."""
        return tuple(
            PendingDelta(clock, ShardDelta(shard, patch))
            for clock, deltas in sorted(self._pending.items())
            for shard, patch in sorted(deltas.items())
        )

    # ---- reading -------------------------------------------------------------------------------

    def read_rows(self, rows: Rows, clock: int) -> Matrix:
        """Returns ``rows`` as computing ``clock`` may see them, shape (len(rows), columns); not to be written
        to.

        Exactly the version clock - 1 (for clock C or C + 1), or everything that has arrived where the barrier
        shows what is pending.
        """
        if self._stale is not None:
            alone = self._running_sums.is_single_run(rows)
            found = (
                self._running_sums.newest_values(rows) if alone else self._stale.read_rows(rows, self.values)
            )
            return self._take_rows(rows) if found is None else found
        if clock == self.clock + 1:
            return self._take_rows(rows)
        if clock != self.clock or not self.undo.is_last_step_of(clock):
            raise ProtocolError(f"version {clock - 1} was asked of a partition at clock {self.clock}")
        return self._rows_at(clock - 1, rows)

    def all_values(self) -> Matrix:
        """Returns all values, not to be written to; they stay as they are."""
        self._given_out = True
        return self.values

    def values_at(self, clock: int) -> Matrix:
        """Returns all values at the end of a clock that can be returned to, not to be written to."""
        return self._rows_at(clock, np.arange(len(self.values)))

    def changes_between(self, since: int, clock: int) -> Patch:
        """Returns the rows that clocks since + 1 to ``clock`` touched, with their values at the end of
        ``clock``.

        This is what a backup at ``since`` or later lacks. Both can be returned to.
        """
        rows = self.undo.changed_rows(since, clock)
        return Patch(rows, self._rows_at(clock, rows))

    def _take_rows(self, rows: Rows) -> Matrix:
        if len(rows) == len(self.values):
            return self.all_values()
        taken: Matrix = self.values[fastest_index(rows)]
        if taken.base is None:  # gathered: a copy already
            return taken
        # The last clock wrote in place, and the next likely will: a view would change under its reader.
        if not self._made_new:
            return taken.copy()
        self._given_out = True
        return taken

    def _rows_at(self, clock: int, rows: Rows) -> Matrix:
        return self.undo.overlay_values(self._take_rows(rows), rows, clock)

    # ---- going on ------------------------------------------------------------------------------

    def add_deltas(self, clock: int, deltas: Iterable[ShardDelta]) -> None:
        """Keeps deltas of a clock beyond C, each (shard, clock) at most once; older
        ones are known already.
        """
        if clock <= self.clock:
            return
        known = self._pending.setdefault(clock, {})
        for delta in deltas:
            if delta.shard in known:
                continue
            known[delta.shard] = delta.patch
            self._running_sums.add_delta(clock, delta, self.values, self.clock)
            if self._stale is not None:
                self._stale.add_delta(delta.patch)

    def has_delta(self, clock: int, shard: int) -> bool:
        """Whether the shard's delta of a clock beyond C waits here."""
        return shard in self._pending.get(clock, ())

    def complete_clock(self, *, keep: bool = True) -> bool:
        """Moves to clock C + 1 if the barrier holds its deltas to be enough. ``keep``: somebody may want to
        return to it later.
        """
        if not self._barrier.is_complete(self.clock + 1, self._pending.get(self.clock + 1, ())):
            return False
        deltas = self._pending.pop(self.clock + 1)
        # Where sums were kept as the deltas came, the last delta leaves nothing to add.
        after = self._running_sums.take_values(self.clock + 1)
        if after is not None:
            # The new values are an array that readers of running sums may still hold.
            self._apply_patch(after, self.clock + 1, given_out=True)
        else:
            after = add_in_order(self.values, [patch for _, patch in sorted(deltas.items())])
            self._apply_patch(after, self.clock + 1, given_out=False)
            self._running_sums.learn_runs(deltas, len(self.values))
            # Learning the runs dropped all sums, so those of later clocks are taken up again.
            for late in self.pending_deltas if self._pending else ():
                self._running_sums.add_delta(late.clock, late.delta, self.values, self.clock)
        if not keep:
            self.undo.mark_loose(self.clock)
        self.undo.merge_loose()
        if self._stale is not None:
            pending = (late.delta.patch for late in self.pending_deltas)
            self._stale.advance_clock(after.rows, self.values, pending)
        return True

    def overwrite_rows(self, patch: Patch, clock: int) -> None:
        """Moves to ``clock`` by setting the rows that were touched since, remembering what they held."""
        self._apply_patch(patch, clock, given_out=True)

    def _apply_patch(self, after: Patch, clock: int, *, given_out: bool) -> None:
        self._made_new = len(after.rows) == len(self.values)
        if self._made_new:
            before = Patch(after.rows, self.values)
            self.values, self._given_out = after.values, given_out
        else:
            self._make_writable()
            where = fastest_index(after.rows)
            before = Patch(after.rows, self.values[where].copy())
            self.values[where] = after.values
        self.undo.add_step(self.clock, clock, before)
        self.clock = clock

    def _make_writable(self) -> None:
        """Makes the values safe to write in place: copies them if they were given out."""
        if self._given_out:
            self.values, self._given_out = self.values.copy(), False

    # ---- going back ----------------------------------------------------------------------------

    def can_return_to(self, clock: int) -> bool:
        """Whether the values at the end of ``clock`` can be restored."""
        return clock == self.clock or self.undo.can_return_to(clock)

    def roll_back(self, clock: int) -> None:
        """Returns to the end of ``clock``, bit for bit; every pending delta is dropped.

        Raises ProtocolError when its undo was trimmed or merged already, or the clock was never reached.
        """
        if not self.can_return_to(clock):
            raise ProtocolError(
                f"cannot return from clock {self.clock} to {clock} over {self.undo.format_ranges()}"
            )
        while self.clock > clock:
            step = self.undo.take_last()
            # The undo of a whole partition is the old array itself: nothing to copy, but others may hold it.
            if len(step.patch.rows) == len(self.values):
                self.values, self._given_out = step.patch.values, True
            else:
                self._make_writable()
                self.values[fastest_index(step.patch.rows)] = step.patch.values
            self.clock = step.since
        self.undo.keep_from(clock)
        self.drop_pending()

    def drop_pending(self) -> None:
        self._pending.clear()
        self._running_sums.clear_sums()
        if self._stale is not None:
            self._stale.clear_pending()

    def trim_undo(self, backed: int) -> None:
        """Drops the undo of clocks before ``backed``, but never what a read may still ask for."""
        # A slow worker may still read the version before the first clock that is not over everywhere.
        self.undo.trim(min(backed, self._barrier.over_clock(self.clock)))
