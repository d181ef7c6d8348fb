"""Tests what the default buys, exchanges and lets go, and where it keeps the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.bidding.decision_batch import DecisionBatch, MarketSetup
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.bidding.steady_state_cost import UNKNOWN_LOSSES_PER_S, fresh_rates
from bidbrain.model import Action, Holding, Limits, Observation, Offer, ReliableMachines, ScalingModel
from bidbrain.strategies.auto import Auto
from bidbrain.strategies.base import NO_REQUEST
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.reliable_tier import Restart
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.rules import AWS, AWS_2016, GCP
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour
from tests.bidbrain.build import DOUBLE, NOW, XLARGE, Told, holding, observe, offer

AUTO = Auto()
SCALING = ScalingModel(0.98, Seconds(15), Seconds(15), stage2_above=1, stage3_above=15)
RESTART = Restart(clocks=20, seconds=0.0, core_seconds_per_clock=2880.0, boot_s=60.0)


def make_observation(
    *footprint: Holding, offers: tuple[Offer, ...], beta: float = 0.05, most: int = 8
) -> Observation:
    limits = Limits(max_instances=most, max_per_allocation=4)
    told = observe(*footprint, offers=offers, evictions=Told(beta), scaling=SCALING, limits=limits)
    return replace(told, rules=GCP)


def arrays(observation: Observation) -> tuple[MarketSetup, DecisionBatch]:
    single = ObservationBatch.from_observation(observation)
    return single.setting, single.at


def old_holding(name: str, price: float) -> Holding:
    """Four machines that run since ten minutes."""
    return replace(holding(name, price=price, bid=0.2), started=Instant(NOW - 600))


def test_it_fills_up_with_the_cheapest_market_in_requests_of_what_may_be_taken_together() -> None:
    offers = (offer(XLARGE, 0.05), offer(DOUBLE, 0.08, cores=8, on_demand=0.4))
    decision = AUTO.decide(make_observation(offers=offers))
    assert (decision.action, decision.market, decision.count) == (Action.ACQUIRE, DOUBLE, 4)
    assert (decision.bid, decision.again) == (0.4, True)
    assert [w.count for w in decision.weighed if w.chosen] == [8], "which is what it compared"
    second = replace(old_holding("one", 0.08), market=DOUBLE, cores=8, bid=UsdPerHour(0.4))
    decision = AUTO.decide(make_observation(second, offers=offers))
    assert (decision.market, decision.count, decision.again) == (DOUBLE, 4, False)


def test_a_market_that_is_lost_often_must_be_cheaper_to_be_bought() -> None:
    offers = (offer(XLARGE, 0.050), offer(DOUBLE, 0.049))
    calm = make_observation(offers=offers)
    restless = replace(calm, evictions=Told(0.0, {(DOUBLE, 0.4): 0.9}))
    assert AUTO.decide(calm).market == DOUBLE
    assert AUTO.decide(restless).market == XLARGE


def test_it_asks_for_others_first_and_lets_the_dearer_go_once_these_run() -> None:
    offers = (offer(XLARGE, 0.09), offer(DOUBLE, 0.05))
    full = make_observation(old_holding("one", 0.09), old_holding("two", 0.09), offers=offers)
    asked = AUTO.decide(full)
    assert (asked.action, asked.market, asked.count) == (Action.ACQUIRE, DOUBLE, 4)
    assert "to replace dearer machines" in asked.why
    booting = replace(holding("new", DOUBLE, price=0.05), started=None)
    waiting = make_observation(
        old_holding("one", 0.09),
        old_holding("two", 0.09),
        booting,
        offers=(offers[0], replace(offers[1], open=False)),
    )
    assert AUTO.decide(waiting).action is Action.HOLD, "they do not run yet, and no more are to be had"
    runs = replace(waiting, footprint=(*waiting.footprint[:2], replace(booting, started=Instant(NOW - 60))))
    gone = AUTO.decide(runs)
    assert (gone.action, gone.market) == (Action.TERMINATE, XLARGE)


def test_an_exchange_must_save_more_than_it_costs() -> None:
    full = (old_holding("one", 0.0500), old_holding("two", 0.0500))
    assert (
        AUTO.decide(make_observation(*full, offers=(offer(XLARGE, 0.05), offer(DOUBLE, 0.0492)))).action
        is Action.HOLD
    )
    assert (
        AUTO.decide(make_observation(*full, offers=(offer(XLARGE, 0.05), offer(DOUBLE, 0.04)))).action
        is Action.ACQUIRE
    )
    ending = replace(
        make_observation(*full, offers=(offer(XLARGE, 0.05), offer(DOUBLE, 0.04))), work_left=32.0 * 60
    )
    assert AUTO.decide(ending).action is Action.HOLD, "there is but a minute of work left"


def test_what_costs_more_than_on_demand_goes_at_once() -> None:
    decision = AUTO.decide(
        make_observation(old_holding("one", 0.05), old_holding("two", 0.05), offers=(offer(XLARGE, 0.25),))
    )
    assert (decision.action, decision.holding) == (Action.TERMINATE, "one")
    assert "$0.2000 on demand" in decision.why


def test_near_the_end_of_the_work_nothing_more_is_bought() -> None:
    held = make_observation(old_holding("one", 0.05), offers=(offer(XLARGE, 0.05),))
    assert AUTO.decide(held).action is Action.ACQUIRE
    assert AUTO.decide(replace(held, work_left=16.0 * 60)).action is Action.HOLD


def test_a_market_that_nobody_watched_is_no_reason_to_wait() -> None:
    unknown = replace(
        make_observation(offers=(offer(XLARGE, 0.05),)), evictions=Told(unknown=frozenset({XLARGE}))
    )
    assert AUTO.decide(unknown).action is Action.ACQUIRE
    assert fresh_rates(*arrays(unknown)).losses[0, 0] == pytest.approx(UNKNOWN_LOSSES_PER_S, rel=0.03)


def test_refunds_of_the_first_hour_make_a_restless_market_cheaper() -> None:
    observation = make_observation(offers=(offer(XLARGE, 0.05),), beta=0.4)
    hour = replace(observation, work_left=8.0 * 4 * HOUR_S)

    def paid(of: Observation, rules: MarketRules) -> float:
        return float(fresh_rates(*arrays(replace(of, rules=rules))).paid[0, 0])

    assert [paid(hour, GCP), paid(observation, GCP)] == pytest.approx([0.05, 0.05], rel=0.02)
    assert paid(hour, AWS) < 0.8 * paid(hour, GCP)
    assert paid(hour, AWS) < paid(observation, AWS) < paid(observation, GCP), "most machines outlive it"


def test_where_hours_are_billed_it_decides_as_proteus_does() -> None:
    observation = replace(make_observation(offers=(offer(XLARGE, 0.05), offer(DOUBLE, 0.04))), rules=AWS_2016)
    assert AUTO.decide(observation) == BidBrain().decide(observation)
    held = replace(make_observation(old_holding("one", 0.05), offers=(offer(XLARGE, 0.05),)), rules=AWS_2016)
    assert AUTO.renew_or_terminate(held, "one") == BidBrain().renew_or_terminate(held, "one")


@pytest.mark.parametrize("most", [1, 7, 100_000_000])
def test_however_many_machines_a_job_may_have_the_decision_is_quick(most: int) -> None:
    decision = AUTO.decide(make_observation(offers=(offer(XLARGE, 0.05),), most=most))
    assert decision.count == min(most, 4)
    assert decision.considered <= 24


# ---- the reliable machines ------------------------------------------------------------------------------


def place_reliable(beta: float, *, price: float = 0.05, is_open: bool = True) -> tuple[int, bool]:
    observation = make_observation(offers=(offer(XLARGE, price, is_open=is_open),), beta=beta)
    found = AUTO.place_reliable(
        *arrays(replace(observation, reliable=ReliableMachines(1, UsdPerHour(0.2), 4))), RESTART
    )
    return int(found.market[0]), bool(found.waits[0])


def test_the_model_is_kept_on_spot_where_that_is_cheaper_losses_included() -> None:
    assert place_reliable(0.05) == (0, False)
    assert place_reliable(0.999) == (NO_REQUEST, False), "begun again all the time"
    assert place_reliable(0.05, price=0.19) == (NO_REQUEST, False), "hardly cheaper"


def test_it_waits_for_a_market_that_refused_and_pays_nothing_meanwhile() -> None:
    assert place_reliable(0.05, is_open=False) == (NO_REQUEST, True)
    assert place_reliable(0.05, price=0.19, is_open=False) == (NO_REQUEST, False)


def test_a_loss_costs_the_work_since_the_checkpoint_again() -> None:
    setting, at = arrays(make_observation(offers=(offer(XLARGE, 0.05),), beta=0.05))
    often, seldom = (
        float(AUTO.place_reliable(setting, at, replace(RESTART, clocks=clocks)).loss[0])
        for clocks in (10, 100)
    )
    speed = RESTART.work_redone(np.array([0.0]))
    assert speed[0] == (10 + 1.5) * 2880
    assert seldom > 3 * often > 0


def test_where_machines_are_lost_as_often_as_checkpoints_are_written_each_loss_costs_more() -> None:
    dear = ReliableMachines(1, UsdPerHour(2.0), 4)

    def loss(beta: float) -> float:
        observation = replace(make_observation(offers=(offer(XLARGE, 0.05),), beta=beta), reliable=dear)
        return float(AUTO.place_reliable(*arrays(observation), RESTART).loss[0])

    seldom, often = loss(0.01), loss(0.6)
    assert often > 1.1 * seldom


def test_machines_that_stay_longer_the_older_they_are_are_judged_by_the_whole_time_ahead() -> None:
    class Settling(Told):
        """Lost in the first hour or not at all."""

        def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
            return 1 - self.beta

        def expected_uptime(
            self, market: Market, bid_delta: float, age_s: float, horizon_s: float
        ) -> Seconds:
            first = min(horizon_s, float(HOUR_S)) * (1 - self.beta / 2)
            return Seconds(first + (1 - self.beta) * max(horizon_s - HOUR_S, 0.0))

    long = replace(make_observation(offers=(offer(XLARGE, 0.05),)), evictions=Settling(0.5))
    short = replace(long, work_left=60.0)
    losses = [float(fresh_rates(*arrays(of)).losses[0, 0]) * HOUR_S for of in (short, long)]
    assert losses == pytest.approx([0.5 / 0.75, 0.5 / (0.75 + 3.5)], rel=0.01)
