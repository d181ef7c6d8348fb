"""Tests what jobs expect of markets: more where they are cheap, and less where machines are evicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bidbrain.bidding.market_outlook import market_outlooks
from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016
from spotctl.control import entries as e
from spotctl.control.bidding import observe_whole_market
from spotctl.control.evolve import initial_state
from spotctl.control.state import State
from tests.spotctl.build import MARKETS, START, scripted_trace, terms


def fresh(quiet: float = 0.035, rules: MarketRules = AWS_2016) -> State:
    of = replace(terms(rules), reliable_count=0)
    return initial_state(e.JobStarted(START, of), scripted_trace(quiet=quiet))


def test_every_market_has_a_cost_and_a_rate() -> None:
    found = market_outlooks(observe_whole_market(fresh()), 4)
    assert set(found) == set(MARKETS)
    for one in found.values():
        assert one.cost > 0
        assert 0 < one.useful < 1
        assert one.rate == pytest.approx(4 * 4 * 0.98**2 * one.useful)
        assert one.cost_per_useful_hour > one.cost


def test_a_dearer_market_costs_more_and_does_as_much() -> None:
    cheap, dear = (
        market_outlooks(observe_whole_market(fresh(price)), 1)[MARKETS[0]] for price in (0.035, 0.07)
    )
    assert dear.cost > cheap.cost
    assert dear.useful == pytest.approx(cheap.useful, rel=0.2)


def test_where_nothing_is_evicted_the_cost_is_the_price_and_only_the_start_is_lost() -> None:
    one = market_outlooks(observe_whole_market(fresh(rules=AWS)), 1)[MARKETS[0]]
    assert one.cost == pytest.approx(0.035)
    assert one.useful == pytest.approx(1 - 15 / 3600)


def test_refunds_make_an_hour_cheaper_than_its_price() -> None:
    """Under the rules of 2016 an evicted hour is free, and low bids are evicted often."""
    assert market_outlooks(observe_whole_market(fresh(rules=AWS_2016)), 1)[MARKETS[0]].cost < 0.035


def test_a_closed_market_is_no_outlook() -> None:
    seen = observe_whole_market(fresh())
    closed = replace(seen, offers=tuple(replace(o, open=o.market != MARKETS[1]) for o in seen.offers))
    assert set(market_outlooks(closed, 2)) == {MARKETS[0], MARKETS[2]}
