"""Whatever the market does and whatever is wished, what keeps within the net is in time and within budget."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.deadline.availability_belief import BeliefBatch
from bidbrain.deadline.baselines import greedy_rule, time_sliced_rule, uniform_progress_rule
from bidbrain.deadline.benchmark import BenchmarkRuns, Rule, simulate_rule
from bidbrain.deadline.feasibility import least_budget
from bidbrain.deadline.least_cost import LeastCost
from bidbrain.deadline.model import Codes, DeadlineJob, DeadlineState, DeadlineStates, MachineKind
from bidbrain.deadline.safety_net import allowed_machines, apply_net, margins_after
from pricing_data.model.units import Seconds
from tests.bidbrain.deadline.build import TICK_S, job, jobs

SEEDS = st.integers(0, 2**32 - 1)


def any_wish(of: DeadlineJob, seed: int) -> Rule:
    """A rule that wishes for anything, and is held by the net."""
    rng = np.random.default_rng(seed)

    def rule(now: DeadlineStates, _: BeliefBatch) -> Codes:
        return apply_net(of, now, rng.integers(0, len(MachineKind), size=len(now)))

    return rule


def on_any_market(of: DeadlineJob, rule: Rule, seed: int, budget: float = np.inf) -> BenchmarkRuns:
    """Sixteen windows of spot that comes and goes, from never up to always up."""
    rng = np.random.default_rng(seed)
    up = rng.random((16, of.tick_count)) < np.linspace(0.0, 1.0, 16)[:, None]
    return simulate_rule(of, up, rule, budget=budget)


@settings(deadline=None)
@given(jobs(), SEEDS)
def test_no_wish_can_make_a_job_late(of: DeadlineJob, seed: int) -> None:
    assert not on_any_market(of, any_wish(of, seed), seed).late.any()


@settings(deadline=None)
@given(jobs(), SEEDS, st.floats(0.0, 2.0))
def test_no_wish_can_exceed_a_budget_that_was_promised(of: DeadlineJob, seed: int, spare: float) -> None:
    budget = least_budget(of) * (1 + spare)

    runs = on_any_market(of, any_wish(of, seed), seed, budget)

    assert not runs.late.any()
    assert (runs.cost <= budget + 1e-6).all()


@settings(deadline=None)
@given(jobs(), SEEDS)
def test_the_policy_is_in_time_and_within_the_least_budget(of: DeadlineJob, seed: int) -> None:
    runs = on_any_market(of, LeastCost.for_job(of).cheapest_machines, seed, least_budget(of))

    assert not runs.late.any()
    assert (runs.cost <= least_budget(of) + 1e-6).all()


@pytest.mark.parametrize("rule", [greedy_rule, uniform_progress_rule, time_sliced_rule])
@settings(deadline=None)
@given(of=jobs(), seed=SEEDS)
def test_held_baselines_are_in_time(rule: Callable[[DeadlineJob], Rule], of: DeadlineJob, seed: int) -> None:
    assert not on_any_market(of, rule(of), seed).late.any()


def situation(
    of: DeadlineJob,
    *,
    running: MachineKind = MachineKind.NOTHING,
    overhead_left_s: float = 0.0,
    spot_up: bool = True,
    budget_left: float = math.inf,
) -> DeadlineStates:
    """At the start, with all the work to do."""
    now = DeadlineState(Seconds(0), of.work_s, running, Seconds(overhead_left_s), spot_up, budget_left)
    return now.as_batch(of)


def test_waiting_costs_a_tick_of_margin_spot_its_overhead_and_on_demand_nothing() -> None:
    of = job(work=4, deadline=8, overhead=0.5)

    margins = margins_after(of, situation(of), TICK_S)[:, 0] / TICK_S

    assert margins.tolist() == [2.5, 3.0, 3.5]


def test_a_running_machine_needs_no_second_start() -> None:
    of = job(work=4, deadline=8, overhead=1.5)
    spot = situation(of, running=MachineKind.SPOT, overhead_left_s=Seconds(0.5 * TICK_S))
    on_demand = situation(of, running=MachineKind.ON_DEMAND, overhead_left_s=Seconds(0))

    assert margins_after(of, spot, TICK_S)[MachineKind.SPOT, 0] == 2.0 * TICK_S
    assert margins_after(of, on_demand, TICK_S)[MachineKind.ON_DEMAND, 0] == 4.0 * TICK_S


def test_without_margin_only_on_demand_is_allowed() -> None:
    of = job(work=4, deadline=5, overhead=1)

    assert allowed_machines(of, situation(of))[:, 0].tolist() == [False, False, True]


def test_spot_is_not_allowed_while_it_is_away() -> None:
    of = job()

    assert allowed_machines(of, situation(of, spot_up=False))[:, 0].tolist() == [True, False, True]


def test_the_reserve_is_kept_out_of_the_margin() -> None:
    plain = job(work=4, deadline=8)
    careful = DeadlineJob(
        plain.work_s, plain.deadline_s, plain.overhead_s, plain.tick_s, plain.spot, plain.on_demand, 100.0
    )

    lost = margins_after(plain, situation(plain), TICK_S) - margins_after(careful, situation(careful), TICK_S)

    assert (lost == 100.0).all()


def test_a_budget_that_covers_on_demand_alone_allows_no_tick_that_may_bring_nothing() -> None:
    of = job(work=4, deadline=20, overhead=1)
    tight = situation(of, budget_left=least_budget(of))
    ample = situation(of, budget_left=least_budget(of) + 0.2)

    assert allowed_machines(of, tight)[MachineKind.SPOT, 0] == np.False_
    assert allowed_machines(of, ample)[MachineKind.SPOT, 0] == np.True_
