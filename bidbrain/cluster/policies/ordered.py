"""Implements policies that order jobs: first come first served, and the shortest first.

Source: Narayanan 5.4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.cluster.policies.base import Answer, Maximize, TotalThroughput, invert_rates, list_unrunnable
from bidbrain.cluster.policies.job_weights import most_worth
from bidbrain.cluster.policies.problem import ShareProblem
from bidbrain.cluster.solver import Method


def fastest_throughput(problem: ShareProblem) -> Floats:
    """Returns thr(m, X_fastest), (n,): all of the job's time on the best type that can hold it.

    It is 0 for a job that no type can hold.
    """
    best = np.where(problem.allowed_types, problem.kinds.rates, 0.0).max(axis=1)
    return np.asarray(best[problem.jobs.kind])


@dataclass(frozen=True, slots=True)
class Fifo:
    """Maximises sum_m thr(m, X) / thr(m, X_fastest) (n - m).

    Earlier jobs weigh more, on their fastest types.
    """

    def compute_shares(self, problem: ShareProblem) -> Answer:
        rank = np.arange(len(problem.jobs.kind))
        return Maximize(
            TotalThroughput(lambda seen: _in_order(seen, rank)), method=Method.IPM
        ).compute_shares(problem)


@dataclass(frozen=True, slots=True)
class ShortestJobFirst:
    """Minimises min_m steps[m] / thr(m, X): the job that can end first gets all that speeds it.

    The objective says nothing of the others. They share the rest as under ``Fifo``, in the order in which
    they could end. The value is in seconds.
    """

    def compute_shares(self, problem: ShareProblem) -> Answer:
        speed = fastest_throughput(problem)
        least_s = np.divide(problem.jobs.steps, speed, out=np.full(len(speed), np.inf), where=speed > 0)
        rank = np.argsort(np.argsort(least_s, kind="stable"), kind="stable")
        # The first job gets its fastest speed as a floor, just below it for the solver's tolerance.
        floor = np.where(rank == 0, speed * (1 - 1e-9), 0.0)
        best = most_worth(problem, _in_order(problem, rank), floor)
        return Answer(best.shares, float(least_s.min(initial=np.inf)), list_unrunnable(problem))


def _in_order(problem: ShareProblem, rank: np.ndarray) -> Floats:
    return np.asarray((len(rank) - rank) * invert_rates(fastest_throughput(problem)))
