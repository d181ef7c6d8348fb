"""Turns shares into rounds: who runs where for the next minutes, so that over time all get their shares.

    X[c, j]   share that combination c (one job, or two that share workers) was given of type j
    t[c, j]   seconds that c has had on j lately (``FADE``)
    f[c, j]   t[c, j] / sum_c' t[c', j]: its part of what all had on j
    priority  X[c, j] / f[c, j]; infinite where X > 0 and nothing was had yet

The dissertation counts time since the shares were computed, or since the job came. Where shares change with
every arrival the first forgets all debts, and the second lets a newcomer catch up with jobs that have been
there for days; so time had is halved every five rounds instead.

The highest priority goes first, a job runs once a round, and what does not fit waits (Algorithm 2): a waiting
job rises in priority, so no job with a share starves.

Knows no policies, prices or clocks.

Source: Narayanan 5.5 and Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.policies.problem import ShareProblem, Shares

ROUND_S: Final = 360.0
"""Six minutes (Narayanan 5.5)."""
FADE: Final = 0.5 ** (1 / 5)
"""Part of the time had that still counts one round later: half of it after five."""


@dataclass(frozen=True, slots=True, eq=False)
class Combinations:
    """Lists what can run in a round: ``first`` and ``second`` (c,), and their ``share`` (c, k).

    ``second`` is -1 where ``first`` runs alone.
    """

    first: Indices
    second: Indices
    share: Floats

    @classmethod
    def from_shares(cls, shares: Shares) -> Self:
        """Combines every job alone, and every pair that has a share."""
        alone = np.arange(len(shares.alone))
        if shares.paired is None:
            return cls(alone, np.full(len(alone), -1), shares.alone)
        return cls(
            np.concatenate([alone, shares.first]),
            np.concatenate([np.full(len(alone), -1), shares.second]),
            np.concatenate([shares.alone, shares.paired]),
        )

    def priorities(self, received_s: Floats) -> Floats:
        """Returns priorities, shape (c, k); 0 where there is no share. ``received_s`` (c, k)."""
        whole = received_s.sum(axis=0)
        part = np.divide(received_s, whole, out=np.zeros_like(received_s), where=whole > 0)
        with np.errstate(over="ignore"):  # next to nothing counts as nothing: such jobs come first
            priority = np.divide(self.share, part, out=np.full_like(part, np.inf), where=part > 0)
        return np.asarray(np.where(self.share > 0, priority, 0.0))


@dataclass(frozen=True, slots=True)
class Slot:
    """States one of a round's choices: combination ``chosen`` runs on ``type`` with ``workers`` of it."""

    chosen: int
    type: int
    workers: int


def choose_slots(
    problem: ShareProblem, combinations: Combinations, received_s: Floats, pressed: Flags | None = None
) -> tuple[Slot, ...]:
    """Chooses who runs in the next round, the highest priority first; ties by share, then by arrival.

    Jobs that are ``pressed`` (n, k) come before all others on those types, alone and whatever the shares: the
    largest job first, each on the fastest of them that has room.
    """
    priority = combinations.priorities(received_s)
    ahead = np.zeros(priority.shape, np.bool_)
    if pressed is not None and pressed.any():
        hurry = np.flatnonzero(pressed.any(axis=1))
        ahead[hurry] = pressed[hurry]
        speed = problem.rates[hurry] / problem.rates[hurry].max(axis=1, keepdims=True)
        # Scales are whole numbers and relative speeds at most 1, so speed only breaks ties of scale.
        rank = problem.scale[hurry, None] + speed / 2
        priority[hurry] = np.where(pressed[hurry], rank, priority[hurry])
    chosen, place = np.nonzero(priority)
    keys = (chosen, -combinations.share[chosen, place], -priority[chosen, place], ~ahead[chosen, place])
    order = np.lexsort(keys)
    chosen, place = chosen[order], place[order]
    first, second = combinations.first[chosen], combinations.second[chosen]
    asked = zip(
        *(each.tolist() for each in (chosen, place, first, second, problem.scale[first])), strict=True
    )
    free = problem.cluster.workers.astype(np.int64).tolist()
    # Counted down so that the loop can stop when no worker is left.
    left = sum(free)
    busy: set[int] = set()
    slots: list[Slot] = []
    for c, j, one, other, workers in asked:
        # A job runs once a round, alone or in one pair. ``other`` is -1 for a job alone and never busy.
        if workers > free[j] or one in busy or other in busy:
            continue
        free[j] -= workers
        left -= workers
        busy.add(one)
        if other >= 0:
            busy.add(other)
        slots.append(Slot(c, j, workers))
        if not left:
            break
    return tuple(slots)
