"""Linear programs with many columns: sifted ones end where whole ones do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.cluster.policies.base import Floors, Maximize, TotalThroughput
from bidbrain.cluster.policies.fairness import Makespan
from bidbrain.cluster.policies.linear_program import ShareProgram
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from bidbrain.cluster.solver import LinearProgram, Unsolvable, solve, solve_by_sifting


def dense_program(gain: np.ndarray, matrix: np.ndarray, low: np.ndarray, high: np.ndarray) -> LinearProgram:
    rows, columns = np.nonzero(matrix)
    count = len(gain)
    return LinearProgram(
        gain, np.zeros(count), np.full(count, np.inf), rows, columns, matrix[rows, columns], low, high
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 6), floors=st.booleans())
def test_a_few_columns_at_a_time_end_at_the_optimum(seed: int, rows: int, floors: bool) -> None:
    chance = np.random.default_rng(seed)
    matrix = np.round(chance.uniform(0, 3, (rows, 60))) + 0.5
    low = np.where(chance.random(rows) < 0.3, 0.5, -np.inf) if floors else np.full(rows, -np.inf)
    program = dense_program(chance.uniform(-1, 5, 60), matrix, low, chance.uniform(1, 9, rows))
    first = chance.random(60) < 0.05
    try:
        whole = solve(program)
    except Unsolvable:
        with pytest.raises(Unsolvable):
            solve_by_sifting(program, first)
        return
    best = solve_by_sifting(program, first)
    assert best.value == pytest.approx(whole.value, rel=1e-9, abs=1e-9)
    assert program.gain @ best.x == pytest.approx(best.value, rel=1e-9, abs=1e-9)
    used = matrix @ best.x
    assert (used <= program.row_high + 1e-7).all()
    assert (used >= program.row_low - 1e-7).all()
    assert (best.reduced <= 1e-7).all()


def test_where_the_first_columns_can_do_nothing_all_come_in() -> None:
    program = dense_program(
        np.array([-1.0, -2.0]), np.array([[0.0, 1.0]]), np.array([3.0]), np.array([np.inf])
    )
    assert solve_by_sifting(program, np.array([True, False])).value == pytest.approx(-6.0)


def test_many_pairs_are_sifted_and_few_are_not_to_the_same_end() -> None:
    """Seventy jobs, each with steps of its own, that gain by sharing."""
    chance = np.random.default_rng(3)
    rates = chance.uniform(1, 8, (3, 2))
    together = chance.uniform(0.4, 0.9, (3, 3, 2)) * rates[:, None, :]
    steps = chance.uniform(10, 500, 70)
    jobs = Jobs.from_kinds(chance.integers(0, 3, 70), steps=steps, age_s=chance.uniform(0, 90, 70))
    cluster = ClusterCapacity(("a", "b"), np.array([9.0, 6.0]), np.ones(2))
    problem = ShareProblem(cluster, JobKinds(rates, np.ones(3, np.int64), together), jobs)

    def worth(seen: ShareProblem) -> np.ndarray:
        return 1.0 / seen.jobs.steps

    program = ShareProgram(problem, steps)
    assert program.uses.paired.sum() > 2000, "else this shows nothing"
    program.add_gain(program.weighted_gains(program.classes.common_values(1 / steps) * program.classes.size))
    best = Maximize(TotalThroughput(worth)).compute_shares(problem)
    assert best.value == pytest.approx(solve(program.build_program()).value, rel=1e-9)
    took = Makespan().compute_shares(problem)
    assert (steps / problem.throughput(took.shares)).max() == pytest.approx(took.value, rel=1e-7)
    assert took.value < Makespan().compute_shares(problem.without_pairs()).value

    floor = 0.5 * problem.throughput(took.shares)
    filling = Maximize(TotalThroughput(worth), (Floors(lambda _: floor),))
    known, unknown = (
        replace(filling, near=took.shares).compute_shares(problem),
        filling.compute_shares(problem),
    )
    assert known.value == pytest.approx(unknown.value, rel=1e-7)
    assert (problem.throughput(known.shares) >= floor * (1 - 1e-6)).all()
    assert known.value > (problem.throughput(took.shares) / steps).sum() * (1 + 1e-3), "else nothing was left"
