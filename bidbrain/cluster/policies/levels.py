"""How levels rise while nothing but their own caps holds jobs back: arithmetic, for every time at once.

    L[m], u[m]   level of job m, and its cap: where all its time is on the best type open to it
    s[m], w[m]   workers it needs, its weight
    W[e]         weight of entity e, which goes to those of its jobs that still rise

An entity in FIFO order raises its first job at W[e] / s[m] until that is at its cap, then the next one. An
entity that is fair raises all its jobs, at w[m] / s[m] by a clock of its own that runs at W[e] over the
weights of those who still rise: so they reach their caps in the order of (u[m] - L[m]) s[m] / w[m], and when
they do is a sum. No entity's course hangs on another's.

Refuses to know programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices

_AT_THE_TOP: Final = 1e-9
"""Of a job's cap: who is nearer than this has reached it. Of a time: what is nearer happens at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """Whose weight goes to whom: of jobs ``entity``, ``weight`` and ``scale`` (n,), of entities their weights
    ``whole`` and whether they serve in the order of arrival, ``fifo`` (entities,).
    """

    entity: Indices
    weight: Floats
    scale: Indices
    whole: Floats
    fifo: Flags


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Between two rounds; both (n,)."""

    level: Floats
    rising: Flags

    def settled(self, cap: Floats) -> State:
        """Without those who have reached their caps."""
        return State(self.level, self.rising & (self.level < cap * (1 - _AT_THE_TOP)))


class Course:
    """What follows a state in which somebody rises.

    ``step`` (n,): how fast levels rise at first, the fastest at 1. ``times`` (events,): when jobs reach their
    caps, in that unit; none where caps are infinite.
    """

    def __init__(self, sharing: Sharing, state: State, cap: Floats) -> None:
        self._state, self._cap = state, cap
        who = np.flatnonzero(state.rising)
        owner = sharing.entity[who]
        fifo = sharing.fifo[owner]
        weight = np.where(fifo, 1.0, sharing.weight[who])
        speed = weight / sharing.scale[who]
        needs = (cap[who] - state.level[who]) / speed
        order = np.lexsort((np.where(fifo, who, needs), owner))
        self._who, self._speed, needs = who[order], speed[order], needs[order]
        owner, fifo = owner[order], fifo[order]
        first = np.ones(len(owner), np.bool_)
        first[1:] = owner[1:] != owner[:-1]
        self._first = np.flatnonzero(first)
        self._last = np.append(self._first[1:], len(owner)) - 1
        self._of = np.cumsum(first) - 1
        rate = sharing.whole[owner] / np.where(fifo, 1.0, self._from_here(weight[order]))
        pace = np.where(first | ~fifo, self._speed * rate[self._first][self._of], 0.0)
        self.step = np.zeros(len(cap))
        self.step[self._who] = pace / pace.max()
        self._rate = rate / pace.max()
        finite = bool(np.isfinite(needs).all())
        self.times = self._events(needs, fifo) if finite else np.empty(0)

    def _events(self, needs: Floats, fifo: Flags) -> Floats:
        """Own clocks and times at which jobs begin and end to rise; the times at which any ends."""
        ahead = self._ahead(np.where(fifo, 0.0, needs))
        took = np.where(fifo, needs, needs - ahead)
        self._ends = np.where(fifo, self._so_far(needs), needs)
        self._begins = np.where(fifo, self._ahead(self._ends), 0.0)
        self._when = self._so_far(took / self._rate)
        times = np.unique(self._when)
        return np.asarray(times[np.append(times[1:] > times[:-1] * (1 + _AT_THE_TOP), True)])

    def at(self, event: int) -> State:
        """After an event: who reached a cap by then is exactly there, and rises no more."""
        level, rising = self.level(event), self._state.rising.copy()
        ended = self._who[self._when <= self.times[event]]
        level[ended], rising[ended] = self._cap[ended], False
        return State(level, rising).settled(self._cap)

    def level(self, event: int) -> Floats:
        """Levels at an event, (n,)."""
        time = self.times[event]
        ended = np.add.reduceat(self._when <= time, self._first, dtype=np.int64)
        current = np.minimum(self._first + ended, self._last)
        clock = self._ahead(self._ends)[current]
        clock = clock + (time - self._ahead(self._when)[current]) * self._rate[current]
        clock = np.minimum(clock, self._ends[self._last])[self._of]
        level = self._state.level.copy()
        level[self._who] += self._speed * (np.clip(clock, self._begins, self._ends) - self._begins)
        return level

    def _ahead(self, values: Floats) -> Floats:
        """Of the job that ends before in the same entity, 0 for the first."""
        shifted = np.roll(values, 1)
        shifted[self._first] = 0.0
        return np.asarray(shifted)

    def _so_far(self, values: Floats) -> Floats:
        """Sums within entities, up to each job."""
        total = np.cumsum(values)
        return np.asarray(total - (total - values)[self._first][self._of])

    def _from_here(self, values: Floats) -> Floats:
        """Sums within entities, from each job on."""
        total = np.cumsum(values)
        return np.asarray(total[self._last][self._of] - total + values)
