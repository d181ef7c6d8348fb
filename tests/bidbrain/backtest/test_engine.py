"""Jobs in lockstep are the jobs one by one, and what no job may do. That they are also the control core's
jobs is held in tests/spotctl/backtest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bidbrain.backtest.engine import run_batch
from bidbrain.backtest.job import DRAIN_S, Accounting
from bidbrain.backtest.price_tape import NEVER, PriceTape
from bidbrain.backtest.run import BacktestRuns, backtest
from bidbrain.bidding.decision_times import DECISION_PERIOD_S
from bidbrain.strategies.base import Strategy
from bidbrain.strategies.price_only import Failover, OnDemand, StandardBidding
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.recovery import ELASTIC, Checkpointing
from bidbrain.strategies.tierml import TierML
from pricing_data.model.market import PriceHistory, Series
from pricing_data.model.units import HOUR_S, Instant, Seconds
from tests.bidbrain.backtest.scene import LASTS_S, MARKETS, NOW, Scene, scene

CHECKPOINTS = Checkpointing(Seconds(1800), 0.1, Seconds(120))
STRATEGIES: Sequence[Strategy] = (
    OnDemand(32.0),
    StandardBidding(32.0, CHECKPOINTS, "standard"),
    StandardBidding(32.0, ELASTIC, "standard-agileml", uses_reliable=True),
    Failover(32.0, CHECKPOINTS),
    TierML(32.0),
    BidBrain("bidbrain-checkpoints", CHECKPOINTS),
    BidBrain(),
)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)


def run_scene(of: Scene, strategy: Strategy) -> BacktestRuns:
    return backtest(strategy, of.setting, of.job, of.tape, lambda _: of.tables, of.starts)


@every_strategy
def test_many_jobs_at_once_are_the_jobs_one_by_one(strategy: Strategy) -> None:
    of = scene(1, jobs=3)
    together = run_scene(of, strategy)
    for number in range(len(of.starts)):
        alone = run_scene(replace(of, starts=of.starts[number : number + 1]), strategy)
        assert alone.owed_micros[0] == together.owed_micros[number]
        assert alone.ran.done_at[0] == together.ran.done_at[number]
        assert alone.outcomes.evictions[0] == together.outcomes.evictions[number]


@every_strategy
@pytest.mark.parametrize("seed", range(2))
def test_what_no_job_may_do(strategy: Strategy, seed: int) -> None:
    of = scene(seed)
    found = run_scene(of, strategy)
    ended, setting = found.ran.ended, of.setting
    assert (found.ran.done_at < NEVER).all(), "these jobs are short, and machines are always to be had"
    assert (ended.end <= found.ran.done_at[ended.job]).all()
    assert (ended.requested_at >= of.starts[ended.job]).all()
    assert (ended.count >= 1).all()
    assert not (ended.evicted & ended.on_demand).any()
    for at in ended.requested_at:
        notice_s = np.where(ended.evicted, setting.rules.notice_s, np.where(ended.at_finish, 0, DRAIN_S))
        held = (ended.requested_at <= at) & (ended.end - notice_s > at)
        for job in np.unique(ended.job):
            mine = held & (ended.job == job)
            assert ended.count[mine].sum() <= setting.limits.max_instances
    assert (found.outcomes.finish_s >= 2 * HOUR_S * 0.9).all(), "all machines together are not faster"


@every_strategy
def test_prices_after_its_end_change_no_job(strategy: Strategy) -> None:
    of = scene(2, jobs=4)
    found = run_scene(of, strategy)
    last = int(found.ran.done_at.max())
    spiked = {m: _add_spike(of.history.series(m), last + 1) for m in MARKETS}
    tape = PriceTape.from_history(PriceHistory.from_series(spiked), MARKETS, NOW, Instant(NOW + LASTS_S))
    again = run_scene(replace(of, tape=tape), strategy)
    assert (again.owed_micros == found.owed_micros).all()
    assert (again.ran.done_at == found.ran.done_at).all()


def _add_spike(series: Series, after: int) -> Series:
    return Series(series.times, np.where(series.times > after, 99.0, series.prices))


def test_the_papers_accounting_forgives_the_minutes_that_are_left() -> None:
    whole, part = (run_scene(scene(3, accounting=accounting), OnDemand(32.0)) for accounting in Accounting)
    assert whole.owed_micros.tolist() == [3 * 8 * 239_000] * 12, (
        "2 h and a bit: three hours begun, eight machines"
    )
    used_s = part.ran.done_at - part.ran.begins - 60
    assert part.owed_micros.tolist() == [8 * int(s * 239_000 / HOUR_S + 0.5) for s in used_s]


def test_a_job_that_the_prices_leave_behind_is_not_done() -> None:
    of = scene(0)
    late = replace(of, starts=np.array([of.tape.end - HOUR_S]), job=replace(of.job, deadline_s=Seconds(9e9)))
    found = run_scene(late, BidBrain())
    assert np.isinf(found.outcomes.finish_s).all()
    assert found.outcomes.late.all()
    assert found.outcomes.cost[0] > 0


def test_where_nothing_can_be_had_nothing_is_paid() -> None:
    of = scene(0, jobs=2)
    dear = {m: Series(np.array([NOW - HOUR_S]), np.array([5.0])) for m in MARKETS}
    tape = PriceTape.from_history(PriceHistory.from_series(dear), MARKETS, NOW, Instant(NOW + LASTS_S))
    found = run_scene(replace(of, tape=tape), StandardBidding(32.0, CHECKPOINTS, "standard"))
    assert np.isinf(found.outcomes.finish_s).all()
    assert (found.outcomes.cost == 0).all()


def test_a_start_outside_of_the_prices_is_an_error() -> None:
    of = scene(0)
    with pytest.raises(ValueError, match="within the prices"):
        run_batch(BidBrain(), of.setting, of.job, of.tape, lambda _: of.tables, np.array([NOW - 1]))


def test_an_eviction_costs_a_checkpointed_job_its_unsaved_work() -> None:
    """One spike, seen by everybody: what was done since the last checkpoint is done again."""
    of = scene(0, jobs=1)
    calm = {m: Series(np.array([NOW - 90 * HOUR_S, NOW]), np.array([0.04, 0.04])) for m in MARKETS}
    spike_s = HOUR_S + 1200
    struck = {
        m: Series(np.append(s.times, [NOW + spike_s, NOW + spike_s + 600]), np.append(s.prices, [9.0, 0.04]))
        for m, s in calm.items()
    }
    strategy = StandardBidding(32.0, CHECKPOINTS, "standard")
    times = []
    for series in (calm, struck):
        tape = PriceTape.from_history(PriceHistory.from_series(series), MARKETS, NOW, Instant(NOW + LASTS_S))
        found = run_scene(replace(of, tape=tape, starts=np.array([NOW])), strategy)
        times.append(int(found.ran.done_at[0]) - NOW)
    worked_s = spike_s - 60 - 30
    unsaved_s = worked_s % 1800
    back_s = 600 + 60 + 30
    assert times[1] - times[0] == pytest.approx(unsaved_s + back_s, abs=DECISION_PERIOD_S)
