"""Measures how long others were silent, for a process that may itself have been stopped meanwhile.

A laptop that sleeps stops both speakers and listeners. Nobody can be heard then, and that is no silence: it
is measured in the seconds in which the listener ran. The rule for users of this module is to call ``wake_up``
first when they wake up, and only then to take what has come.
"""

from __future__ import annotations

from collections.abc import Iterable


class SilenceTimer:
    """Measures silence. Times are seconds of a clock that never goes back, told by the process.

    ``longest_wait_s``: the longest time between two ``wake_up`` of a process that is not stopped; anything
    beyond does not count as its own time. ``names``: the peers that are taken to have been heard at ``now``.
    """

    def __init__(self, now: float, longest_wait_s: float, names: Iterable[str] = ()) -> None:
        self._now = now
        self._longest_wait_s = longest_wait_s
        self._heard_at = dict.fromkeys(names, now)

    def wake_up(self, now: float) -> None:
        """Records that the process runs. Call it before taking anything that has come by ``now``.

        Silence is measured as of then, until the next call.
        """
        stopped_s = max(0.0, now - self._now - self._longest_wait_s)
        self._now = now
        if stopped_s:
            self._heard_at = {name: at + stopped_s for name, at in self._heard_at.items()}

    def mark_heard(self, name: str, grace_s: float = 0.0) -> None:
        """Records a sign of life. ``grace_s``: until the next one is expected at the earliest."""
        self._heard_at[name] = self._now + grace_s

    def silent_s(self, name: str) -> float:
        """Returns seconds of silence, negative within a grace. A name that is new is silent from now on."""
        return self._now - self._heard_at.setdefault(name, self._now)
