"""Tells the time: the only module of spotctl that reads a clock.

Nominal time is what the core sees and what is billed. Virtual time jumps. Paced time runs at most at
``speed`` times real time and *holds* at the due moment of a real effect that is not done yet (a machine
that should be training, a machine that should be safe to kill), until it is done or its real floor has
run out: nominal notice windows are never squeezed below what a real process needs (decision 1).

Real time in which nothing moved it does not count: a process that was stopped, or was busy for longer than
``LENT_S``, goes on from where it was. Clocks that follow a time source learn how far they may go, and go
no further, so the machines of a job stand still with it (decision 32).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pricing_data.model.units import Instant

_SLICE_S = 0.05
"""Longest real wait before the other sources of news get their turn."""
LENT_S = 0.5
"""Real seconds for which followers go on although nothing moves the time; made up for afterwards."""


def wall_clock() -> float:
    """Returns seconds since the epoch, as the machine believes; for records, never for decisions."""
    return time.time()


def stopwatch() -> float:
    """Returns seconds that only ever grow, from no particular moment."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Waits for ``seconds`` real seconds."""
    time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Effect:
    """Names something real that should be done by the nominal moment ``due``; ``floor_s`` real seconds of
    grace.

    ``needs_work``: the training has to go on computing for it while time stands still.
    """

    name: str
    due: Instant
    floor_s: float
    needs_work: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Records that nominal time stood still for an effect, ``real_s`` seconds long."""

    effect: Effect
    real_s: float
    done: bool


class Follower(Protocol):
    """Shows nominal time elsewhere, as in a machine's processes."""

    def release_until(self, nominal: float, real: float, limit: float, *, awaited: bool = False) -> None:
        """Goes on from ``nominal``, which it showed at ``real`` (seconds since the epoch), to ``limit`` at
        most.

        ``awaited``: time stands still until training has done something.
        """
        ...


class TimeSource(Protocol):
    """Moves nominal time forward. ``now`` only changes inside ``advance``."""

    @property
    def now(self) -> Instant: ...

    def advance(
        self,
        target: Instant | None,
        poll: Callable[[float], bool],
        unfinished: Callable[[], tuple[Effect, ...]],
    ) -> None:
        """Moves towards ``target`` (None: nothing is scheduled, only the outside can bring news).

        ``poll(seconds)`` waits for news from outside and returns whether there is any; ``advance`` then
        returns early. ``unfinished`` lists the effects that time may not run past.
        """
        ...

    def take_pauses(self) -> tuple[Pause, ...]:
        """Returns and forgets the pauses that ended since the last call."""
        ...

    def add_follower(self, follower: Follower) -> None:
        """Tells ``follower`` how far time may go, from now on."""
        ...

    def remove_follower(self, follower: Follower) -> None:
        """Stops telling ``follower``. Harmless when repeated."""
        ...


class VirtualTime:
    """Jumps to the next scheduled moment; nothing outside exists."""

    def __init__(self, start: Instant) -> None:
        self._now = start

    @property
    def now(self) -> Instant:
        return self._now

    def advance(
        self,
        target: Instant | None,
        poll: Callable[[float], bool],
        unfinished: Callable[[], tuple[Effect, ...]],
    ) -> None:
        if target is None:
            raise RuntimeError("nothing is scheduled: virtual time would stand still forever")
        self._now = max(self._now, target)

    def take_pauses(self) -> tuple[Pause, ...]:
        return ()

    def add_follower(self, follower: Follower) -> None:
        """Does nothing: nothing outside exists that could follow."""

    def remove_follower(self, follower: Follower) -> None:
        """Does nothing: nobody follows."""


