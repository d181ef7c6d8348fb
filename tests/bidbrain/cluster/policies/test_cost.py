"""Costs and deadlines: by hand, and what is said where not everything can be had."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings

from bidbrain.cluster.policies.base import Infeasible
from bidbrain.cluster.policies.cost import MakespanWithin, PerDollar, PerJob, Total, deadline_speed
from bidbrain.cluster.policies.problem import ClusterCapacity, InvalidProblem, JobKinds, Jobs, ShareProblem
from pricing_data.model.units import HOUR_S
from tests.bidbrain.cluster.policies.problems import check, problems


def two_types(slo_s: list[float], workers: tuple[float, float] = (2.0, 2.0)) -> ShareProblem:
    """Jobs of 3600 steps: one a second on the cheap type, two on the fast one, for three times the money."""
    cluster = ClusterCapacity(("cheap", "fast"), np.array(workers), np.array([1.0, 3.0]))
    jobs = Jobs.from_kinds([0] * len(slo_s), steps=3600.0, slo_s=slo_s)
    return ShareProblem(cluster, JobKinds(np.array([[1.0, 2.0]]), np.array([1])), jobs)


def test_a_deadline_buys_as_much_of_the_fast_type_as_it_needs() -> None:
    """Per dollar the cheap type wins; 3600 steps in 2400 s need 1.5 a second: half the time on each."""
    free = PerDollar().compute_shares(two_types([np.inf]))
    assert free.shares.alone == pytest.approx(np.array([[1.0, 0.0]]))
    hurried = PerDollar().compute_shares(two_types([2400.0]))
    assert hurried.shares.alone == pytest.approx(np.array([[0.5, 0.5]]))
    assert not hurried.short


def test_what_everybody_is_promised_at_least_costs_nobody_a_deadline() -> None:
    """Two deadlines want the fast worker for themselves; the third job gets what they leave: nothing."""
    problem = two_types([1800.0, 1800.0, np.inf], workers=(1.0, 1.0))
    answer = Total().compute_shares(problem)
    speed = problem.throughput(answer.shares)
    assert speed[:2].sum() == pytest.approx(3.0)
    assert speed[2] == pytest.approx(0.0, abs=1e-6)
    assert {one.job for one in answer.short} == {"job0", "job1", "job2"}


def test_who_cannot_keep_a_deadline_is_named_and_the_others_keep_theirs() -> None:
    problem = two_types([1000.0, 3600.0, np.inf])
    answer = PerDollar().compute_shares(problem)
    (short,) = answer.short
    assert short.job == "job0"
    assert short.needed == pytest.approx(3.6)
    assert short.why == "its deadline needs 3.6 steps/s, and no type gives more than 2"
    got = problem.throughput(answer.shares)
    assert got[0] == pytest.approx(2.0)
    assert got[1] >= 1.0 - 1e-6


def test_workers_that_are_too_few_are_said_to_be() -> None:
    problem = two_types([1800.0, 1800.0], workers=(0.0, 1.0))
    answer = PerDollar().compute_shares(problem)
    assert answer.short
    assert all("left beside the others'" in short.why for short in answer.short)
    assert sum(short.given for short in answer.short) <= 2.0 + 1e-6


@settings(max_examples=25, deadline=None)
@given(problem=problems())
def test_every_deadline_is_kept_or_named(problem: ShareProblem) -> None:
    needed = deadline_speed(problem)
    for policy in (PerDollar(), Total(), PerJob()):
        answer = policy.compute_shares(problem)
        check(problem, answer.shares)
        got, named = problem.throughput(answer.shares), {short.job for short in answer.short}
        for job, name in enumerate(problem.jobs.names):
            assert name in named or got[job] >= needed[job] * (1 - 1e-5)


@settings(max_examples=25, deadline=None)
@given(problem=problems())
def test_the_least_budget_that_is_named_is_enough_and_no_less_is(problem: ShareProblem) -> None:
    if not np.any(problem.allowed_types[problem.jobs.kind]):
        return
    least = _least(problem)
    with pytest.raises(Infeasible, match=re.escape(f"at least ${least:.6f}")):
        MakespanWithin(0.0).compute_shares(problem)
    answer = MakespanWithin(least * (1 + 1e-6)).compute_shares(problem)
    spent = problem.cost_per_hour(answer.shares) * answer.value / HOUR_S
    assert spent <= least * (1 + 1e-5)
    with pytest.raises(Infeasible):
        MakespanWithin(least * 0.999).compute_shares(problem)
    richer = MakespanWithin(least * 10).compute_shares(problem)
    assert richer.value <= answer.value * (1 + 1e-6)


def _least(problem: ShareProblem) -> float:
    """The budget that the error names, by hand: every job on the type that does it for least."""
    per_step = problem.kinds.scale[:, None] * problem.cluster.cost / np.maximum(problem.kinds.rates, 1e-12)
    cheapest = np.where(problem.allowed_types, per_step, np.inf).min(axis=1)[problem.jobs.kind]
    return float((problem.jobs.steps * cheapest)[np.isfinite(cheapest)].sum() / HOUR_S)


def test_floors_keep_ratios_from_shrinking_to_nothing() -> None:
    """Without promises the best ratio is next to nothing of one job; with them every job has its part."""
    problem = two_types([np.inf] * 4)
    answer = Total(least_share=0.5).compute_shares(problem)
    assert (problem.throughput(answer.shares) >= 0.5 * problem.isolated_throughput() * (1 - 1e-6)).all()


def test_what_was_reached_job_by_job_is_below_what_no_shares_exceed() -> None:
    problem = two_types([2400.0, np.inf, 5000.0])
    answer = PerJob().compute_shares(problem)
    assert answer.value <= PerJob.upper_bound(problem) * (1 + 1e-9)


def test_a_problem_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="workers: found shape"):
        ClusterCapacity(("one",), np.ones(2), np.ones(1))
    with pytest.raises(InvalidProblem, match="weight: found 0 for job1"):
        Jobs.from_kinds([0, 0], weight=[1.0, 0.0])
    with pytest.raises(InvalidProblem, match="kind: found 3, expected less than 1"):
        ShareProblem(
            ClusterCapacity(("one",), np.ones(1), np.ones(1)),
            JobKinds(np.ones((1, 1)), np.array([1])),
            Jobs.from_kinds([3]),
        )
