"""Every optimum of the reference cases, through the switches that make a problem the published code's own.

The code differs from the paper, and from our defaults: shares of types with fewer workers than a job needs
(``any_size``), all deadlines dropped where one cannot be kept (``slos``), prices per worker (``per_worker``),
finish-time fairness without the rest of the work from its second call on (``whole_isolated``) and, with space
sharing, with throughputs over weights (``divided_by_weight``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bidbrain.cluster.policies.base import Policy
from bidbrain.cluster.policies.cost import MaxThroughput, PerDollar, Total
from bidbrain.cluster.policies.fairness import FinishTimeFairness, LeastAttainedService, Makespan
from bidbrain.cluster.policies.problem import ShareProblem
from bidbrain.cluster.policies.water_filling import Hierarchical, Inside, WaterFilling
from tests.bidbrain.cluster.policies.reference import Case, read

SEES: dict[str, Callable[[Case], ShareProblem]] = {
    "": lambda case: case.agnostic,
    "_perf": lambda case: case.problem.without_pairs(),
    "_packed": lambda case: case.problem,
}
BY_ENTITY: dict[str, Policy] = {
    "": WaterFilling(),
    "#entities_fairness": Hierarchical(),
    "#entities_fifo": Hierarchical(Inside.FIFO),
}
RELATIVE = 1e-6


@pytest.fixture(params=range(8))
def case(request: pytest.FixtureRequest, recorded_data: Path) -> Case:
    return read(recorded_data / "gavel" / "tiny_cases" / f"seed_{request.param:02d}.json")


def value(policy: Policy, problem: ShareProblem) -> list[float]:
    return [policy.compute_shares(problem).value]


@pytest.mark.parametrize("sees", SEES)
@pytest.mark.parametrize(
    ("name", "policy"), [("max_min_fairness", LeastAttainedService()), ("min_total_duration", Makespan())]
)
def test_fairness_and_makespan(case: Case, name: str, policy: Policy, sees: str) -> None:
    assert value(policy, SEES[sees](case)) == pytest.approx(case.exact_answer(name + sees), rel=RELATIVE)


@pytest.mark.parametrize("sees", SEES)
def test_finish_time_fairness(case: Case, sees: str) -> None:
    problem, name = SEES[sees](case), "finish_time_fairness" + sees
    weighted = sees == "_packed"
    policy = FinishTimeFairness(divided_by_weight=weighted)
    assert value(policy, problem) == pytest.approx(case.exact_answer(name), rel=RELATIVE)
    later = case.policies[name + "#second_call"]
    jobs = replace(
        problem.jobs,
        steps=np.array(later["steps_remaining"]),
        age_s=np.array(later["seconds_since_arrival"]),
        isolated_s=np.array(later["isolated_time"]),
    )
    policy = FinishTimeFairness(whole_isolated=True, divided_by_weight=weighted)
    found = value(policy, replace(problem, jobs=jobs))
    assert found == pytest.approx(case.exact_answer(name + "#second_call"), rel=RELATIVE)


@pytest.mark.parametrize("entities", BY_ENTITY)
@pytest.mark.parametrize("sees", SEES)
def test_water_filling(case: Case, sees: str, entities: str) -> None:
    problem, name = SEES[sees](case), "max_min_fairness_water_filling" + sees + entities
    if name not in case.policies:
        assert (sees, entities != "") == ("", True), "the published code knows entities only with types"
        return
    levels = (
        problem.throughput(BY_ENTITY[entities].compute_shares(problem).shares) / problem.equal_throughput()
    )
    exact = case.exact_answer(name)
    assert levels == pytest.approx(exact, abs=RELATIVE * max(exact))


def test_throughput_and_cost(case: Case) -> None:
    alone, by_cost = case.problem.without_pairs(), "max_sum_throughput_normalized_by_cost_perf"
    assert value(MaxThroughput(), alone) == pytest.approx(
        case.exact_answer("max_sum_throughput_perf"), rel=RELATIVE
    )
    found = value(PerDollar(slos=False, per_worker=True), alone)
    assert found == pytest.approx(case.exact_answer(by_cost), rel=RELATIVE)


@pytest.mark.parametrize("sees", ["_perf", "_packed"])
def test_cost_with_deadlines(case: Case, sees: str) -> None:
    problem, name = SEES[sees](case), f"max_sum_throughput_normalized_by_cost{sees}_SLOs"
    told = case.policies[name]
    found = value(PerDollar(slos=told["slos_feasible"], per_worker=True), problem)
    assert found == pytest.approx(case.exact_answer(name), rel=RELATIVE)
    kept = PerDollar(per_worker=True).compute_shares(problem)
    assert (not kept.short) == told["slos_feasible"]
    if told["slos_feasible"]:
        # Ratios of sums: what that code's own objective is not.
        everything = Total(least_share=0.0, worth=lambda seen: np.ones(len(seen.jobs.kind)))
        best = told["not_gavel: sum thr / sum scale cost x"]["best"]
        assert value(everything, problem) == pytest.approx([best], rel=RELATIVE)