class PacedTime:
    """Runs ``speed`` times as fast as real time, with pauses. Starts at nominal ``start``."""

    def __init__(self, start: Instant, speed: float) -> None:
        self._now = start
        self._speed = speed
        self._anchor = (float(start), time.monotonic())
        self._held: dict[Effect, float] = {}
        self._given_up: set[Effect] = set()
        self._ended: list[Pause] = []
        self._looked = self._anchor[1]
        self._followers: list[Follower] = []

    @property
    def now(self) -> Instant:
        return self._now

    def add_follower(self, follower: Follower) -> None:
        self._followers.append(follower)
        self._extend_followers(self._now)

    def remove_follower(self, follower: Follower) -> None:
        self._followers = [other for other in self._followers if other is not follower]

    def take_pauses(self) -> tuple[Pause, ...]:
        ended, self._ended = tuple(self._ended), []
        return ended

    def advance(
        self,
        target: Instant | None,
        poll: Callable[[float], bool],
        unfinished: Callable[[], tuple[Effect, ...]],
    ) -> None:
        try:
            while True:
                waiting = [effect for effect in unfinished() if effect not in self._given_up]
                self._end_pauses(waiting)
                limit = min([e.due for e in waiting] + ([] if target is None else [target]), default=None)
                # Reaching the due moment of an effect that is not done is no arrival: time stands still
                # there.
                if self._move_to(limit) and not self._pause_for([e for e in waiting if e.due <= self._now]):
                    if limit == target:
                        return
                    continue  # a floor ran out: look again
                self._extend_followers(limit)
                if poll(self._poll_seconds(limit)):
                    self._move_to(limit)
                    return
        finally:
            # Until the next call followers may go no further than the caller's now.
            self._extend_followers(self._now)

    def _move_to(self, limit: Instant | None) -> bool:
        """Moves to where the clock stands, never past ``limit``; returns whether it reached ``limit``."""
        self._forget_absence()
        nominal, real = self._anchor
        stands = nominal + (time.monotonic() - real) * self._speed
        if limit is not None and stands >= limit:
            stands = max(float(limit), float(self._now))
            self._anchor = (stands, time.monotonic()) if limit > self._now or self._held else self._anchor
            self._now = max(self._now, limit)
            return True
        self._now = max(self._now, Instant(int(stands)))
        return False

    def _forget_absence(self) -> None:
        """Skips real time since the last look, beyond what was lent."""
        real = time.monotonic()
        absent_s, self._looked = max(0.0, real - self._looked - LENT_S), real
        nominal, since = self._anchor
        # A later anchor puts the clock where it would stand without the absence.
        self._anchor = (nominal, since + absent_s)

    def _extend_followers(self, limit: Instant | None) -> None:
        """Lets followers go on, to ``limit`` at most."""
        if not self._followers:
            return
        (nominal, since), real = self._anchor, time.monotonic()
        stands = nominal + (real - since) * self._speed
        end = stands + LENT_S * self._speed
        end = end if limit is None else min(end, float(limit))
        awaited = any(effect.needs_work for effect in self._held)
        for follower in self._followers:
            follower.release_until(nominal, time.time() - (real - since), end, awaited=awaited)

    def _pause_for(self, due: list[Effect]) -> bool:
        """Pauses time for ``due`` effects, and gives up on those whose floor ran out; returns whether it
        pauses.
        """
        real = time.monotonic()
        for effect in due:
            since = self._held.setdefault(effect, real)
            if real - since >= effect.floor_s:
                self._given_up.add(effect)
                self._ended.append(Pause(effect, real - self._held.pop(effect), done=False))
        if self._held:
            self._anchor = (float(self._now), real)
        return bool(self._held)

    def _end_pauses(self, waiting: list[Effect]) -> None:
        real = time.monotonic()
        for effect in [effect for effect in self._held if effect not in waiting]:
            self._ended.append(Pause(effect, real - self._held.pop(effect), done=True))
            self._anchor = (float(self._now), real)

    def _poll_seconds(self, limit: Instant | None) -> float:
        if limit is None or self._held:
            return _SLICE_S
        nominal, real = self._anchor
        due = real + (limit - nominal) / self._speed
        return max(0.0, min(_SLICE_S, due - time.monotonic()))
