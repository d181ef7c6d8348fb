"""Tests which on-demand machines a promise counts on: those that keep it for least, of whichever type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bidbrain.model import UNBOUNDED, Holding, Limits, Observation, Offer, ReliableMachines
from bidbrain.strategies.deadline_inputs import Pledge, check_promise, choose_target
from pricing_data.model.market import Market
from pricing_data.model.rules import AWS
from pricing_data.model.units import HOUR_S, Instant, Seconds, Usd, UsdPerHour
from tests.bidbrain.build import NOW, observe

SMALL = Market("aws", "us-east-1", "us-east-1a", "small")
LARGE = Market("aws", "us-east-1", "us-east-1b", "large")
WORK = 40 * 4 * 3600.0
"""Ten hours of four small machines."""


def make_observation(*offers: Offer, reliable: float = 0.0, **changes: Any) -> Observation:
    made = replace(
        observe(),
        rules=AWS,
        offers=offers,
        footprint=(),
        reliable=ReliableMachines(1 if reliable else 0, UsdPerHour(reliable), 4),
        limits=Limits(4, 4),
        work_left=WORK,
    )
    return replace(made, **changes)


def offer(market: Market, on_demand: float, cores: int) -> Offer:
    return Offer(market, UsdPerHour(0.1), UsdPerHour(on_demand), cores)


def pledge(hours: float, budget: float = 1e9) -> Pledge:
    deadline = Instant(int(NOW + hours * HOUR_S))
    return Pledge(NOW, deadline, WORK, Seconds(60.0), Usd(budget))


CHEAP = offer(SMALL, 0.20, 4)
FAST = offer(LARGE, 0.85, 16)
"""Six percent dearer per core, and four times as fast."""


def test_time_enough_is_kept_by_the_cheapest_and_less_by_the_fastest() -> None:
    both = make_observation(CHEAP, FAST)
    assert choose_target(both, pledge(40)).market == SMALL
    assert choose_target(both, pledge(5)).market == LARGE
    assert choose_target(both, pledge(0.1)).market == LARGE, "nothing is in time: the soonest"


def test_what_the_reliable_machines_cost_meanwhile_counts() -> None:
    assert choose_target(make_observation(CHEAP, FAST, reliable=0.5), pledge(60)).market == LARGE


@pytest.mark.parametrize("reliable", [0.0, 0.5])
def test_the_least_of_both_is_the_least_over_the_allowed_markets(reliable: float) -> None:
    both = make_observation(CHEAP, FAST, reliable=reliable)
    each = [check_promise(make_observation(one, reliable=reliable), pledge(60)) for one in (CHEAP, FAST)]
    found = check_promise(both, pledge(60))
    assert found.least_deadline_s == min(one.least_deadline_s for one in each)
    assert found.least_budget == min(one.least_budget for one in each)


def test_what_is_told_works_when_it_is_typed_in() -> None:
    both = make_observation(CHEAP, FAST)
    found = check_promise(both, pledge(1, budget=1.0))
    assert not found.in_time
    assert not found.within_budget
    hours = found.least_deadline_s / HOUR_S + 1 / HOUR_S
    assert check_promise(both, pledge(hours, budget=found.least_budget)).is_feasible


def test_a_promise_goes_by_what_is_sure_of_a_type_that_nobody_has_seen() -> None:
    """Believed as fast per core as the other it would be the cheaper one; half of it is sure."""
    believed = replace(FAST, on_demand=UsdPerHour(0.75))
    assert choose_target(make_observation(CHEAP, believed), pledge(40)).market == LARGE
    doubted = make_observation(CHEAP, replace(believed, safe_cores=8.0))
    assert choose_target(doubted, pledge(40)).market == SMALL
    assert (
        check_promise(doubted, pledge(40)).least_deadline_s
        > 1.9 * check_promise(make_observation(CHEAP, FAST), pledge(40)).least_deadline_s
    )


def test_what_is_rented_is_not_changed_for_another_type() -> None:
    rented = Holding(
        "d1", SMALL, 4, 4, UNBOUNDED, UsdPerHour(0.2), Instant(NOW + HOUR_S), 4, NOW, on_demand=True
    )
    assert choose_target(make_observation(CHEAP, FAST, footprint=(rented,)), pledge(5)).market == SMALL
