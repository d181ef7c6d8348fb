"""Jobs with floors of their own, merged: the optimum is that of a program that has a row for each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.arrays import Floats
from bidbrain.cluster.policies.base import (
    FillUnused,
    Floors,
    Maximize,
    Policy,
    TotalSpending,
    TotalThroughput,
    runnable_jobs,
)
from bidbrain.cluster.policies.bisection import most_throughput
from bidbrain.cluster.policies.cost import MakespanWithin, PerDollar, deadline_speed, reachable_floors
from bidbrain.cluster.policies.fairness import FinishTimeFairness, Makespan
from bidbrain.cluster.policies.job_weights import most_worth
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from bidbrain.cluster.policies.throughput_floors import count_slow_types, exchange_rates
from bidbrain.cluster.policies.water_filling import Hierarchical, Inside, WaterFilling
from bidbrain.cluster.solver import Unsolvable
from tests.bidbrain.cluster.policies.problems import check, levels, without_merging

EXACT = 1e-9
MANY = 40


@st.composite
def crowds(draw: st.DrawFn) -> ShareProblem:
    """Up to 60 jobs of four kinds, no two alike, on one to four types; from plenty of workers to few."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    types, count = draw(st.integers(1, 4)), draw(st.integers(1, 60))
    rates = np.round(chance.uniform(0.5, 8.0, (4, types)), draw(st.sampled_from([0, 1, 6])))
    rates[chance.random(rates.shape) < 0.15] = 0.0
    rates[rates.max(axis=1) == 0, 0] = 1.0
    scale = chance.choice([1, 1, 2, 4], size=4)
    crowded = draw(st.sampled_from([0.1, 0.5, 1.0, 3.0]))
    workers = np.maximum(np.round(chance.uniform(0.2, 1.0, types) * count * crowded), draw(st.integers(0, 4)))
    workers[0] = max(workers[0], 1.0)
    steps = chance.uniform(10, 500, count)
    jobs = Jobs.from_kinds(
        chance.integers(0, 4, count),
        weight=chance.choice([1.0, 2.0], count),
        steps=steps,
        age_s=chance.uniform(0, 100, count),
        isolated_s=chance.uniform(0, 50, count),
        slo_s=steps / chance.uniform(0.01, draw(st.sampled_from([0.2, 2.0, 10.0])), count),
        entity=chance.integers(0, 2, count),
    )
    cost = chance.uniform(0.1, 4.0, types)
    names = tuple(f"type{j}" for j in range(types))
    return ShareProblem(
        ClusterCapacity(names, workers, cost), JobKinds(rates, scale), jobs, np.array([1.0, 2.0])
    )


@pytest.mark.parametrize(
    "policy",
    [Makespan(), FinishTimeFairness(), FillUnused(Makespan()), PerDollar()],
    ids=lambda one: str(one)[:20],
)
@settings(max_examples=MANY, deadline=None)
@given(problem=crowds())
def test_merged_is_as_good_as_one_by_one(policy: Policy, problem: ShareProblem) -> None:
    merged, apart = policy.compute_shares(problem), policy.compute_shares(without_merging(problem))
    check(problem, merged.shares)
    assert len(merged.short) == len(apart.short)
    if isinstance(policy, PerDollar) and merged.short:
        return  # Who gives where deadlines cannot all be kept is not unique, and so is what is left.
    assert merged.value == pytest.approx(apart.value, rel=EXACT)
    if isinstance(policy, FillUnused):
        both = [(levels(problem, answer.shares)).sum() for answer in (merged, apart)]
        assert both[0] == pytest.approx(both[1], rel=1e-6)


@settings(max_examples=MANY, deadline=None)
@given(problem=crowds(), part=st.sampled_from([0.0, 0.3, 1.0]), draw=st.integers(0, 2**32 - 1))
def test_worths_of_their_own_are_merged_without_loss(problem: ShareProblem, part: float, draw: int) -> None:
    """Compares with one program with a class for each worth; some worths are equal, some 0."""
    count = len(problem.jobs.kind)
    worth = np.round(np.random.default_rng(draw).uniform(0, 3, count), 1) / problem.jobs.steps
    floor = reachable_floors(problem, part * deadline_speed(problem))[0]
    best = most_worth(problem, worth, floor)
    check(problem, best.shares)
    got = problem.throughput(best.shares)
    assert (got >= floor * (1 - 1e-7)).all()
    assert got @ worth == pytest.approx(best.value, rel=1e-7, abs=1e-12)
    one_by_one = Maximize(TotalThroughput(lambda _: worth), (Floors(lambda _: floor),))
    assert best.value == pytest.approx(
        one_by_one.compute_shares(without_merging(problem)).value, rel=EXACT, abs=1e-12
    )


