"""Shares one nominal time between several worlds: the queue moves it, each job's world reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pricing_data.model.units import Instant
from spotctl.timesource import Effect, Follower, Pause, TimeSource, sleep, stopwatch
from spotctl.worlds.world import TraceWorld

_SEPARATOR: Final = ": "
_LOOK_EVERY_S: Final = 0.02


class SharedTime:
    """Moves ``time`` for all worlds at once; names the job of each effect that time waits for."""

    def __init__(self, time: TimeSource) -> None:
        self._time = time
        self._held: dict[str, list[Pause]] = {}

    @property
    def now(self) -> Instant:
        return self._time.now

    def job_time(self, job: str) -> JobTime:
        """Returns the time as one job sees it, until ``remove_job``."""
        self._held[job] = []
        return JobTime(self, job)

    def remove_job(self, job: str) -> None:
        """Drops a job that has ended, with the pauses it has not taken."""
        self._held.pop(job, None)

    def add_follower(self, follower: Follower) -> None:
        """See ``TimeSource.add_follower``."""
        self._time.add_follower(follower)

    def remove_follower(self, follower: Follower) -> None:
        """See ``TimeSource.remove_follower``."""
        self._time.remove_follower(follower)

    def take_pauses_of(self, job: str) -> tuple[Pause, ...]:
        """Returns the pauses that ended since this job's last call, whichever job they were for."""
        # Taking from ``time`` empties it, so one job's call hands every pause out to all. All need them: each
        # training runs on while nominal time stands still. A job's own pauses lose its name again.
        for hold in self._time.take_pauses():
            owner, _, name = hold.effect.name.partition(_SEPARATOR)
            mine = replace(hold, effect=replace(hold.effect, name=name))
            for other, held in self._held.items():
                held.append(mine if other == owner else hold)
        told, self._held[job] = tuple(self._held[job]), []
        return told

    def advance(
        self, worlds: Mapping[str, TraceWorld], until: Instant | None, interrupted: Callable[[], bool]
    ) -> None:
        """Moves time on until one of ``worlds`` may have facts, ``until`` comes, or an interrupt."""
        moments = [world.next_scheduled() for world in worlds.values()]
        targets = [at for at in (*moments, until) if at is not None]

        def unfinished() -> tuple[Effect, ...]:
            return tuple(
                replace(effect, name=f"{job}{_SEPARATOR}{effect.name}")
                for job, world in worlds.items()
                for effect in world.pending_effects()
            )

        def poll(timeout_s: float) -> bool:
            end = stopwatch() + timeout_s
            while True:
                news = [world.has_outside_news() for world in worlds.values()]
                if any(news) or interrupted():
                    return True
                left_s = end - stopwatch()
                if left_s <= 0:
                    return False
                sleep(min(left_s, _LOOK_EVERY_S))

        self._time.advance(min(targets, default=None), poll, unfinished)


class JobTime:
    """Shows a world the time that its queue moves: a ``TimeSource`` that no world can advance."""

    def __init__(self, shared: SharedTime, job: str) -> None:
        self._shared = shared
        self._job = job

    @property
    def now(self) -> Instant:
        return self._shared.now

    def take_pauses(self) -> tuple[Pause, ...]:
        return self._shared.take_pauses_of(self._job)

    def add_follower(self, follower: Follower) -> None:
        self._shared.add_follower(follower)

    def remove_follower(self, follower: Follower) -> None:
        self._shared.remove_follower(follower)

    def advance(
        self,
        target: Instant | None,
        poll: Callable[[float], bool],
        unfinished: Callable[[], tuple[Effect, ...]],
    ) -> None:
        raise RuntimeError(f"{self._job} shares its time with other jobs: it is moved for all of them")
