"""Turns shares into rounds: who runs where for the next minutes, so that over time all get their shares.

    X[c, j]   share that combination c (one job, or two that share workers) was given of type j
    t[c, j]   seconds that c has had on j lately (``FADE``)
    f[c, j]   t[c, j] / sum_c' t[c', j]: its part of what all had on j
    priority  X[c, j] / f[c, j]; infinite where X > 0 and nothing was had yet

The dissertation counts time since the shares were computed, or since the job came. Where shares change with
every arrival the first forgets all debts, and the second lets a newcomer catch up with jobs that have been
there for days; so time had is halved every five rounds instead.

The highest priority goes first, a job runs once a round, and what does not fit waits (Algorithm 2): a waiting
job rises in priority, so no job with a share starves. Within a type, what is chosen is placed with the
largest jobs first, each on as few servers as possible. A job that was on the same type before keeps the same
workers, and so need not checkpoint (a renewed lease).

Knows no policies, prices or clocks.

Source: Narayanan 5.5 and Algorithm 2; leases: 5.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class WorkerLease:
    """Leases ``workers``, (server, number), of one type to a combination of jobs for a round."""

    jobs: tuple[str, ...]
    type: str
    workers: tuple[tuple[int, int], ...]

    @property
    def server_count(self) -> int:
        """Returns how many servers it is spread over."""
        return len({server for server, _ in self.workers})


def place_workers(
    wanted: Iterable[tuple[tuple[str, ...], str, int]],
    servers: Mapping[str, Sequence[int]],
    before: Iterable[WorkerLease],
) -> tuple[WorkerLease, ...]:
    """Places (jobs, type, how many), which fit together. ``servers``: of each type, workers per server.

    Those of ``before`` for the same jobs on the same type are renewed. Then the largest come first, each on
    the fullest server that can hold all of it, else on the emptiest ones.
    """
    known = {(placed.jobs, placed.type): placed for placed in before}
    # Large jobs first: small ones fill the gaps that are left.
    asked = sorted(wanted, key=lambda one: -one[2])
    renewed = [known[jobs, kind] for jobs, kind, count in asked if _can_renew(known.get((jobs, kind)), count)]
    taken = {(placed.type, worker) for placed in renewed for worker in placed.workers}
    free = {
        kind: [
            [n for n in range(size) if (kind, (server, n)) not in taken] for server, size in enumerate(sizes)
        ]
        for kind, sizes in servers.items()
    }
    keep = {(placed.jobs, placed.type) for placed in renewed}
    new = [
        WorkerLease(jobs, kind, _take_workers(free[kind], count))
        for jobs, kind, count in asked
        if (jobs, kind) not in keep
    ]
    return (*renewed, *new)


def _can_renew(placed: WorkerLease | None, count: int) -> bool:
    return placed is not None and len(placed.workers) == count


def _take_workers(free: list[list[int]], count: int) -> tuple[tuple[int, int], ...]:
    """Takes them from the fullest server that has enough, or from as few as possible.

    Removes them from ``free``.
    """
    enough = [server for server, numbers in enumerate(free) if len(numbers) >= count]
    if enough:
        # The fullest server that fits keeps emptier ones whole for larger jobs.
        order = [min(enough, key=lambda server: len(free[server]))]
    else:
        order = sorted(range(len(free)), key=lambda server: -len(free[server]))
    workers: list[tuple[int, int]] = []
    for server in order:
        part = free[server][: count - len(workers)]
        free[server] = free[server][len(part) :]
        workers += [(server, number) for number in part]
    if len(workers) < count:
        raise ValueError(f"{count} workers were asked of a type that has {len(workers)} free")
    return tuple(workers)
