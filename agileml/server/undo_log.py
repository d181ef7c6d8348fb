"""Keeps what undoes the latest clocks of a partition, in steps, each back over a range of clocks.

Where nobody may return to the clock between two steps, they are merged, and the older value of a row counts.
So a long range needs no more memory than the rows it touched.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch, ProtocolError, Undo
from agileml.row_math import merge_undo, overlay_rows, unite_rows


class UndoLog:
    """The steps of a partition of ``extent`` rows, in order, from the oldest clock to the completed one."""

    __slots__ = ("_extent", "_loose", "_steps")

    def __init__(self, extent: int, steps: Iterable[Undo] = ()) -> None:
        self._extent = extent
        self._steps = list(steps)
        # Completed clocks that nobody may ask to return to:
        self._loose = {step.clock for step in self._steps if step.loose}

    @property
    def steps(self) -> tuple[Undo, ...]:
        return tuple(replace(step, loose=step.clock in self._loose) for step in self._steps)

    @property
    def returnable_clocks(self) -> tuple[int, ...]:
        """The clocks that can be returned to, but for the one where undo begins."""
        return tuple(step.clock for step in self._steps if step.clock not in self._loose)

    def can_return_to(self, clock: int) -> bool:
        """Whether undoing whole steps leads to the end of ``clock``."""
        return any(step.since == clock for step in self._steps)

    def is_last_step_of(self, clock: int) -> bool:
        """Whether the last step undoes ``clock`` alone."""
        return bool(self._steps) and self._steps[-1].since == clock - 1

    def changed_rows(self, since: int, clock: int) -> Rows:
        """Returns the rows that clocks since + 1 to ``clock`` touched, sorted and unique.

        Raises ProtocolError unless steps begin at ``since`` and end at ``clock``.
        """
        steps = [step for step in self._steps if since < step.clock <= clock]
        if not steps or (steps[0].since, steps[-1].clock) != (since, clock):
            raise ProtocolError(f"({since}, {clock}] is not a range of {self.format_ranges()}")
        return unite_rows([step.patch.rows for step in steps], self._extent)

    def overlay_values(self, values: Matrix, rows: Rows, clock: int) -> Matrix:
        """Returns the values of ``rows`` at the end of ``clock``. ``values``: those of now, which stay as
        they are.
        """
        for step in reversed(self._steps):
            if step.since >= clock:
                values = overlay_rows(values, rows, step.patch, self._extent)
        return values

    def format_ranges(self) -> str:
        return ", ".join(f"({step.since}, {step.clock}]" for step in self._steps) or "none"

    # ---- changes -------------------------------------------------------------------------------

    def add_step(self, since: int, clock: int, before: Patch) -> None:
        """Adds what clocks since + 1 to ``clock`` overwrote."""
        self._steps.append(Undo(since, clock, False, before))

    def mark_loose(self, clock: int) -> None:
        """Records that nobody will return to ``clock``."""
        self._loose.add(clock)

    def merge_loose(self) -> None:
        """Merges the last step but one with the one before, where nobody may return between them."""
        # The last clock stays alone: a slow worker may still read the version before it.
        if len(self._steps) < 3 or self._steps[-3].clock not in self._loose:
            return
        older, newer = self._steps[-3:-1]
        self._loose.remove(older.clock)
        patch = merge_undo(older.patch, newer.patch, self._extent)
        self._steps[-3:-1] = [Undo(older.since, newer.clock, False, patch)]

    def split_last(self, last: Iterable[Undo]) -> None:
        """Ends the last range before its last clock, if ``last`` has a step that undoes that clock alone."""
        for step in last:
            ranges = [replace(range_, clock=step.since) for range_ in self._steps[-1:]]
            if not ranges or ranges[0].since < step.since:
                self._steps[-1:] = [*ranges, replace(step, loose=False)]

    def keep_all(self) -> tuple[int, ...]:
        """Keeps also the steps whose end was loose and is still there; returns all clocks that are kept."""
        self._loose.clear()
        return self.returnable_clocks

    def take_last(self) -> Undo:
        """Removes the last step, which is about to be undone."""
        return self._steps.pop()

    def keep_from(self, clock: int) -> None:
        """Keeps ``clock``, to which all has returned, and forgets what was said of later ones."""
        self._loose = {loose for loose in self._loose if loose < clock}

    def trim(self, oldest: int) -> None:
        """Drops what leads back beyond ``oldest``."""
        self._steps = [step for step in self._steps if step.clock > oldest]
        self._loose = {clock for clock in self._loose if clock > oldest}
