"""One nominal time for several worlds: who moves it, and how each of them sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pricing_data.model.units import Instant
from spotctl.timesource import Effect, Follower, Hold, TimeSource, pause, stopwatch
from spotctl.worlds.world import TraceWorld

_SEPARATOR: Final = ": "
_LOOK_EVERY_S: Final = 0.02


class SharedTime:
    """``time``, moved for all worlds at once. Effects carry the name of their job while time waits for
    them.
    """

    def __init__(self, time: TimeSource) -> None:
        self._time = time
        self._held: dict[str, list[Hold]] = {}

    @property
    def now(self) -> Instant:
        return self._time.now

    def seen_by(self, job: str) -> JobTime:
        """The same time, until ``forget``."""
        self._held[job] = []
        return JobTime(self, job)

    def forget(self, job: str) -> None:
        """It has ended."""
        self._held.pop(job, None)

    def follow(self, follower: Follower) -> None:
        """As ``TimeSource.follow``."""
        self._time.follow(follower)

    def unfollow(self, follower: Follower) -> None:
        """As ``TimeSource.unfollow``."""
        self._time.unfollow(follower)

    def holds_of(self, job: str) -> tuple[Hold, ...]:
        """Holds that ended since the last call, whoever they were for: every training goes on meanwhile."""
        for hold in self._time.holds():
            owner, _, name = hold.effect.name.partition(_SEPARATOR)
            mine = replace(hold, effect=replace(hold.effect, name=name))
            for other, held in self._held.items():
                held.append(mine if other == owner else hold)
        told, self._held[job] = tuple(self._held[job]), []
        return told

    def advance(
        self, worlds: Mapping[str, TraceWorld], until: Instant | None, interrupted: Callable[[], bool]
    ) -> None:
        """Move on until one of ``worlds`` may have news, or ``until``, or somebody interrupts."""
        moments = [world.target() for world in worlds.values()]
        targets = [at for at in (*moments, until) if at is not None]

        def unfinished() -> tuple[Effect, ...]:
            return tuple(
                replace(effect, name=f"{job}{_SEPARATOR}{effect.name}")
                for job, world in worlds.items()
                for effect in world.unfinished()
            )

        def poll(timeout_s: float) -> bool:
            end = stopwatch() + timeout_s
            while True:
                news = [world.outside() for world in worlds.values()]
                if any(news) or interrupted():
                    return True
                left_s = end - stopwatch()
                if left_s <= 0:
                    return False
                pause(min(left_s, _LOOK_EVERY_S))

        self._time.advance(min(targets, default=None), poll, unfinished)


class JobTime:
    """What a world may know of a time that others move: a ``TimeSource`` that only tells."""

    def __init__(self, shared: SharedTime, job: str) -> None:
        self._shared = shared
        self._job = job

    @property
    def now(self) -> Instant:
        return self._shared.now

    def holds(self) -> tuple[Hold, ...]:
        return self._shared.holds_of(self._job)

    def follow(self, follower: Follower) -> None:
        self._shared.follow(follower)

    def unfollow(self, follower: Follower) -> None:
        self._shared.unfollow(follower)

    def advance(
        self,
        target: Instant | None,
        poll: Callable[[float], bool],
        unfinished: Callable[[], tuple[Effect, ...]],
    ) -> None:
        raise RuntimeError(f"{self._job} shares its time with other jobs: it is moved for all of them")
