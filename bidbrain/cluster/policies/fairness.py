"""Implements fairness over time: everybody's throughput, in units of what an equal part would give them.

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
    empty_answer,
    invert_rates,
    list_unrunnable,
    runnable_jobs,
)
from bidbrain.cluster.policies.bisection import RaisedFloors, RisingFloors, most_throughput, raise_floors
from bidbrain.cluster.policies.problem import ShareProblem, Shares

_STEEP: Final = 1e3
"""Slope of a floor, per part of t, above which a solver's 1e-7 of such a row is over 1e-4 of the floor."""
_SAME: Final = 1e-7
"""Relative difference that a solver cannot detect."""
_LEAST: Final = 1e-9
"""Part of a job's maximum below which floors are out of a solver's range."""


def fair_part(problem: ShareProblem) -> Floats:
    """Returns w[m] / s[m] thr(m, X_equal): the unit of a job's throughput in least attained service."""
    return np.asarray(problem.jobs.weight / problem.scale * problem.equal_throughput())


@dataclass(frozen=True, slots=True)
class LeastAttainedService:
    """Maximises min_m s[m] / w[m] thr(m, X) / thr(m, X_equal): weighted max-min fairness (5.4.1)."""

    def compute_shares(self, problem: ShareProblem) -> Answer:
        return Maximize(LeastThroughput(fair_part)).compute_shares(problem)


@dataclass(frozen=True, slots=True)
class Makespan:
    """Minimises max_m steps[m] / thr(m, X), in seconds (5.4.2).

    Solved for the inverse, the largest part of its work that every job does per second (``bisection.py``).
    The published code searches by bisection and stops within 5 %. Jobs that cannot run, or are done, do not
    count.
    """

    def compute_shares(self, problem: ShareProblem) -> Answer:
        steps = np.where(runnable_jobs(problem), problem.jobs.steps, 0.0)
        most = np.divide(
            most_throughput(problem), steps, out=np.full(len(steps), np.inf), where=steps > 0
        ).min(initial=np.inf)
        # No job has work left: any shares will do, and a division below would fail.
        if np.isinf(most):
            return empty_answer(problem, np.inf if not runnable_jobs(problem).any() else 0.0)
        raised = raise_floors(problem, lambda t: (steps * t, steps), (steps,), most, most)
        return Answer(raised.shares, 1.0 / raised.t, list_unrunnable(problem))


@dataclass(frozen=True, slots=True)
class FinishTimeFairness:
    """Minimises the largest rho(m, X).

        rho = (age[m] + steps[m] / thr(m, X)) / (isolated[m] + steps[m] / thr(m, X_iso))

    rho <= r asks for thr(m, X) >= steps[m] / (r D[m] - age[m]), D being the denominator: convex in r
    (``bisection.py``), from the least that any job could have alone.

    ``whole_isolated``: ``isolated_s`` is all of D, as in the published code after its first call, where the
    time that the rest of the work takes alone is left out. ``divided_by_weight``: thr(m, X) / w[m] stands for
    thr(m, X), as in the published code with space sharing (and only there).
    """

    whole_isolated: bool = False
    divided_by_weight: bool = False

    def compute_shares(self, problem: ShareProblem) -> Answer:
        runs = runnable_jobs(problem)
        if not runs.any():
            return empty_answer(problem, np.inf)
        jobs = problem.jobs
        rest = 0.0 if self.whole_isolated else jobs.steps * invert_rates(problem.isolated_throughput())
        alone, age = np.where(runs, jobs.isolated_s + rest, 1.0), np.where(runs, jobs.age_s, 0.0)
        asked = np.where(runs, jobs.steps * (jobs.weight if self.divided_by_weight else 1.0), 0.0)

        quickest = asked * invert_rates(most_throughput(problem))
        # Negated, as ``raise_floors`` looks for the largest t and rho is to be small.
        most = -float(np.max((age + quickest) / alone))

        def floors(t: float) -> tuple[Floats, Floats]:
            # The time left under rho = -t, within what a job can reach and what a solver can represent.
            left = np.where(asked > 0, np.clip(-t * alone - age, quickest, quickest / _LEAST), 1.0)
            floor = asked / left
            return floor, floor * alone / left

        raised = raise_floors(problem, floors, (asked, age, alone), most, most, coarse=True)
        return Answer(self._shares_at_rest(problem, floors, raised), -raised.t, list_unrunnable(problem))

    @staticmethod
    def _shares_at_rest(problem: ShareProblem, floors: RisingFloors, raised: RaisedFloors) -> Shares:
        """Returns shares at rest.

        Where a job is old and nearly done, rho is no worse without any share for it, as far as a solver can
        tell. So floors as steep as that are requested once more as they are, at a rho that is the same to a
        solver but at which all of them can be met.
        """
        floor, slope = floors(raised.t)
        if not np.any(slope * -raised.t > _STEEP * floor):
            return raised.shares
        floor, _ = floors(raised.t * (1 + _SAME))
        return raise_floors(problem, lambda part: (floor * part, floor), (floor,), 1.0, 1.0).shares
