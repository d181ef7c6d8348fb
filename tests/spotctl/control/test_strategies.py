"""Every strategy that a job file can name runs a job to its end, by the same lines as in a backtest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bidbrain.strategies.menu import DEFAULT, LIVE
from pricing_data.rules import AWS_2016
from pricing_data.units import Seconds
from spotctl.config import DEFAULT_STRATEGY, STRATEGIES
from spotctl.control.spending import Spending, spent
from spotctl.control.state import State
from tests.spotctl.build import random_trace, replay, terms

TRACE = random_trace(seed=3)


def run(strategy: str, **changes: object) -> tuple[State, Spending]:
    of = replace(terms(AWS_2016, clocks=100), strategy=strategy, **changes)  # type: ignore[arg-type]
    state, _ = replay(of, TRACE)
    assert state.closed is not None
    assert (state.closed.exit_code, state.work_left) == (0, 0), state.closed.why
    return state, spent(state)


def test_job_files_may_name_those_that_there_are() -> None:
    assert tuple(LIVE) == STRATEGIES
    assert LIVE.keys() >= {DEFAULT, DEFAULT_STRATEGY}
    assert DEFAULT == DEFAULT_STRATEGY


@pytest.mark.parametrize("strategy", LIVE)
def test_a_strategy_runs_a_job_to_its_end(strategy: str) -> None:
    state, owed = run(strategy)
    working = [a for a in state.allocations.values() if not a.reliable]
    assert working
    if strategy == "on-demand":
        assert all(a.on_demand for a in working)
        assert owed.spot == 0
        assert state.evicted_allocations == 0
    else:
        assert owed.total < run("on-demand")[1].total


@pytest.mark.parametrize("strategy", LIVE)
def test_a_strategy_keeps_a_deadline(strategy: str) -> None:
    state, _ = run(strategy, deadline_s=Seconds(3 * 3600.0), start_s=Seconds(60.0))
    assert state.training_over_at is not None
    assert state.training_over_at - state.terms.start <= 3 * 3600
