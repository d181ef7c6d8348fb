"""Tests which allocation is acquired, renewed or let go, and what no decision may ever do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.bidding.decide import decide, renew_or_terminate
from bidbrain.bidding.footprint import bid_at
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import (
    Action,
    Decision,
    Holding,
    Limits,
    Observation,
    Offer,
    ReliableMachines,
    ScalingModel,
)
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.rules import AWS_2016, GCP
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour
from tests.bidbrain.build import DOUBLE, NOW, XLARGE, Told, holding, observe, offer

MARKETS = [Market("aws", "us-east-1", f"us-east-1{zone}", "c4.xlarge") for zone in "ab"]


# ---- by hand --------------------------------------------------------------------------------------


def test_the_cheapest_work_is_acquired() -> None:
    """Eight cores at 0.09 beat four at 0.05; the more of them, the more the reliable machine is spread."""
    decision = decide(observe(offers=(offer(XLARGE, 0.05), offer(DOUBLE, 0.09, cores=8))))
    assert (decision.action, decision.market, decision.count) == (Action.ACQUIRE, DOUBLE, 4)
    assert decision.bid == pytest.approx(0.0901)
    assert decision.considered == 2 * 4 * 20
    (chosen,) = (option for option in decision.weighed if option.chosen)
    assert chosen.cost_per_work * HOUR_S == pytest.approx((0.2 + 4 * 0.09) / (4 + 32))
    assert decision.cost_per_work_now * HOUR_S == pytest.approx(0.2 / 4)


def test_free_hours_are_worth_a_low_bid() -> None:
    """Evicted half-way with probability 0.4 the hour costs 0.6 and does 0.8 of its work, so less per work."""
    betas = {(XLARGE, 0.01): 0.4, (XLARGE, 0.1): 0.0}
    limits = Limits(max_instances=4, max_per_allocation=4, bid_deltas=(0.01, 0.1))
    decision = decide(observe(evictions=Told(betas=betas), limits=limits))
    assert decision.bid == pytest.approx(0.06)
    slow = replace(observe().scaling, lambda_s=Seconds(1800))
    decision = decide(observe(evictions=Told(betas=betas), limits=limits, scaling=slow))
    assert decision.bid == pytest.approx(0.15), "half an hour lost with each eviction is not worth the refund"


def test_dear_work_is_left_alone() -> None:
    decision = decide(observe(holding("one"), offers=(offer(XLARGE, 0.3),)))
    assert (decision.action, decision.market, decision.bid) == (Action.HOLD, None, None)
    assert [option.action for option in decision.weighed if option.chosen] == [Action.HOLD]


def test_a_change_must_be_worth_its_overhead() -> None:
    """At sigma of half an hour, twice the cores do not make up for half of everybody's hour."""
    slow = replace(observe().scaling, sigma_s=Seconds(1800))
    limits = Limits(max_instances=8, max_per_allocation=4)
    tight = holding("one", price=0.05)
    reliable = ReliableMachines(1, UsdPerHour(0.01), 4)
    assert decide(observe(tight, reliable=reliable, limits=limits, scaling=slow)).action is Action.HOLD


def test_imperfect_scaling_bounds_the_footprint() -> None:
    steep = replace(observe().scaling, phi=0.6)
    observation = observe(offers=(offer(XLARGE, 0.05),), scaling=steep)
    assert decide(observation).count < 4


def test_why_nothing_can_be_asked_for() -> None:
    full = observe(holding("one"), limits=Limits(max_instances=4, max_per_allocation=4))
    closed = observe(offers=(offer(XLARGE, 0.05, is_open=False),))
    unknown = observe(evictions=Told(unknown=frozenset({XLARGE})))
    decisions = [decide(observation) for observation in (full, closed, unknown)]
    assert [decision.action for decision in decisions] == [Action.HOLD] * 3
    assert [decision.considered for decision in decisions] == [0] * 3
    assert [decision.why.split()[0:2] for decision in decisions] == [
        ["The", "footprint"],
        ["No", "market"],
        ["Too", "little"],
    ]


