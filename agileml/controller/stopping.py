"""When a job ends before its last clock: after a while, or when the objective has settled.

Whether it has settled follows from what workers reported alone, so a restarted controller comes to the
same answer; how much time is over, only somebody with a clock can say.
"""

from __future__ import annotations


class Settling:
    """Takes the objective clock by clock."""

    def __init__(self, delta: float | None) -> None:
        self._delta = delta
        self._last: float | None = None

    def settled_with(self, value: float) -> bool:
        """Whether ``value``, the latest, is the one that ends it.

        >>> settling = Settling(0.1)
        >>> [settling.settled_with(value) for value in (3.0, 2.0, 1.95)]
        [False, False, True]
        """
        last, self._last = self._last, value
        return self._delta is not None and last is not None and abs(last - value) <= self._delta
