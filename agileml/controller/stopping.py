"""Tells when a job ends before its last clock because its objective has converged.

Convergence follows from what workers reported alone, so a restarted controller comes to the same answer. How
much time has passed is for a caller with a clock to say.
"""

from __future__ import annotations


class ConvergenceCheck:
    """Takes the objective clock by clock."""

    def __init__(self, delta: float | None) -> None:
        self._delta = delta
        self._last: float | None = None

    def has_converged(self, value: float) -> bool:
        """Whether ``value``, the latest, ends the job: it differs from the one before by at most ``delta``.

        >>> check = ConvergenceCheck(0.1)
        >>> [check.has_converged(value) for value in (3.0, 2.0, 1.95)]
        [False, False, True]
        """
        last, self._last = self._last, value
        return self._delta is not None and last is not None and abs(last - value) <= self._delta
