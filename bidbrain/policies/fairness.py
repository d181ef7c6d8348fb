"""Fairness over time: everybody's throughput, in units of what an equal part would give them.

Source: Narayanan 5.4.1 (least attained service), 5.4.2 (makespan, finish-time fairness of Themis).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.policies.base import Answer, LeastThroughput, Maximize, cannot_run, nobody, runnable
from bidbrain.policies.problem import Floats, ShareProblem
from bidbrain.policies.program import Program
from bidbrain.solver import Method, Solver

_CLOSE: Final = 1e-10
_MOST_STEPS: Final = 50


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

    One linear program, for the inverse: the largest part of its work that every job does per second. The
    published code searches by bisection and stops within 5 %.
    """

    def share(self, problem: ShareProblem) -> Answer:
        answer = Maximize(LeastThroughput(lambda seen: seen.jobs.steps), method=Method.DUAL).share(problem)
        return Answer(answer.shares, 1.0 / answer.value if answer.value else np.inf, answer.short)


@dataclass(frozen=True, slots=True)
class FinishTimeFairness:
    """min max_m rho(m, X), rho = (age[m] + steps[m] / thr(m, X)) / (isolated[m] + steps[m] / thr(m, X_iso)).

    rho <= r asks for thr(m, X) >= steps[m] / (r D[m] - age[m]), D being the denominator. Given an r that some
    X reaches, the largest t for which t times those throughputs can be had gives an X that reaches a smaller
    one, until t is 1 (Dinkelbach's method for ratios): a handful of linear programs, each from where the last
    ended, and the optimum to rounding.

    ``whole_isolated``: ``isolated_s`` is all of D, as in the published code after its first call, where the
    time that the rest of the work takes alone is left out. ``divided_by_weight``: thr(m, X) / w[m] stands for
    thr(m, X), as in the published code with space sharing (and only there).
    """

    whole_isolated: bool = False
    divided_by_weight: bool = False

    def share(self, problem: ShareProblem) -> Answer:
        if not runnable(problem).any():
            return nobody(problem, np.inf)
        jobs = problem.jobs
        alone = jobs.isolated_s + (0.0 if self.whole_isolated else jobs.steps / problem.isolated())
        asked = jobs.steps * (jobs.weight if self.divided_by_weight else 1.0)
        program = Program(problem, asked, jobs.age_s, alone)
        steps, age, alone = program.each(asked), program.each(jobs.age_s), program.each(alone)
        (least,) = program.variables(1, 1.0, 0.0, np.inf)
        rows, columns, values = program.throughput
        runs = np.unique(rows)
        steps, age, alone = steps[runs], age[runs], alone[runs]
        rho = float(np.max((age + steps / program.each(problem.isolated())[runs]) / alone))
        needed = steps / (rho * alone - age)
        entries = (
            np.concatenate([np.searchsorted(runs, rows), np.arange(len(runs))]),
            np.concatenate([columns, np.full(len(runs), least)]),
            np.concatenate([values, -needed]),
        )
        numbers = program.rows(entries, np.zeros(len(runs)), np.inf)
        solver = Solver(program.done())
        for _ in range(_MOST_STEPS):
            best = solver.solve()
            if best.value <= 1.0 + _CLOSE:
                break
            got = np.bincount(rows, weights=values * best.x[columns], minlength=len(program.classes.size))[
                runs
            ]
            rho = float(np.max((age + steps / got) / alone))
            for row, value in zip(numbers, -steps / (rho * alone - age), strict=True):
                solver.entry(int(row), int(least), float(value))
        return Answer(program.shares(best.x), rho, cannot_run(problem))