def test_what_is_under_eviction_neither_counts_nor_blocks_its_replacement() -> None:
    warned = replace(holding("one"), counts_for=0)
    limits = Limits(max_instances=4, max_per_allocation=4)
    with_it, without = decide(observe(warned, limits=limits)), decide(observe(limits=limits))
    assert with_it == without
    assert with_it.count == 4


def test_where_prices_do_not_evict_only_the_highest_bid_is_tried() -> None:
    decision = decide(replace(observe(), rules=GCP))
    assert decision.considered == 4
    assert decision.bid == pytest.approx(0.05 + 0.4)


def test_a_holding_without_a_price_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no current price.*c4\.2xlarge"):
        observe(holding("one", DOUBLE))


# ---- renewal --------------------------------------------------------------------------------------


def test_renewed_while_cheaper_with_it() -> None:
    decision = renew_or_terminate(observe(holding("one", left_s=180), holding("two")), "one")
    assert (decision.action, decision.holding) == (Action.RENEW, "one")
    renew, terminate = decision.weighed
    assert renew.cost_per_work * HOUR_S == pytest.approx((0.2 + 0.2 + 0.2) / 36)
    assert terminate.cost_per_work * HOUR_S == pytest.approx((0.2 + 0.2) / 20)


def test_let_go_when_its_market_got_dear() -> None:
    offers = (offer(XLARGE, 0.9), offer(DOUBLE, 0.05))
    footprint = (holding("one", left_s=180, bid=1.0), holding("two", DOUBLE))
    decision = renew_or_terminate(observe(*footprint, offers=offers), "one")
    assert decision.action is Action.TERMINATE


def test_a_bid_that_the_price_has_passed_is_not_renewed() -> None:
    offers = (offer(XLARGE, 0.2),)
    slow = replace(observe().scaling, lambda_s=Seconds(300))
    footprint = (holding("one", left_s=180, bid=0.1), holding("two", bid=0.9))
    observation = observe(*footprint, offers=offers, scaling=slow)
    decision = renew_or_terminate(observation, "one")
    assert decision.action is Action.TERMINATE
    assert decision.weighed[0].beta == 1


def test_an_unknown_holding_is_an_error() -> None:
    with pytest.raises(KeyError, match="nobody"):
        renew_or_terminate(observe(), "nobody")


# ---- for every observation ------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """An observation, and the history that its evictions were fitted to."""

    observation: Observation
    history: PriceHistory


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Random prices, histories and footprints in two markets."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    history = PriceHistory.from_series({market: _walk(random) for market in MARKETS})
    observation = Observation(
        now=NOW,
        rules=draw(st.sampled_from([AWS_2016, GCP])),
        reliable=ReliableMachines(draw(st.integers(0, 3)), UsdPerHour(0.25), 4),
        footprint=tuple(_holding(random, i) for i in range(draw(st.integers(0, 4)))),
        offers=tuple(_offer(market, history) for market in MARKETS),
        limits=Limits(draw(st.integers(0, 24)), draw(st.integers(1, 6)), (0.001, 0.015625, 0.25)),
        scaling=ScalingModel(draw(st.sampled_from([0.7, 0.95, 1.0])), Seconds(60), Seconds(240), 1, 5),
        evictions=PriceCrossing().fit(history, NOW),
    )
    return Scene(observation, history)


def _walk(random: np.random.Generator) -> Series:
    """Prices in sixty-fourths of a dollar, so that doubling them is exact; rows go on after now."""
    times = NOW - 20 * HOUR_S + np.cumsum(random.integers(60, 1800, size=120))
    return Series(times, random.integers(1, 16, size=120) / 64)


