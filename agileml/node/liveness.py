"""For how long others were silent, as heard by a process that may itself have been stopped meanwhile.

A laptop that sleeps stops whoever speaks and whoever listens. Nobody can be heard then, and that is no
silence: it is judged in the seconds in which the listener ran. The rule of whoever uses this is to say
``wake_up`` first when it wakes up, and only then to take what has come.
"""

from __future__ import annotations

from collections.abc import Iterable


class SilenceTimer:
    """Times are seconds of a clock that never goes back, told by the process.

    ``longest_wait_s``: between two ``wake_up`` of a process that is not stopped; what is beyond that is no
    time of its own. ``names``: who is taken to have been heard at ``now``.
    """

    def __init__(self, now: float, longest_wait_s: float, names: Iterable[str] = ()) -> None:
        self._now = now
        self._longest_wait_s = longest_wait_s
        self._heard_at = dict.fromkeys(names, now)

    def wake_up(self, now: float) -> None:
        """Before anything is taken that has come by ``now``. Silence is judged as of then, until the next."""
        stopped_s = max(0.0, now - self._now - self._longest_wait_s)
        self._now = now
        if stopped_s:
            self._heard_at = {name: at + stopped_s for name, at in self._heard_at.items()}

    def mark_heard(self, name: str, grace_s: float = 0.0) -> None:
        """A sign of life. ``grace_s``: until the next one is expected at the earliest."""
        self._heard_at[name] = self._now + grace_s

    def silent_s(self, name: str) -> float:
        """Seconds, negative within a grace. Whoever was never heard of is silent from now on."""
        return self._now - self._heard_at.setdefault(name, self._now)
