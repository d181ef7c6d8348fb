"""Water filling: equal to the paper's integer program, Pareto efficient, and its example."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import Bounds, LinearConstraint, milp

from bidbrain.arrays import Flags, Floats
from bidbrain.cluster.policies.base import Floors, Maximize, Policy, TotalThroughput, runnable_jobs
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from bidbrain.cluster.policies.water_filling import Hierarchical, Inside, WaterFilling
from tests.bidbrain.cluster.policies.problems import levels, problems

_RISES = 1e-5
"""What counts as rising in the integer program."""


class Oracle:
    """5.4.3 to the letter, job by job: a linear program, then an integer program for who is stuck."""

    def __init__(self, problem: ShareProblem) -> None:
        n, k = len(problem.jobs.kind), len(problem.cluster.types)
        self.n, self.columns = n, n * k
        rows = np.zeros((n + k, self.columns))
        for job in range(n):
            rows[job, job * k : (job + 1) * k] = 1.0
            for j in range(k):
                rows[n + j, job * k + j] = problem.scale[job]
        self.fits, self.limits = rows, np.concatenate([np.ones(n), problem.cluster.workers])
        self.level = np.zeros((n, self.columns))
        for job in range(n):
            self.level[job, job * k : (job + 1) * k] = problem.rates[job] / problem.equal_throughput()[job]
        self.most = np.where(problem.allowed_types[problem.jobs.kind], 1.0, 0.0).reshape(-1)

    def largest_rise(self, level: Floats, step: Floats) -> float:
        """The largest c."""
        rows = np.column_stack([self.level, -step])
        fits = np.column_stack([self.fits, np.zeros(len(self.fits))])
        gain = np.append(np.zeros(self.columns), -1.0)
        bounds = Bounds(np.zeros(self.columns + 1), np.append(self.most, np.inf))
        floors = LinearConstraint(rows, level - 1e-9, np.inf)
        found = milp(gain, bounds=bounds, constraints=[LinearConstraint(fits, -np.inf, self.limits), floors])
        return float(found.x[-1])

    def can_rise(self, level: Floats, rising: Flags) -> Flags:
        """Returns the jobs that some shares raise while they lower nobody: as many z = 1 as possible."""
        rows = np.column_stack([self.level, -_RISES * np.diag(rising.astype(float))])
        fits = np.column_stack([self.fits, np.zeros((len(self.fits), self.n))])
        gain = np.append(np.zeros(self.columns), -rising.astype(float))
        bounds = Bounds(np.zeros(self.columns + self.n), np.append(self.most, rising.astype(float)))
        integral = np.append(np.zeros(self.columns), np.ones(self.n))
        floors = LinearConstraint(rows, level - 1e-8, np.inf)
        limits = LinearConstraint(fits, -np.inf, self.limits)
        found = milp(gain, bounds=bounds, constraints=[limits, floors], integrality=integral)
        return np.asarray(rising & (found.x[self.columns :] > 0.5))


Parts = Callable[[ShareProblem, Flags], Floats]


def by_weight(problem: ShareProblem, rising: Flags) -> Floats:
    return np.where(rising, problem.jobs.weight, 0.0)


def by_entity(fifo: bool) -> Parts:
    def parts(problem: ShareProblem, rising: Flags) -> Floats:
        found = np.zeros(len(rising))
        for entity, whole in enumerate(problem.entity_weight):
            mine = np.flatnonzero(rising & (problem.jobs.entity == entity))[: 1 if fifo else None]
            found[mine] = whole * problem.jobs.weight[mine] / problem.jobs.weight[mine].sum()
        return found

    return parts


def fill_levels(problem: ShareProblem, parts: Parts) -> Floats:
    oracle = Oracle(problem)
    level, rising = np.zeros(oracle.n), runnable_jobs(problem)
    while rising.any():
        step = parts(problem, rising) / problem.scale
        level = level + oracle.largest_rise(level, step) * step
        rising = oracle.can_rise(level, rising)
    return level


POLICIES: dict[str, tuple[Policy, Parts]] = {
    "jobs": (WaterFilling(), by_weight),
    "entities": (Hierarchical(), by_entity(fifo=False)),
    "entities, fifo": (Hierarchical(Inside.FIFO), by_entity(fifo=True)),
}


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15, deadline=None)
@given(problem=problems(most_jobs=6))
def test_equal_to_the_integer_program(name: str, problem: ShareProblem) -> None:
    policy, parts = POLICIES[name]
    found = levels(problem, policy.compute_shares(problem).shares)
    assert found == pytest.approx(fill_levels(problem, parts), abs=20 * _RISES)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("sharing", [False, True])
@settings(max_examples=15, deadline=None)
@given(data=problems(sharing=True))
def test_nobody_can_be_raised_without_lowering_somebody(name: str, sharing: bool, data: ShareProblem) -> None:
    problem = data if sharing else data.without_pairs()
    shares = POLICIES[name][0].compute_shares(problem).shares
    got = problem.throughput(shares)
    worth, floor = 1.0 / problem.equal_throughput(), got * (1 - 1e-9)
    best = Maximize(TotalThroughput(lambda _: worth), (Floors(lambda _: floor),)).compute_shares(problem)
    assert best.value <= (got * worth).sum() * (1 + 1e-5)


def test_a_floor_that_rounding_left_does_not_end_the_search() -> None:
    """Scaled by its size of 1e-16, the solver refused its row: "Unsolvable: not set"."""
    kinds = JobKinds(np.array([[0.0, 0.5, 1.0]]), np.array([1]))
    jobs = Jobs.from_kinds([0] * 5, entity=[0, 0, 0, 1, 1])
    cluster = ClusterCapacity(("a", "b", "c"), np.array([1.0, 1.0, 3.0]), np.full(3, 0.5))
    problem = ShareProblem(cluster, kinds, jobs, np.array([1.0, 2.0, 3.0]))
    answer = Hierarchical(Inside.FIFO).compute_shares(problem)
    assert problem.throughput(answer.shares).sum() == pytest.approx(3.5)


def test_the_example_of_the_dissertation() -> None:
    """Four jobs alike on four workers, the first with three times the weight: in the end all have one."""
    kinds = JobKinds(np.array([[1.0]]), np.array([1]))
    jobs = Jobs.from_kinds([0, 0, 0, 0], weight=[3.0, 1.0, 1.0, 1.0])
    problem = ShareProblem(ClusterCapacity(("gpu",), np.array([4.0]), np.array([1.0])), kinds, jobs)
    assert WaterFilling().compute_shares(problem).shares.alone[:, 0] == pytest.approx([1, 1, 1, 1])
    fewer = ShareProblem(ClusterCapacity(("gpu",), np.array([2.0]), np.array([1.0])), kinds, jobs)
    assert WaterFilling().compute_shares(fewer).shares.alone[:, 0] == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])


def test_what_a_stuck_job_leaves_goes_to_the_next_in_its_entity() -> None:
    """Figure 5.6: the first of a queue has all of its entity's weight until it can rise no more."""
    kinds = JobKinds(np.array([[1.0]]), np.array([1]))
    jobs = Jobs.from_kinds([0] * 5, entity=[0, 0, 0, 1, 1])
    cluster = ClusterCapacity(("gpu",), np.array([2.5]), np.array([1.0]))
    problem = ShareProblem(cluster, kinds, jobs, np.array([1.0, 2.0]))
    answer = Hierarchical((Inside.FAIRNESS, Inside.FIFO)).compute_shares(problem)
    # The queue rises twice as fast as the other entity: to 5/3, when that has 5/6, and all is given.
    assert answer.shares.alone[:, 0] == pytest.approx([5 / 18, 5 / 18, 5 / 18, 1.0, 2 / 3])
