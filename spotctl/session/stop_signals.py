"""Turns INT, TERM and HUP into KeyboardInterrupt wherever no run has to be ended in order.

While a run trains, ``interrupts.py`` answers these signals: they are requests to cancel. Before that, and
after its record is closed, there is nothing to save, and whatever goes on is left at once.
"""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import Final, Self

from spotctl.session.interrupts import signalled
from spotctl.timesource import stopwatch

_DEAF_S: Final = 1.0


class StopSignals:
    """Entered with ``with``: raises KeyboardInterrupt when a signal comes.

    Signals that follow within a second are ignored: a terminal that is closed sends several, and each would
    break off the clean-up after the one before.
    """

    def __init__(self) -> None:
        self._waiting = self._held = False
        self._raised_at = -inf
        self._caught = signalled(self._hear)

    def __enter__(self) -> Self:
        self._caught.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caught.__exit__(kind, error, trace)

    def hold(self) -> None:
        """From now on signals wait for ``release``."""
        self._held = True

    def release(self) -> None:
        """Raises KeyboardInterrupt where a signal has waited, and from now on as soon as one comes."""
        self._held = False
        self._raise()

    def _hear(self, _: int) -> None:
        self._waiting = True
        self._raise()

    def _raise(self) -> None:
        if self._held or not self._waiting:
            return
        self._waiting = False
        if stopwatch() - self._raised_at > _DEAF_S:
            self._raised_at = stopwatch()
            raise KeyboardInterrupt
