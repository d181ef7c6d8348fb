"""Tests properties of every answer on random problems (Narayanan 5.4.4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.arrays import Floats
from bidbrain.cluster.policies.base import (
    FillUnused,
    LeastThroughput,
    Maximize,
    Policy,
    SpendAtMost,
    TotalSpending,
    TotalThroughput,
    runnable_jobs,
)
from bidbrain.cluster.policies.baselines import Agnostic, AlloX, Isolated, Packing
from bidbrain.cluster.policies.cost import MakespanWithin, MaxThroughput, PerDollar, PerJob, Total
from bidbrain.cluster.policies.fairness import FinishTimeFairness, LeastAttainedService, Makespan, fair_part
from bidbrain.cluster.policies.ordered import Fifo, ShortestJobFirst, fastest_throughput
from bidbrain.cluster.policies.problem import JobKinds, ShareProblem
from bidbrain.cluster.policies.water_filling import Hierarchical, Inside, WaterFilling
from tests.bidbrain.cluster.policies.problems import check, levels, problems, used_workers, without_merging

SHARING: dict[str, Policy] = {
    "las": LeastAttainedService(),
    "las filled": FillUnused(LeastAttainedService()),
    "makespan": Makespan(),
    "finish-time fairness": FinishTimeFairness(),
    "fifo": Fifo(),
    "shortest": ShortestJobFirst(),
    "throughput": MaxThroughput(),
    "per dollar": PerDollar(),
    "total": Total(),
    "water filling": WaterFilling(),
    "entities": Hierarchical(),
    "entities, fifo": Hierarchical(Inside.FIFO),
    "entities, mixed": Hierarchical((Inside.FIFO, Inside.FAIRNESS, Inside.FIFO)),
    "packing": Packing(np.random.default_rng(0)),
}
ALONE: dict[str, Policy] = {
    **SHARING,
    "per job": PerJob(),
    "isolated": Isolated(),
    "allox": AlloX(),
    "agnostic": Agnostic(LeastAttainedService(), 0),
}
CLOSE = 1e-6
MANY = 20
"""Examples each."""


@pytest.mark.parametrize("name", ALONE)
@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_shares_fit(name: str, problem: ShareProblem) -> None:
    check(problem, ALONE[name].compute_shares(problem).shares)


@pytest.mark.parametrize("name", SHARING)
@settings(max_examples=MANY, deadline=None)
@given(problem=problems(sharing=True))
def test_shares_of_pairs_fit(name: str, problem: ShareProblem) -> None:
    check(problem, SHARING[name].compute_shares(problem).shares)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems(sharing=True))
def test_merging_classes_changes_nothing(problem: ShareProblem) -> None:
    for policy in (
        LeastAttainedService(),
        Makespan(),
        FinishTimeFairness(),
        Fifo(),
        MaxThroughput(),
        Total(),
    ):
        merged, apart = policy.compute_shares(problem), policy.compute_shares(without_merging(problem))
        if isinstance(policy, Total) and merged.short:
            continue  # Who gives where deadlines cannot all be kept is not unique.
        assert merged.value == pytest.approx(apart.value, rel=CLOSE)
    for filling in (WaterFilling(), Hierarchical(), Hierarchical(Inside.FIFO)):
        merged, apart = filling.compute_shares(problem), filling.compute_shares(without_merging(problem))
        assert levels(problem, merged.shares) == pytest.approx(levels(problem, apart.shares), abs=1e-5)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems(sharing=True))
def test_pairs_of_classes_dealt_out_give_every_job_what_its_class_got(problem: ShareProblem) -> None:
    answer = LeastAttainedService().compute_shares(problem)
    able = runnable_jobs(problem)
    got = problem.throughput(answer.shares)[able] / fair_part(problem)[able]
    if able.any():
        assert got.min() == pytest.approx(answer.value, rel=CLOSE)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_nobody_is_worse_off_than_in_a_corner_of_their_own(problem: ShareProblem) -> None:
    corner = Isolated().compute_shares(problem).shares
    speed, able = problem.throughput(corner), runnable_jobs(problem)
    if not able.any():
        return
    least = (speed / fair_part(problem))[able].min()
    assert LeastAttainedService().compute_shares(problem).value >= least * (1 - CLOSE)
    for most in (WaterFilling(), FillUnused(LeastAttainedService())):
        shares = most.compute_shares(problem).shares
        assert (problem.throughput(shares) / fair_part(problem))[able].min() >= least * (1 - CLOSE)
    whole = replace(problem, any_size=True)
    for policy in (Makespan(), FillUnused(Makespan())):
        assert policy.compute_shares(whole).value <= (
            whole.jobs.steps / whole.isolated_throughput()
        ).max() * (1 + CLOSE)
    jobs = whole.jobs
    alone = jobs.steps / whole.isolated_throughput()
    worst = ((jobs.age_s + alone) / (jobs.isolated_s + alone)).max()
    assert FinishTimeFairness().compute_shares(whole).value <= worst * (1 + CLOSE)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems(sharing=True))
def test_sharing_workers_is_never_worse(problem: ShareProblem) -> None:
    alone = problem.without_pairs()
    for most in (LeastAttainedService(), MaxThroughput(), Fifo(), PerDollar(slos=False), WaterFilling()):
        assert most.compute_shares(problem).value >= most.compute_shares(alone).value * (1 - CLOSE)
    for least in (Makespan(), FinishTimeFairness(), ShortestJobFirst()):
        assert least.compute_shares(problem).value <= least.compute_shares(alone).value * (1 + CLOSE)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_one_type_in_many_guises_is_one_type(problem: ShareProblem) -> None:
    rates = np.repeat(problem.kinds.rates.max(axis=1)[:, None], len(problem.cluster.types), axis=1)
    alike = replace(problem, kinds=JobKinds(rates, problem.kinds.scale), any_size=True)
    for policy in (
        LeastAttainedService(),
        Makespan(),
        FillUnused(Makespan()),
        FinishTimeFairness(),
        WaterFilling(),
        Hierarchical(),
        Fifo(),
        ShortestJobFirst(),
        MaxThroughput(),
    ):
        blind = policy.compute_shares(alike.without_types(0))
        assert policy.compute_shares(alike).value == pytest.approx(blind.value, rel=CLOSE)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems(), factor=st.sampled_from([0.01, 3.0, 1000.0]))
def test_other_money_changes_no_share(problem: ShareProblem, factor: float) -> None:
    cluster = replace(problem.cluster, cost=problem.cluster.cost * factor)
    dearer = replace(problem, cluster=cluster)
    for policy in (PerDollar(), Total(), PerJob()):
        before, after = policy.compute_shares(problem), policy.compute_shares(dearer)
        assert after.value * factor == pytest.approx(before.value, rel=1e-5)
        # The old shares are as good at the new prices as the new ones.
        assert dearer.cost_per_hour(before.shares) == pytest.approx(
            factor * problem.cost_per_hour(before.shares)
        )
        assert [short.job for short in after.short] == [short.job for short in before.short]
    spent = problem.cluster.cost.max() * problem.cluster.workers.sum() * 1e3
    spans = [
        MakespanWithin(budget).compute_shares(seen)
        for seen, budget in ((problem, spent), (dearer, spent * factor))
    ]
    assert spans[0].value == pytest.approx(spans[1].value, rel=1e-9)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_what_is_filled_up_takes_from_nobody(problem: ShareProblem) -> None:
    plain, filled = (policy.compute_shares(problem).shares for policy in (Makespan(), FillUnused(Makespan())))
    before, after = problem.throughput(plain), problem.throughput(filled)
    assert (after >= before * (1 - CLOSE) - CLOSE).all()
    assert (after / problem.equal_throughput()).sum() >= (before / problem.equal_throughput()).sum() * (
        1 - CLOSE
    )


@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_the_shortest_job_is_as_fast_as_it_can_be(problem: ShareProblem) -> None:
    speed = fastest_throughput(problem)
    if not (speed > 0).any():
        return
    took = np.divide(problem.jobs.steps, speed, out=np.full(len(speed), np.inf), where=speed > 0)
    answer = ShortestJobFirst().compute_shares(problem)
    got = problem.throughput(answer.shares)
    assert answer.value == pytest.approx(took.min())
    assert got[np.argmin(took)] == pytest.approx(speed[np.argmin(took)], rel=CLOSE)


@settings(max_examples=MANY, deadline=None)
@given(problem=problems(), budget=st.sampled_from([0.1, 1.0, 5.0]))
def test_terms_and_constraints_compose(problem: ShareProblem, budget: float) -> None:
    """Max-min within a budget is a line; spending less is worth something only if it is said."""

    def normalized(seen: ShareProblem) -> Floats:
        return np.asarray(1.0 / seen.equal_throughput())

    term = LeastThroughput(fair_part) + 0.01 * TotalThroughput(normalized)
    answer = Maximize(term, (SpendAtMost(budget),)).compute_shares(problem)
    check(problem, answer.shares)
    assert problem.cost_per_hour(answer.shares) <= budget * (1 + CLOSE)
    thrift = Maximize(term + (-1e6) * TotalSpending(), (SpendAtMost(budget),)).compute_shares(problem)
    assert used_workers(problem, thrift.shares).sum() == pytest.approx(0.0, abs=1e-6)