@settings(max_examples=MANY, deadline=None)
@given(problem=crowds(), part=st.sampled_from([0.3, 1.0]))
def test_work_per_dollar_is_the_most_there_is(problem: ShareProblem, part: float) -> None:
    """Dinkelbach's test: at the answer's ratio, work less what it costs can be at most 0."""
    floor = reachable_floors(problem, part * deadline_speed(problem))[0]
    worth = 1.0 / problem.jobs.steps
    if not floor.any():
        return
    best = most_worth(problem, worth, floor, per_dollar=True)
    check(problem, best.shares)
    got, cost = problem.throughput(best.shares), problem.cost_per_hour(best.shares)
    assert (got >= floor * (1 - 1e-6)).all()
    assert got @ worth == pytest.approx(best.value * cost, rel=1e-6)
    margin = TotalThroughput(lambda _: worth) + (-best.value) * TotalSpending()
    most = Maximize(margin, (Floors(lambda _: floor),)).compute_shares(without_merging(problem))
    assert most.value == pytest.approx(0.0, abs=1e-8 * best.value * cost)


@settings(max_examples=MANY, deadline=None)
@given(problem=crowds(), part=st.floats(0.05, 1.0))
def test_everybody_reaches_their_own_floor(problem: ShareProblem, part: float) -> None:
    """Floors that can just be had together, at the least cost: nobody is given another's."""
    floor = reachable_floors(problem, part * deadline_speed(problem))[0]
    cheapest = Maximize(-1.0 * TotalSpending(), (Floors(lambda _: floor),))
    shares = cheapest.compute_shares(problem).shares
    check(problem, shares)
    assert (problem.throughput(shares) >= floor * (1 - 1e-7)).all()
    alone = cheapest.compute_shares(without_merging(problem))
    assert problem.cost_per_hour(shares) == pytest.approx(-alone.value, rel=1e-8, abs=1e-9)


@settings(max_examples=MANY, deadline=None)
@given(problem=crowds())
def test_the_slowest_job_is_the_value(problem: ShareProblem) -> None:
    """Tests that the answered value is what the shares achieve."""
    able = runnable_jobs(problem)
    if not able.any():
        return
    answer = Makespan().compute_shares(problem)
    took = problem.jobs.steps[able] / problem.throughput(answer.shares)[able]
    assert took.max() == pytest.approx(answer.value, rel=1e-7)
    answer = FinishTimeFairness().compute_shares(problem)
    isolated = problem.isolated_throughput()[able]
    took = problem.jobs.steps[able] / problem.throughput(answer.shares)[able]
    whole = problem.jobs.isolated_s[able] + problem.jobs.steps[able] / isolated
    if (isolated > 0).all():
        rho = (problem.jobs.age_s[able] + took) / whole
        assert rho.max() == pytest.approx(answer.value, rel=1e-7)


@settings(max_examples=MANY, deadline=None)
@given(problem=crowds(), times=st.sampled_from([1.0001, 1.5, 20.0]))
def test_a_budget_is_kept_and_used_as_well_as_one_by_one(problem: ShareProblem, times: float) -> None:
    price = problem.kinds.scale[:, None] * problem.cluster.cost
    per_step = np.divide(
        price, problem.kinds.rates, out=np.full(price.shape, np.inf), where=problem.allowed_types
    )
    able = runnable_jobs(problem)
    least = float((problem.jobs.steps * per_step.min(axis=1)[problem.jobs.kind])[able].sum()) / 3600
    if not able.any():
        return
    policy = MakespanWithin(least * times)
    merged, apart = policy.compute_shares(problem), policy.compute_shares(without_merging(problem))
    assert merged.value == pytest.approx(apart.value, rel=EXACT)
    spent = problem.cost_per_hour(merged.shares) * merged.value / 3600
    assert spent <= least * times * (1 + 1e-8)
    assert merged.value >= Makespan().compute_shares(problem).value * (1 - EXACT)


