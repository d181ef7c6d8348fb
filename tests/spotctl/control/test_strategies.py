"""Every strategy that a job file can name runs a job to its end, by the same lines as in a backtest."""

from __future__ import annotations

import pytest

from bidbrain.strategies import registry
from bidbrain.strategies.registry import DEFAULT, LIVE
from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import HOUR_S, Seconds
from spotctl.control.billing import CostBreakdown, cost_so_far
from spotctl.control.state import State
from spotctl.job.spec import DEFAULT_STRATEGY, NEED_DEADLINE, STRATEGIES
from tests.spotctl.build import START, capacity_between, changed, random_trace, replay, scripted_trace, terms

TRACE = random_trace(seed=3)


def run(strategy: str, **changes: object) -> tuple[State, CostBreakdown]:
    of = changed(terms(AWS_2016, clocks=100), strategy=strategy, **changes)
    state, _ = replay(of, TRACE)
    assert state.ending.closed is not None
    assert (state.ending.closed.exit_code, state.work_left) == (0, 0), state.ending.closed.why
    return state, cost_so_far(state)


def test_job_files_may_name_those_that_there_are() -> None:
    assert tuple(LIVE) == STRATEGIES
    assert LIVE.keys() >= {DEFAULT, DEFAULT_STRATEGY}
    assert DEFAULT == DEFAULT_STRATEGY
    assert registry.NEED_DEADLINE == NEED_DEADLINE


@pytest.mark.parametrize("strategy", [name for name in LIVE if name not in NEED_DEADLINE])
def test_a_strategy_runs_a_job_to_its_end(strategy: str) -> None:
    state, owed = run(strategy)
    working = [a for a in state.allocations.values() if not a.reliable]
    assert working
    if strategy == "on-demand":
        assert all(a.on_demand for a in working)
        assert owed.spot == 0
        assert state.recovery.evicted_allocations == 0
    else:
        assert owed.total < run("on-demand")[1].total


@pytest.mark.parametrize("strategy", LIVE)
def test_a_strategy_keeps_a_deadline(strategy: str) -> None:
    state, _ = run(strategy, deadline_s=Seconds(3 * 3600.0), start_s=Seconds(60.0))
    assert state.training.training_over_at is not None
    assert state.training.training_over_at - state.terms.start <= 3 * 3600


@pytest.mark.parametrize("rules", [AWS_2016, AWS], ids=lambda rules: rules.name)
def test_on_demand_is_bought_once_within_a_deadline_too(rules: MarketRules) -> None:
    of = changed(terms(rules, clocks=100), strategy="on-demand")
    alone, _ = replay(of, TRACE)
    kept, _ = replay(changed(of, deadline_s=Seconds(6 * 3600.0), start_s=Seconds(60.0)), TRACE)
    assert cost_so_far(kept) == cost_so_far(alone)
    assert list(kept.allocations) == ["r1", "d1"]


def test_uniform_progress_keeps_to_its_line_and_greedy_waits_for_the_last_moment() -> None:
    """No spot for five hours: the one buys on demand as soon as it is behind, the other when it must."""
    capacity = capacity_between([(START, START + 5 * HOUR_S)])
    of = changed(terms(AWS, clocks=200), deadline_s=Seconds(8 * 3600.0), start_s=Seconds(60.0))
    bought = {}
    for strategy in NEED_DEADLINE:
        state, _ = replay(changed(of, strategy=strategy), scripted_trace(quiet=0.08), capacity=capacity)
        assert state.ending.closed is not None
        assert state.ending.closed.exit_code == 0
        bought[strategy] = [
            a.requested_at - START for a in state.allocations.values() if a.on_demand and not a.reliable
        ]
    assert min(bought["uniform-progress"]) < HOUR_S / 2
    assert len(bought["uniform-progress"]) > 1, (
        "given up once it is ahead of the line, bought again behind it"
    )
    assert len(bought["greedy"]) == 1
    assert min(bought["greedy"]) > 2 * HOUR_S
