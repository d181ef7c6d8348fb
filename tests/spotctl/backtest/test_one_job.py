"""One job on the whole control core and on the fast engine: the same decisions, the same bill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from bidbrain.backtest.engine import BatchResult
from bidbrain.backtest.job import BacktestJob
from bidbrain.backtest.price_tape import PriceTape
from bidbrain.backtest.run import backtest
from bidbrain.bidding.decision_batch import Codes, SurvivalBatch
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.eviction.scalar_adapter import ScalarAdapter
from bidbrain.model import Action, Limits
from bidbrain.strategies.registry import LIVE
from pricing_data.formats.traces import read_trace
from pricing_data.model.billing import EndReason
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, MarketRules, PriceHistory
from pricing_data.model.rules import AWS, AWS_2016, GCP
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour, parse_instant
from spotctl.backtest.prepare import setting_of
from spotctl.control import entries as e
from spotctl.control.bidding import restart_of
from spotctl.control.billing import cost_so_far
from spotctl.control.run_spec import CheckpointPolicy, MarketOption, RunSpec
from spotctl.control.state import State
from spotctl.providers.simulated import UNLIMITED
from tests.spotctl.build import MARKETS, START, changed, random_trace, replay, terms

BOOT_S = 60
"""Of the machines in ``build.replay``."""


@dataclass(frozen=True)
class Hourly:
    """What a running job believes: its model, fitted to what is known at each hour of its life."""

    history: PriceHistory
    markets: tuple[Market, ...]

    def __call__(self, fitted_at: Codes) -> SurvivalBatch:
        (at,) = {Instant(int(moment)) for moment in fitted_at}
        return ScalarAdapter(PriceCrossing().fit(self.history.as_of(at), at), self.markets)


def fast(of: RunSpec, trace: PriceHistory, capacity: Observations) -> tuple[BatchResult, int]:
    """The job on the fast engine: what it did, and its micro-dollars."""
    setting = setting_of(of)
    assert of.work.stop.clocks is not None
    job = BacktestJob(
        of.work.stop.clocks * of.work.core_seconds_per_clock,
        BOOT_S,
        of.work.core_seconds_per_clock,
        restart=restart_of(replace(of, start_s=Seconds(BOOT_S))),
    )
    end = Instant(of.start + 72 * HOUR_S)
    tape = PriceTape.from_history(trace, setting.markets, of.start, end, capacity)
    strategy, beliefs = LIVE[of.objective.strategy](0.0), Hourly(trace, setting.markets)
    found = backtest(strategy, setting, job, tape, beliefs, np.array([of.start]))
    return found.ran, int(found.owed_micros[0])


def check(of: RunSpec, trace: PriceHistory, capacity: Observations = UNLIMITED) -> State:
    """The core and the engine agree on ``of``; what the core came to."""
    of = replace(of, start_s=Seconds(BOOT_S))
    state, entries = replay(of, trace, capacity=capacity)
    ran, micros = fast(of, trace, capacity)
    granted = {x.allocation for x in entries if isinstance(x, e.Granted)}
    bought = [
        (x.at, x.market, x.count, x.bid)
        for x in entries
        if isinstance(x, e.Acquire) and not x.reliable and x.allocation in granted
    ]
    rows = zip(ran.ended.requested_at, ran.ended.market, ran.ended.count, ran.ended.bid, strict=True)
    assert bought == [(at, of.spot[market].market, count, bid) for at, market, count, bid in rows]
    ends = {}
    for instance in state.instances.values():
        if not state.is_reliable(instance):
            ends[instance.allocation] = (instance.ended_at, instance.end is EndReason.EVICTED)
    assert list(ends.values()) == list(zip(ran.ended.end, ran.ended.evicted, strict=True))
    renewed = [x for x in entries if isinstance(x, e.Decided) and x.decision.action is Action.RENEW]
    assert len(renewed) == ran.renewals[0]
    assert state.training.training_over_at == ran.done_at[0]
    assert state.recovery.evicted_allocations == ran.evictions[0]
    assert cost_so_far(state).total == micros
    return state


def proteus(rules: MarketRules = AWS_2016, *, clocks: int) -> RunSpec:
    return changed(terms(rules, clocks=clocks), strategy="proteus")


def auto(rules: MarketRules, *, kept: bool, clocks: int = 240) -> RunSpec:
    """By the default; ``kept``: with checkpoints, so that all of it may be on spot."""
    of = terms(rules, clocks=clocks)
    keeps = CheckpointPolicy(20, Seconds(0.0)) if kept else None
    return changed(of, strategy="auto", keeps=keeps, limits=replace(of.limits, max_instances=7))


@pytest.mark.parametrize("kept", [False, True], ids=["tier on demand", "tier anywhere"])
@pytest.mark.parametrize("rules", [AWS, AWS_2016], ids=lambda rules: rules.name)
@pytest.mark.parametrize("seed", range(2))
def test_the_default_decides_alike_on_both(rules: MarketRules, seed: int, kept: bool) -> None:
    state = check(auto(rules, kept=kept), random_trace(seed))
    assert state.deciding.decisions > 0


@pytest.mark.parametrize("seed", range(4))
def test_the_default_decides_alike_where_capacity_comes_and_goes(seed: int) -> None:
    """Requests are refused, machines are taken with their market, the reliable one among them."""
    state = check(auto(GCP, kept=True), random_trace(seed + 20), scarce(seed))
    assert state.recovery.restarts > 0
    assert any(a.refused for a in state.allocations.values())


def scarce(seed: int) -> Observations:
    """Each market has machines for half an hour to four hours, and then has none for up to one."""
    rng, found = np.random.default_rng(seed), {}
    for market in MARKETS:
        up, down = rng.integers(1800, 4 * HOUR_S, 60), rng.integers(300, HOUR_S, 60)
        begins = START + np.cumsum(up + down) - (up + down)
        found[market] = Spells.from_columns(begins, begins + up, np.ones(60, np.bool_))
    return Observations.from_spells(found)


@pytest.mark.parametrize("seed", range(4))
def test_the_engine_is_the_control_core_in_fast(seed: int) -> None:
    state = check(proteus(clocks=240), random_trace(seed))
    assert state.recovery.evicted_allocations > 0, "or little was shown"


@pytest.mark.parametrize("rules", [AWS, GCP], ids=lambda rules: rules.name)
def test_also_where_seconds_are_billed(rules: MarketRules) -> None:
    check(proteus(rules, clocks=240), random_trace(2))


def test_also_where_machines_end_at_an_age() -> None:
    brief = replace(GCP, max_lifetime_s=2 * HOUR_S)
    state = check(proteus(brief, clocks=240), random_trace(3))
    assert state.recovery.evicted_allocations > 0


def test_also_where_machines_join_slowly_and_losses_are_dear() -> None:
    of = proteus(clocks=240)
    slow = changed(of, scaling=replace(of.work.scaling, sigma_s=Seconds(90), lambda_s=Seconds(300)))
    check(slow, random_trace(7))


@pytest.mark.parametrize("start", ["2016-06-13T07:21:00Z", "2016-07-02T18:00:30Z"])
def test_on_recorded_prices_of_three_zones(recorded_data: Path, start: str, campaign: bool) -> None:
    """An m4.xlarge in three zones in the summer of 2016; in full the job is twenty times as long."""
    path = recorded_data / "aws-spot-2016mid" / "spot_prices.csv.gz"
    trace = read_trace(path, only=lambda market: market.instance_type == "m4.xlarge").history
    of = replace(
        proteus(AWS_2016, clocks=900 if campaign else 150),
        start=parse_instant(start),
        spot=tuple(MarketOption(market, UsdPerHour(0.239), 4) for market in trace.markets),
        limits=Limits(12, 4, (0.0001, 0.001, 0.01, 0.1)),
    )
    assert of.start > START - 10**7, "within the recording"
    check(of, trace.as_of(Instant(of.start + 72 * HOUR_S)))