@pytest.mark.parametrize(
    "policy", [WaterFilling(), Hierarchical(), Hierarchical(Inside.FIFO)], ids=["jobs", "entities", "fifo"]
)
@settings(max_examples=15, deadline=None)
@given(problem=crowds())
def test_levels_are_those_of_jobs_one_by_one(policy: Policy, problem: ShareProblem) -> None:
    merged, apart = policy.compute_shares(problem), policy.compute_shares(without_merging(problem))
    found = [levels(problem, answer.shares) for answer in (merged, apart)]
    assert found[0] == pytest.approx(found[1], abs=1e-5)


@given(data=st.data(), kinds=st.integers(1, 4))
def test_a_mean_dealt_out_gives_everybody_theirs(data: st.DataObject, kinds: int) -> None:
    """Random members of one class and a random mix of types that reaches their mean."""
    rates = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 8.0]), min_size=kinds, max_size=kinds))
    )
    most = rates.max()
    if most == 0:
        return
    asked = np.array(data.draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6))) * most
    members = asked[
        count_slow_types(np.tile(rates, (len(asked), 1)), asked)
        == count_slow_types(rates[None], asked[:1])[0]
    ]
    weight = np.array(data.draw(st.lists(st.floats(0.0, 1.0), min_size=kinds, max_size=kinds))) * (rates > 0)
    weight = weight / max(weight.sum(), 1.0)
    mean = members.mean()
    fast = (rates == most).astype(float) / (rates == most).sum()
    speed = float(weight @ rates)
    part = 0.0 if speed >= mean else (mean - speed) / (most - speed)
    time = (1 - part) * weight + part * fast
    change = exchange_rates(rates[None], np.array([mean]), time[None])[0]
    shares: Floats = time + (members - mean)[:, None] * change
    assert shares.min() >= -1e-12
    assert shares.sum(axis=1).max() <= 1 + 1e-9
    assert (shares @ rates >= members * (1 - 1e-9)).all()
    assert shares.mean(axis=0) == pytest.approx(time)


def test_floors_that_cannot_be_had_are_refused() -> None:
    problem = ShareProblem(
        ClusterCapacity(("slow", "fast"), np.array([1.0, 1.0]), np.ones(2)),
        JobKinds(np.array([[1.0, 2.0]]), np.array([1])),
        Jobs.from_kinds([0, 0, 0]),
    )
    worth = TotalThroughput(lambda seen: np.ones(len(seen.jobs.kind)))
    for asked in ([1.5, 1.0, 0.51], [2.1, 0.0, 0.0]):
        with pytest.raises(Unsolvable):
            Maximize(worth, (promise_speeds(*asked),)).compute_shares(problem)
    both = Maximize(worth, (promise_speeds(1.5, 0.0, 0.0), promise_speeds(0.0, 1.0, 0.5)))
    got = problem.throughput(both.compute_shares(problem).shares)
    assert got == pytest.approx([1.5, 1.0, 0.5])


def promise_speeds(*speeds: float) -> Floors:
    return Floors(lambda _: np.array(speeds))


def test_jobs_that_are_done_hold_nobody_up() -> None:
    problem = ShareProblem(
        ClusterCapacity(("one",), np.array([1.0]), np.ones(1)),
        JobKinds(np.array([[2.0]]), np.array([1])),
        Jobs.from_kinds([0, 0], steps=[10.0, 0.0]),
    )
    assert Makespan().compute_shares(problem).value == pytest.approx(5.0)
    done = replace(problem, jobs=replace(problem.jobs, steps=np.zeros(2)))
    assert Makespan().compute_shares(done).value == 0.0
    assert most_throughput(problem) == pytest.approx([2.0, 2.0])


def test_who_has_no_choice_speaks_for_nobody_else() -> None:
    """Jobs alike but for floors and worths: the dull one must run all its time, another one wants to."""
    problem = ShareProblem(
        ClusterCapacity(("one",), np.array([2.0]), np.ones(1)),
        JobKinds(np.array([[2.0]]), np.array([1])),
        Jobs.from_kinds([0, 0, 0]),
    )
    worth, floor = np.array([0.1, 5.0, 1.0]), np.array([2.0, 0.5, 0.1])
    best = most_worth(problem, worth, floor)
    assert problem.throughput(best.shares) == pytest.approx([2.0, 1.9, 0.1])
    assert best.value == pytest.approx(0.2 + 9.5 + 0.1)
