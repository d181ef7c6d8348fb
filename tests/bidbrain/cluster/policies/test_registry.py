"""The menu of policies: every name makes a policy that answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from bidbrain.cluster.policies.registry import DEFAULT, MENU, BadParameter, make_policy
from spotctl.queue.spec import POLICY

PROBLEM = ShareProblem(
    ClusterCapacity(("fast", "cheap"), np.array([2.0, 4.0]), np.array([1.0, 0.2])),
    JobKinds(np.array([[4.0, 1.0], [1.0, 1.0]]), np.array([1, 2])),
    Jobs.from_kinds([0, 1, 1], steps=[1e4, 2e4, 3e4], weight=[1.0, 2.0, 1.0], entity=[0, 0, 1]),
    np.array([1.0, 2.0]),
)


@pytest.mark.parametrize("name", MENU)
@pytest.mark.parametrize("blind", [False, True])
def test_every_policy_answers_with_valid_shares(name: str, blind: bool) -> None:
    parameters = {"agnostic": blind, **({"budget": 1000.0} if name == "makespan-within" else {})}
    shares = make_policy(name, parameters).compute_shares(PROBLEM).shares.per_job
    assert shares.min() >= -1e-9
    assert shares.sum(axis=1).max() <= 1 + 1e-6
    assert np.all(PROBLEM.scale @ shares <= PROBLEM.cluster.workers + 1e-6)
    assert shares.sum() > 0
    assert MENU[name].does


@pytest.mark.parametrize("name", MENU)
@pytest.mark.parametrize("workers", [(0, 0), (0, 4), (4, 0)])
def test_every_policy_answers_where_all_of_a_type_is_kept_for_others(
    name: str, workers: tuple[int, int]
) -> None:
    """A queue whose promises have taken a pool, or all of them; one job can run on the first type alone."""
    problem = replace(
        PROBLEM,
        cluster=replace(PROBLEM.cluster, workers=np.array(workers, np.float64)),
        kinds=JobKinds(np.array([[4.0, 1.0], [1.0, 0.0]]), np.array([1, 2])),
        jobs=Jobs.from_kinds([0, 1, 1], steps=1e4, entity=[0, 0, 1]),
    )
    parameters = {"budget": 1000.0} if name == "makespan-within" else {}
    answer = make_policy(name, parameters).compute_shares(problem)
    shares = answer.shares.per_job
    assert not np.isnan(answer.value)
    assert np.all(PROBLEM.scale @ shares <= np.array(workers) + 1e-6)
    assert shares.min() >= -1e-9


def test_the_queue_files_default_is_the_menus() -> None:
    assert POLICY == DEFAULT


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("las", {"seed": 1.0}, "las does not take seed, expected any of agnostic"),
        ("gandiva", {"seed": 1.5}, "seed: found 1.5"),
        ("gandiva", {"seed": float("inf")}, "seed: found inf"),
        ("makespan-within", {"budget": float("nan")}, "budget: found nan"),
        ("hierarchical", {"inside": "lottery"}, "expected fairness or fifo"),
        ("min-cost", {"least_share": 0.0}, "expected a number above 0 and at most 1"),
        ("fifo", {"agnostic": "yes"}, "agnostic: found 'yes'"),
    ],
)
def test_what_a_policy_cannot_be_told_is_said(
    name: str, parameters: dict[str, float | str | bool], said: str
) -> None:
    with pytest.raises(BadParameter, match=said):
        make_policy(name, parameters)
