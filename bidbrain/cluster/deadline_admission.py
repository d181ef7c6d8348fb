"""Decides whose deadlines are promised among jobs that run in rounds, and which jobs must run now.

    left[m]    seconds until the deadline
    least[m]   seconds that all steps left take on the fastest type
    spare[m]   left - least: how long the job may still stand idle

A newcomer's deadline is promised if whole rounds on whole workers can be set aside for it beside those of all
older promises (``round_reservation.py``); a job that comes when there is no room gets no promise. Shares
alone cannot support a promise: those of jobs of several workers need not fit into rounds, and those of others
fit only over time, with restarts on the way.

Shares should do the work before that. So the policy is asked for speeds as if deadlines were earlier, by two
rounds and by what a restart in every round would lose. No job asks for more than its fastest type while that
is in time. Where deadlines cannot be kept together with all reserves, these shrink. A job that reaches the
rounds set aside for it runs there, whatever its shares.

Knows no policies and no clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.round_reservation import Reservation, RoundClock, reserve_rounds

_ROUNDS_KEPT: Final = 2
_PARTS: Final = (1.0, 0.5, 0.0)
"""Parts of the reserves to ask for, one after the other, until deadlines can be kept together."""
_EXACT: Final = 1e-9

Ask: TypeAlias = Callable[[Floats], frozenset[int]]
"""Asks the policy to keep deadlines, in seconds from now, (jobs there,); returns whose speed falls short."""


@dataclass(frozen=True, slots=True, eq=False)
class TraceDemand:
    """Describes the jobs of a trace.

    ``due_s`` (n,) is infinite without a deadline; ``scale`` (n,) is in workers; ``rates`` (n, k) are steps
    per second on each type, 0 where the job cannot run.
    """

    due_s: Floats
    scale: Indices
    rates: Floats


@dataclass(frozen=True, slots=True, eq=False)
class ActiveJobs:
    """Says which ``jobs`` of the trace are there at ``now``, and the ``steps`` that they have left."""

    now: float
    jobs: Indices
    steps: Floats


class DeadlinePromises:
    """Keeps what was promised by now. ``workers`` (k,). Every ``moment`` is the beginning of a round.

    ``rounds`` None: time is cut as finely as shares are, so speeds are all that a promise needs.
    """

    def __init__(self, pace: TraceDemand, workers: Floats, rounds: RoundClock | None) -> None:
        self._pace, self._workers, self._rounds = pace, workers.astype(np.int64), rounds
        self._reserved: dict[int, Reservation] = {}
        self.given = np.zeros(len(pace.due_s), np.bool_)
        """Marks the jobs whose deadlines were promised."""

    def admit_newcomers(self, moment: ActiveJobs, newcomers: Indices, ask: Ask) -> None:
        """Promises newcomers what there is room for; the last call of the policy is the one for shares."""
        new = newcomers[np.isfinite(self._pace.due_s[newcomers])]
        if self._rounds is None:
            self._admit_fluid(moment, new, ask)
        else:
            for job in new.tolist():
                self._set_aside(self._rounds, moment, job)
        # Each call asks the policy anew. The first part of the reserves that misses nobody ends it.
        for part in _PARTS:
            if not self._missed_promises(moment, ask, part):
                break

    def must_run_now(self, moment: ActiveJobs) -> Flags:
        """Returns which active jobs must run in the round that begins now, and on which type, (jobs, k)."""
        where = np.zeros((len(moment.jobs), len(self._workers)), np.bool_)
        if self._rounds is None:
            return where
        number = self._rounds.round_at(moment.now)
        for row, (job, left) in enumerate(zip(moment.jobs.tolist(), moment.steps.tolist(), strict=True)):
            # Only promised jobs have a reservation.
            type_ = self._reserved[job].required_type(number, left) if self.given[job] else -1
            if type_ >= 0:
                where[row, type_] = True
        return where

    def _set_aside(self, rounds: RoundClock, moment: ActiveJobs, job: int) -> None:
        """Promises a newcomer its deadline if there are rounds for it."""
        number = rounds.round_at(moment.now)
        free = np.tile(self._workers, (max(rounds.rounds_before(self._pace.due_s[job]) - number, 0), 1))
        left = dict(zip(moment.jobs.tolist(), moment.steps.tolist(), strict=True))
        # Jobs with a promise and steps left keep their rounds; what they have done already is given back.
        for other in left.keys() & self._reserved.keys():
            self._reserved[other].take_from(free, number, left[other])
        found = reserve_rounds(
            free, number, left[job], self._pace.rates[job], int(self._pace.scale[job]), rounds
        )
        if found is not None:
            self._reserved[job], self.given[job] = found, True

    def _admit_fluid(self, moment: ActiveJobs, new: Indices, ask: Ask) -> None:
        """Promises newcomers what costs no older promise, if possible all of them at once."""
        self.given[new] = True
        # All at once failed, so newcomers are tried one by one, in the order of their arrival.
        if len(new) and self._missed_promises(moment, ask):
            self.given[new] = False
            before = self._missed_promises(moment, ask)
            for job in new:
                self.given[job] = True
                self.given[job] = self._missed_promises(moment, ask) <= before

    def _missed_promises(self, moment: ActiveJobs, ask: Ask, part: float = 0.0) -> frozenset[int]:
        """Returns whose promises speeds fall short of, with ``part`` of the reserves."""
        return frozenset(job for job in ask(self._early_s(moment, part)) if self.given[job])

    def _early_s(self, moment: ActiveJobs, part: float) -> Floats:
        """Returns by when to ask for their work to be done; infinite for jobs without a promise."""
        left = self._pace.due_s[moment.jobs] - moment.now
        asks = self.given[moment.jobs] & (left > 0)
        if self._rounds is None:
            return np.asarray(np.where(asks, left, np.inf))
        speed = self._pace.rates[moment.jobs[asks]].max(axis=1)
        # A job without spare time must not ask for more than its fastest type.
        spare = left[asks] - moment.steps[asks] / speed * (1 + _EXACT)
        switches = left[asks] / self._rounds.length_s
        whole = _ROUNDS_KEPT * self._rounds.length_s + switches * self._rounds.switch_s
        early = np.full(len(asks), np.inf)
        early[asks] = np.maximum(left[asks] - part * np.clip(spare, 0.0, whole), 0.0)
        return early
