"""Tests what each strategy requests, and that it does the same live as in a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.backtest.run import backtest
from bidbrain.bidding.decision_batch import MarketSetup
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import Action, Observation, ScalingModel
from bidbrain.strategies.base import NO_REQUEST, Strategy
from bidbrain.strategies.price_only import Failover, OnDemand, StandardBidding
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.recovery import ELASTIC, Checkpointing
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour
from tests.bidbrain.backtest.scene import MARKETS, NOW, scene
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


def test_an_unknown_holding_is_an_error() -> None:
    with pytest.raises(KeyError, match="nobody"):
        STANDARD.renew_or_terminate(observe(), "nobody")


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


# ---- live and in a batch ------------------------------------------------------------------------------

STRATEGIES: tuple[Strategy, ...] = (
    OnDemand(16.0),
    STANDARD,
    Failover(16.0, CHECKPOINTS),
    BidBrain(),
    BidBrain("proteus-in-sizes", ELASTIC, sizes=(4.0, 8.0, 16.0)),
)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Two markets of a random history, and up to four holdings in them."""
    of = scene(draw(st.integers(0, 200)), jobs=1)
    now = Instant(NOW + draw(st.integers(0, 20 * HOUR_S)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offers = []
    for market in MARKETS:
        price = of.history.price(market, now)
        assert price is not None
        offers.append(offer(market, price, on_demand=0.239))
    footprint = []
    for number in range(draw(st.integers(0, 4))):
        count, left_s = int(rng.integers(1, 4)), int(rng.integers(60, HOUR_S))
        made = holding(f"s{number}", MARKETS[int(rng.integers(2))], count=count)
        footprint.append(
            replace(
                made,
                bid=UsdPerHour(round(float(rng.uniform(0.03, 0.2)), 4)),
                hour_ends=Instant(now + left_s),
                started=Instant(now + left_s - HOUR_S),
            )
        )
    return Observation(
        now=now,
        rules=of.setting.rules,
        reliable=of.setting.reliable,
        footprint=tuple(footprint),
        offers=tuple(offers),
        limits=of.setting.limits,
        scaling=ScalingModel(0.95, Seconds(30), Seconds(60), 1, 4),
        evictions=PriceCrossing().fit(of.history.as_of(now), now),
    )


@settings(max_examples=25, deadline=None)
@given(observations(), st.sampled_from(STRATEGIES))
def test_live_it_decides_as_in_a_batch(observation: Observation, strategy: Strategy) -> None:
    single = ObservationBatch.from_observation(observation)
    asked = strategy.choose_requests(single.setting, single.at)
    settled = bool(strategy.needs_nothing(single.setting, single.at.held)[0])
    if strategy.name != "proteus-in-sizes":  # live it tries every count
        decision = strategy.decide(observation)
        if asked.market[0] == NO_REQUEST or settled:
            assert decision.action is Action.HOLD
        else:
            market = single.setting.markets[asked.market[0]]
            assert (decision.market, decision.count) == (market, asked.count[0])
            assert (decision.bid is None) == np.isinf(asked.bid[0])
            assert decision.bid in (None, asked.bid[0])
    if settled:
        assert asked.market[0] == NO_REQUEST, "settled footprints ask for nothing"
    for place, held in enumerate(observation.footprint):
        stays = bool(strategy.choose_renewals(single.setting, single.at, np.array([place]))[0])
        live = strategy.renew_or_terminate(observation, held.id).action
        assert live is (Action.RENEW if stays else Action.TERMINATE)


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
