"""Rounds: shares are received in the long run, and no job runs twice or where it does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.arrays import Floats
from bidbrain.cluster.policies.baselines import Packing
from bidbrain.cluster.policies.fairness import LeastAttainedService
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem, Shares
from bidbrain.cluster.rounds import (
    FADE,
    ROUND_S,
    Combinations,
    Slot,
    choose_slots,
)
from tests.bidbrain.cluster.policies.problems import problems

ROUNDS = 400


def time_had(
    problem: ShareProblem, combinations: Combinations, rounds: int
) -> tuple[Floats, list[tuple[Slot, ...]]]:
    """Parts of all rounds that each combination had of each type, and the rounds."""
    received = np.zeros(combinations.share.shape)
    total, history = received.copy(), []
    for _ in range(rounds):
        chosen = choose_slots(problem, combinations, received)
        received *= FADE
        for slot in chosen:
            received[slot.chosen, slot.type] += ROUND_S
            total[slot.chosen, slot.type] += 1 / rounds
        history.append(chosen)
    return total, history


@settings(max_examples=15, deadline=None)
@given(problem=problems(sharing=True), packed=st.booleans())
def test_a_round_fits_and_runs_nobody_twice(problem: ShareProblem, packed: bool) -> None:
    policy = Packing(np.random.default_rng(0)) if packed else LeastAttainedService()
    combinations = Combinations.from_shares(policy.compute_shares(problem).shares)
    for chosen in time_had(problem, combinations, 12)[1]:
        used = np.zeros(len(problem.cluster.types))
        jobs: list[int] = []
        for slot in chosen:
            used[slot.type] += slot.workers
            ends = (int(combinations.first[slot.chosen]), int(combinations.second[slot.chosen]))
            jobs += [job for job in ends if job >= 0]
        assert (used <= problem.cluster.workers).all()
        assert len(set(jobs)) == len(jobs)


@settings(max_examples=15, deadline=None)
@given(problem=problems())
def test_nobody_with_a_share_starves(problem: ShareProblem) -> None:
    combinations = Combinations.from_shares(LeastAttainedService().compute_shares(problem).shares)
    total = time_had(problem, combinations, ROUNDS)[0]
    promised = combinations.share > 0.02
    assert (total.sum(axis=1)[promised.any(axis=1)] > 0).all()


def test_shares_come_true() -> None:
    """The dissertation's example (5.4.1), one worker of each type: within a tenth of the time."""
    rates = np.array([[10.0, 40.0], [4.0, 12.0], [50.0, 100.0]])
    cluster = ClusterCapacity(("k80", "v100"), np.ones(2), np.ones(2))
    problem = ShareProblem(cluster, JobKinds(rates, np.ones(3, np.int64)), Jobs.from_kinds([0, 1, 2]))
    shares = LeastAttainedService().compute_shares(problem).shares
    total = time_had(problem, Combinations.from_shares(shares), ROUNDS)[0]
    assert total == pytest.approx(shares.alone, abs=0.1)


def test_who_had_next_to_nothing_comes_first() -> None:
    """Time had is halved for ever, down to what a share cannot be divided by."""
    combinations = Combinations(np.arange(2), np.full(2, -1), np.full((2, 1), 0.5))
    assert combinations.priorities(np.array([[5e-324], [360.0]])).tolist() == [[np.inf], [0.5]]
    assert combinations.priorities(np.array([[1e-310], [1.0]])).tolist() == [[np.inf], [0.5]]


def test_a_large_job_is_not_passed_over_for_ever() -> None:
    """Eight workers: one job that needs all, and eight that need one (5.5)."""
    kinds = JobKinds(np.ones((2, 1)), np.array([8, 1]))
    problem = ShareProblem(
        ClusterCapacity(("gpu",), np.array([8.0]), np.ones(1)), kinds, Jobs.from_kinds([0] + [1] * 8)
    )
    shares = Shares(np.full((9, 1), 0.5))
    total = time_had(problem, Combinations.from_shares(shares), ROUNDS)[0]
    assert total[0, 0] == pytest.approx(0.5, abs=0.1)


def test_who_is_pressed_comes_first_and_the_largest_of_them() -> None:
    """Four workers: the pressed ones have no share of them, and a third has it all."""
    kinds = JobKinds(np.ones((2, 1)), np.array([3, 1]))
    problem = ShareProblem(
        ClusterCapacity(("gpu",), np.array([4.0]), np.ones(1)), kinds, Jobs.from_kinds([1, 1, 0, 1])
    )
    combinations = Combinations.from_shares(Shares(np.array([[0.0], [1.0], [0.0], [1.0]])))
    pressed = np.array([[True], [False], [True], [False]])
    chosen = choose_slots(problem, combinations, np.zeros((4, 1)), pressed)
    assert [slot.chosen for slot in chosen] == [2, 0]
    assert [slot.chosen for slot in choose_slots(problem, combinations, np.zeros((4, 1)))] == [1, 3]