def _offer(market: Market, history: PriceHistory) -> Offer:
    price = history.price(market, NOW)
    assert price is not None
    return Offer(market, price, UsdPerHour(0.25), 4)


def _holding(random: np.random.Generator, number: int) -> Holding:
    count, left_s = int(random.integers(1, 6)), int(random.integers(60, HOUR_S))
    made = holding(f"h{number}", MARKETS[int(random.integers(2))], count=count, left_s=left_s)
    return replace(
        made, bid=UsdPerHour(random.integers(1, 32) / 64), counts_for=int(random.integers(0, count + 1))
    )


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_no_decision_exceeds_the_limits_or_makes_work_dearer(scene: Scene) -> None:
    observation = scene.observation
    decision = decide(observation)
    chosen = [option for option in decision.weighed if option.chosen]
    assert len(chosen) == 1
    if decision.action is Action.ACQUIRE:
        assert 1 <= decision.count <= observation.limits.max_per_allocation
        assert observation.live_count + decision.count <= observation.limits.max_instances
        assert chosen[0].cost_per_work < decision.cost_per_work_now
        assert chosen[0].cost_per_work == min(option.cost_per_work for option in decision.weighed)
    else:
        assert decision.action is Action.HOLD
        assert all(option.cost_per_work >= decision.cost_per_work_now for option in decision.weighed)


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_doubling_every_price_reorders_nothing(scene: Scene) -> None:
    once, twice = scene.observation, _double_prices(scene)
    assert _choice(decide(once)) == _choice(decide(twice))
    assert decide(twice).cost_per_work_now == pytest.approx(2 * decide(once).cost_per_work_now)
    for held in once.footprint:
        assert renew_or_terminate(once, held.id).action is renew_or_terminate(twice, held.id).action


def _choice(decision: Decision) -> tuple[object, ...]:
    (chosen,) = (option for option in decision.weighed if option.chosen)
    return decision.action, decision.market, decision.count, chosen.beta


def _double_prices(scene: Scene) -> Observation:
    def twice(price: float) -> UsdPerHour:
        return UsdPerHour(2 * price)

    seen = scene.observation
    series = {market: scene.history.series(market) for market in MARKETS}
    history = PriceHistory.from_series(
        {market: Series(s.times, 2 * s.prices) for market, s in series.items()}
    )
    return replace(
        seen,
        reliable=replace(seen.reliable, price=twice(seen.reliable.price)),
        offers=tuple(replace(o, price=twice(o.price), on_demand=twice(o.on_demand)) for o in seen.offers),
        footprint=tuple(replace(h, price=twice(h.price), bid=twice(h.bid)) for h in seen.footprint),
        limits=replace(seen.limits, bid_deltas=tuple(map(twice, seen.limits.bid_deltas))),
        evictions=PriceCrossing().fit(history, NOW),
    )


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_prices_after_now_change_no_decision(scene: Scene) -> None:
    known = PriceCrossing().fit(scene.history.as_of(NOW), NOW)
    later = PriceCrossing().fit(_with_a_spike_after_now(scene.history), NOW)
    assert decide(replace(scene.observation, evictions=later)) == decide(
        replace(scene.observation, evictions=known)
    )


def _with_a_spike_after_now(history: PriceHistory) -> PriceHistory:
    history = history.as_of(NOW)
    for market in history.markets:
        history = history.with_step(market, Instant(NOW + 1), UsdPerHour(99.0))
    return history


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_the_order_of_the_offers_does_not_matter(scene: Scene) -> None:
    reordered = replace(scene.observation, offers=tuple(reversed(scene.observation.offers)))
    assert decide(reordered) == decide(scene.observation)


def test_ties_go_to_the_first_market_and_the_lowest_bid() -> None:
    decision = decide(observe(offers=tuple(offer(market, 0.05) for market in reversed(MARKETS))))
    assert (decision.market, decision.bid) == (MARKETS[0], bid_at(UsdPerHour(0.05), 0.0001))
