"""Fairness over time: everybody's throughput, in units of what an equal part would give them.

Source: Narayanan 5.4.1 (least attained service), 5.4.2 (makespan, finish-time fairness of Themis).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.cluster.policies.base import (
    Answer,
    LeastThroughput,
    Maximize,
    cannot_run,
    inverse,
    nobody,
    runnable,
)
from bidbrain.cluster.policies.bisection import Raised, Rising, highest, top
from bidbrain.cluster.policies.problem import ShareProblem, Shares

_STEEP: Final = 1e3
"""Of a floor, per part of t: what a solver's 1e-7 of such a row still are of the floor is 1e-4."""
_SAME: Final = 1e-7
"""Relative: what a solver cannot tell apart."""
_LEAST: Final = 1e-9
"""Of what a job can have at most: lower floors are out of a solver's range."""


def fair_part(problem: ShareProblem) -> Floats:
    """w[m] / s[m] thr(m, X_equal): what least attained service measures a job's throughput in."""
    return np.asarray(problem.jobs.weight / problem.scale * problem.equal())


@dataclass(frozen=True, slots=True)
class LeastAttainedService:
    """max min_m s[m] / w[m] thr(m, X) / thr(m, X_equal): weighted max-min fairness (5.4.1)."""

    def share(self, problem: ShareProblem) -> Answer:
        return Maximize(LeastThroughput(fair_part)).share(problem)


@dataclass(frozen=True, slots=True)
class Makespan:
    """min max_m steps[m] / thr(m, X), in seconds (5.4.2).

    For the inverse, the largest part of its work that every job does per second (``rising``). The published
    code searches by bisection and stops within 5 %. Jobs that cannot run, or are done, do not count.
    """

    def share(self, problem: ShareProblem) -> Answer:
        steps = np.where(runnable(problem), problem.jobs.steps, 0.0)
        most = np.divide(top(problem), steps, out=np.full(len(steps), np.inf), where=steps > 0).min(
            initial=np.inf
        )
        if np.isinf(most):
            return nobody(problem, np.inf if not runnable(problem).any() else 0.0)
        raised = highest(problem, lambda t: (steps * t, steps), (steps,), most, most)
        return Answer(raised.shares, 1.0 / raised.t, cannot_run(problem))


@dataclass(frozen=True, slots=True)
class FinishTimeFairness:
    """min max_m rho(m, X), rho = (age[m] + steps[m] / thr(m, X)) / (isolated[m] + steps[m] / thr(m, X_iso)).

    rho <= r asks for thr(m, X) >= steps[m] / (r D[m] - age[m]), D being the denominator: convex in r
    (``rising``), from the least that any job could have alone.

    ``whole_isolated``: ``isolated_s`` is all of D, as in the published code after its first call, where the
    time that the rest of the work takes alone is left out. ``divided_by_weight``: thr(m, X) / w[m] stands for
    thr(m, X), as in the published code with space sharing (and only there).
    """

    whole_isolated: bool = False
    divided_by_weight: bool = False

    def share(self, problem: ShareProblem) -> Answer:
        runs = runnable(problem)
        if not runs.any():
            return nobody(problem, np.inf)
        jobs = problem.jobs
        rest = 0.0 if self.whole_isolated else jobs.steps * inverse(problem.isolated())
        alone, age = np.where(runs, jobs.isolated_s + rest, 1.0), np.where(runs, jobs.age_s, 0.0)
        asked = np.where(runs, jobs.steps * (jobs.weight if self.divided_by_weight else 1.0), 0.0)

        quickest = asked * inverse(top(problem))
        most = -float(np.max((age + quickest) / alone))

        def floors(t: float) -> tuple[Floats, Floats]:
            left = np.where(asked > 0, np.clip(-t * alone - age, quickest, quickest / _LEAST), 1.0)
            floor = asked / left
            return floor, floor * alone / left

        raised = highest(problem, floors, (asked, age, alone), most, most, coarse=True)
        return Answer(self._reached(problem, floors, raised), -raised.t, cannot_run(problem))

    @staticmethod
    def _reached(problem: ShareProblem, floors: Rising, raised: Raised) -> Shares:
        """Shares at rest. Where a job is old and all but done, rho is no worse without any share for it,
        as far as a solver can tell. So floors as steep as that are asked for once more as they are, at a rho
        that is the same to a solver but at which all of them can be had.
        """
        floor, slope = floors(raised.t)
        if not np.any(slope * -raised.t > _STEEP * floor):
            return raised.shares
        floor, _ = floors(raised.t * (1 + _SAME))
        return highest(problem, lambda part: (floor * part, floor), (floor,), 1.0, 1.0).shares
