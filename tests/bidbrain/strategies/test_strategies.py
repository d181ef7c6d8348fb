"""Tests what each strategy requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bidbrain.backtest.run import backtest
from bidbrain.bidding.decision_batch import MarketSetup
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.model import Action
from bidbrain.strategies.base import NO_REQUEST
from bidbrain.strategies.price_only import Failover, OnDemand, StandardBidding
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.recovery import ELASTIC, Checkpointing
from pricing_data.model.units import HOUR_S, Seconds
from tests.bidbrain.backtest.scene import scene
from tests.bidbrain.build import DOUBLE, XLARGE, holding, observe, offer

CHECKPOINTS = Checkpointing.at_youngs_interval(cost_s=120, mttf_s=6 * HOUR_S, restart_s=60)
STANDARD = StandardBidding(16.0, CHECKPOINTS, "standard")


# ---- by hand --------------------------------------------------------------------------------------


def test_on_demand_takes_the_cheapest_list_price_per_core_once() -> None:
    offers = (offer(XLARGE, 0.01, on_demand=0.2), offer(DOUBLE, 0.01, cores=8, on_demand=0.36))
    strategy = OnDemand(20.0)
    decision = strategy.decide(observe(offers=offers))
    assert (decision.action, decision.market, decision.count) == (Action.ACQUIRE, DOUBLE, 3)
    assert decision.bid is None
    held = replace(holding("one", DOUBLE), on_demand=True)
    again = observe(held, offers=offers)
    assert strategy.decide(again).action is Action.HOLD
    assert strategy.renew_or_terminate(again, "one").action is Action.RENEW


def test_standard_bids_the_list_price_in_the_market_cheapest_per_core() -> None:
    offers = (offer(XLARGE, 0.05), offer(DOUBLE, 0.08, cores=8, on_demand=0.4))
    decision = STANDARD.decide(observe(offers=offers))
    assert (decision.market, decision.count, decision.bid) == (DOUBLE, 2, 0.4)
    assert "cheapest market" in decision.why


def test_standard_waits_where_every_price_is_above_the_list() -> None:
    assert STANDARD.decide(observe(offers=(offer(XLARGE, 0.3),))).action is Action.HOLD


def test_failover_rents_meanwhile_and_goes_back_when_an_hour_is_up() -> None:
    strategy = Failover(16.0, CHECKPOINTS)
    dear, cheap = ((offer(XLARGE, price),) for price in (0.3, 0.05))
    decision = strategy.decide(observe(offers=dear))
    assert (decision.action, decision.count, decision.bid) == (Action.ACQUIRE, 4, None)
    rented = replace(holding("one", left_s=180), on_demand=True)
    assert strategy.renew_or_terminate(observe(rented, offers=dear), "one").action is Action.RENEW
    assert strategy.renew_or_terminate(observe(rented, offers=cheap), "one").action is Action.TERMINATE
    spot = holding("one", left_s=180)
    assert strategy.renew_or_terminate(observe(spot, offers=dear), "one").action is Action.RENEW


def test_youngs_interval() -> None:
    """sqrt(2 x 120 x 21600) = 2277 s; a checkpoint of 120 s each is 5 % of the time."""
    assert CHECKPOINTS.interval_s == pytest.approx(2276.8, abs=0.1)
    assert CHECKPOINTS.overhead == pytest.approx(120 / (2276.8 + 120), rel=1e-3)
    assert CHECKPOINTS.lost_s == pytest.approx(60 + 2276.8 / 2, abs=0.1)
    assert Checkpointing.at_youngs_interval(120, 6 * HOUR_S, 60, overhead=0.17).overhead == 0.17
    with pytest.raises(ValueError, match="overhead in"):
        Checkpointing(Seconds(100), 1.0, Seconds(0))


def test_with_checkpoints_bidbrain_bids_higher_than_with_agileml() -> None:
    """An eviction costs it half an interval more, so it is shyer of them."""
    of = scene(4, jobs=6)
    evictions = [
        backtest(
            strategy, of.setting, of.job, of.tape, lambda _: of.tables, of.starts
        ).outcomes.evictions.sum()
        for strategy in (BidBrain(), BidBrain("bidbrain-checkpoints", CHECKPOINTS))
    ]
    assert evictions[1] < evictions[0]


def test_limits_on_cores_hold_for_machines_of_any_size() -> None:
    observation = observe(
        holding("one"), offers=(offer(XLARGE, 0.05), offer(DOUBLE, 0.05, cores=8)), limits=None
    )
    single = ObservationBatch.from_observation(observation)
    limits = replace(observation.limits, max_cores=40.0, max_per_allocation=64)
    setting: MarketSetup = replace(single.setting, limits=limits)
    asked = BidBrain("sized", ELASTIC, sizes=(8.0, 64.0)).choose_requests(setting, single.at)
    assert asked.market[0] != NO_REQUEST
    assert asked.count[0] * setting.cores[asked.market[0]] == 24, "16 of 40 cores are held"
