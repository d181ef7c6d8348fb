"""Turns INT, TERM and HUP into KeyboardInterrupt wherever no run has to be ended in order.

While a run trains, ``interrupts.py`` handles these signals: they are requests to cancel. Before that, and
after its record is closed, there is nothing to save, and the program stops at once.
"""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import Final, Self

from spotctl.session.interrupts import handle_signals
from spotctl.timesource import stopwatch

_DEAF_S: Final = 1.0


class StopSignals:
    """Raises KeyboardInterrupt when a signal comes, inside ``with``.

    Signals that follow within a second are ignored: a closing terminal sends several, and each would
    break off the clean-up after the one before.
    """

    def __init__(self) -> None:
        self._waiting = self._held = False
        self._raised_at = -inf
        self._caught = handle_signals(self._on_signal)

    def __enter__(self) -> Self:
        self._caught.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caught.__exit__(kind, error, trace)

    def defer_signals(self) -> None:
        """Makes signals wait for ``deliver_signals`` from now on."""
        self._held = True

    def deliver_signals(self) -> None:
        """Raises KeyboardInterrupt where a signal has waited, and from now on as soon as one comes."""
        self._held = False
        self._raise_if_due()

    def _on_signal(self, _: int) -> None:
        self._waiting = True
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self._held or not self._waiting:
            return
        self._waiting = False
        # The one before is still being cleaned up after.
        if stopwatch() - self._raised_at > _DEAF_S:
            self._raised_at = stopwatch()
            raise KeyboardInterrupt
