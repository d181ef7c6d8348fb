"""Computes how levels rise while only their own caps hold jobs back: arithmetic, for every time at once.

    L[m], u[m]   level of job m, and its cap: where all its time is on the best type open to it
    s[m], w[m]   workers it needs, its weight
    W[e]         weight of entity e, which goes to those of its jobs that still rise

An entity in FIFO order raises its first job at W[e] / s[m] until that is at its cap, then the next one. An
entity that is fair raises all its jobs, at w[m] / s[m] by a clock of its own that runs at W[e] over the
weights of those who still rise: so they reach their caps in the order of (u[m] - L[m]) s[m] / w[m], and when
they do is a sum. No entity's course depends on another's.

Knows no programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices

_AT_THE_TOP: Final = 1e-9
"""Part of a job's cap within which the job has reached it; part of a time within which events coincide."""


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """Says whose weight goes to whom.

    Jobs have ``entity``, ``weight`` and ``scale`` (n,); entities have their weights ``whole`` and ``fifo``
    (entities,), whether they serve in the order of arrival.
    """

    entity: Indices
    weight: Floats
    scale: Indices
    whole: Floats
    fifo: Flags


@dataclass(frozen=True, slots=True, eq=False)
class LevelState:
    """Holds levels, and who still rises, between two rounds; both (n,)."""

    level: Floats
    rising: Flags

    def without_capped(self, cap: Floats) -> LevelState:
        """Returns the state without those who have reached their caps."""
        return LevelState(self.level, self.rising & (self.level < cap * (1 - _AT_THE_TOP)))


class LevelCourse:
    """Computes what follows a state in which some job rises.

    ``step`` (n,): how fast levels rise at first, the fastest at 1. ``times`` (events,): when jobs reach their
    caps, in that unit; none where caps are infinite.
    """

    def __init__(self, sharing: Sharing, state: LevelState, cap: Floats) -> None:
        self._state, self._cap = state, cap
        who = np.flatnonzero(state.rising)
        owner = sharing.entity[who]
        fifo = sharing.fifo[owner]
        weight = np.where(fifo, 1.0, sharing.weight[who])
        speed = weight / sharing.scale[who]
        # On the entity's own clock, in which its jobs rise at ``speed``.
        needs = (cap[who] - state.level[who]) / speed
        # FIFO entities in the order of arrival, fair ones in the order in which jobs reach their caps.
        order = np.lexsort((np.where(fifo, who, needs), owner))
        self._who, self._speed, needs = who[order], speed[order], needs[order]
        owner, fifo = owner[order], fifo[order]
        first = np.ones(len(owner), np.bool_)
        first[1:] = owner[1:] != owner[:-1]
        self._first = np.flatnonzero(first)
        self._last = np.append(self._first[1:], len(owner)) - 1
        self._of = np.cumsum(first) - 1
        rate = sharing.whole[owner] / np.where(fifo, 1.0, self._sum_from(weight[order]))
        pace = np.where(first | ~fifo, self._speed * rate[self._first][self._of], 0.0)
        self.step = np.zeros(len(cap))
        self.step[self._who] = pace / pace.max()
        self._rate = rate / pace.max()
        finite = bool(np.isfinite(needs).all())
        self.times = self._compute_times(needs, fifo) if finite else np.empty(0)

    def _compute_times(self, needs: Floats, fifo: Flags) -> Floats:
        """Computes own clocks and times at which jobs begin and end to rise.

        Returns the times at which any ends.
        """
        ahead = self._shift_within(np.where(fifo, 0.0, needs))
        took = np.where(fifo, needs, needs - ahead)
        self._ends = np.where(fifo, self._sum_up_to(needs), needs)
        self._begins = np.where(fifo, self._shift_within(self._ends), 0.0)
        self._when = self._sum_up_to(took / self._rate)
        times = np.unique(self._when)
        # Events that rounding keeps apart count as one, the later.
        return np.asarray(times[np.append(times[1:] > times[:-1] * (1 + _AT_THE_TOP), True)])

    def state_at(self, event: int) -> LevelState:
        """Returns the state after an event: who reached a cap by then is exactly there, and rises no more."""
        level, rising = self.levels_at(event), self._state.rising.copy()
        ended = self._who[self._when <= self.times[event]]
        level[ended], rising[ended] = self._cap[ended], False
        return LevelState(level, rising).without_capped(self._cap)

    def levels_at(self, event: int) -> Floats:
        """Returns levels at an event, (n,)."""
        time = self.times[event]
        ended = np.add.reduceat(self._when <= time, self._first, dtype=np.int64)
        current = np.minimum(self._first + ended, self._last)
        clock = self._shift_within(self._ends)[current]
        clock = clock + (time - self._shift_within(self._when)[current]) * self._rate[current]
        clock = np.minimum(clock, self._ends[self._last])[self._of]
        level = self._state.level.copy()
        level[self._who] += self._speed * (np.clip(clock, self._begins, self._ends) - self._begins)
        return level

    def _shift_within(self, values: Floats) -> Floats:
        """Returns the value of the job that ends before in the same entity, 0 for the first."""
        shifted = np.roll(values, 1)
        shifted[self._first] = 0.0
        return np.asarray(shifted)

    def _sum_up_to(self, values: Floats) -> Floats:
        """Sums within entities, up to each job."""
        total = np.cumsum(values)
        return np.asarray(total - (total - values)[self._first][self._of])

    def _sum_from(self, values: Floats) -> Floats:
        """Sums within entities, from each job on."""
        total = np.cumsum(values)
        return np.asarray(total[self._last][self._of] - total + values)
