"""Finish-time fairness of jobs that are weeks old and have moments left: numbers of all sizes at once."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.cluster.policies.base import FillUnused
from bidbrain.cluster.policies.fairness import FinishTimeFairness
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from tests.bidbrain.cluster.policies.problems import check


def problem(seed: int, least: float) -> ShareProblem:
    """The first job is the oldest, with ``least`` steps left or more, up to one."""
    chance = np.random.default_rng(seed)
    count = int(chance.integers(2, 7))
    rates = chance.choice([0.5, 1.0, 2.0, 3.0, 4.42608826], (3, 2))
    steps, age = 10.0 ** chance.uniform(-3, 5, count), 10.0 ** chance.uniform(3, 6, count)
    alone = age * chance.uniform(0.3, 1.2, count)
    steps[0], age[0] = 10.0 ** chance.uniform(np.log10(least), 0), 10.0 ** chance.uniform(5, 7)
    alone[0] = age[0] * 0.63
    jobs = Jobs.from_kinds(chance.integers(0, 3, count).tolist(), steps=steps, age_s=age, isolated_s=alone)
    cluster = ClusterCapacity(("a", "b"), chance.integers(2, 5, 2).astype(float), np.array([1.0, 2.0]))
    return ShareProblem(cluster, JobKinds(rates, np.array([1, 1, 2])), jobs)


@pytest.mark.parametrize("least", [1e-2, 1e-10])
def test_the_answer_is_found_and_nobody_is_left_without(least: float) -> None:
    for seed in range(150):
        asked = problem(seed, least)
        answer = FinishTimeFairness().compute_shares(asked)
        check(asked, answer.shares)
        jobs, speed = asked.jobs, asked.throughput(answer.shares)
        assert speed.min() > 0, f"seed {seed}"
        alone = jobs.isolated_s + jobs.steps / asked.isolated_throughput()
        rho = (jobs.age_s + jobs.steps / speed) / alone
        assert rho.max() <= answer.value * (1 + 2e-7), f"seed {seed}"
        filled = FillUnused(FinishTimeFairness()).compute_shares(asked)
        assert (asked.throughput(filled.shares) >= speed * (1 - 1e-6)).all(), f"seed {seed}"
