"""Tests what a job should cost, before anything is bought."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bidbrain.bidding.forecast import forecast_cost
from bidbrain.model import Action, Limits, ReliableMachines
from bidbrain.strategies.price_only import OnDemand
from pricing_data.model.rules import AWS
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour
from tests.bidbrain.build import XLARGE, Told, holding, observe

EIGHT = Limits(max_instances=8, max_per_allocation=4)


def test_two_requests_fill_the_footprint() -> None:
    """Eight of 4 cores at 0.05 and a working reliable one at 0.20: 36 cores for 0.60 $/h; 72 core-hours."""
    plan = forecast_cost(observe(limits=EIGHT), work=72 * HOUR_S)
    assert [(d.action, d.count) for d in plan.decisions] == [
        (Action.ACQUIRE, 4),
        (Action.ACQUIRE, 4),
        (Action.HOLD, 0),
    ]
    assert plan.expected_s == pytest.approx(2 * HOUR_S)
    assert plan.expected_cost == pytest.approx(1.20)
    assert plan.expected_evictions == 0


def test_evictions_make_it_cheaper_by_the_hour_and_slower() -> None:
    """Beta 0.5 half-way: half the spot hours are free, a quarter of the spot time is lost."""
    plan = forecast_cost(observe(limits=EIGHT, evictions=Told(beta=0.5)), work=(32 * 0.75 + 4) * HOUR_S)
    assert plan.expected_s == pytest.approx(HOUR_S)
    assert plan.expected_cost == pytest.approx(0.5 * 8 * 0.05 + 0.2)
    assert plan.expected_evictions == pytest.approx(2 * 0.5), "of two allocations, in an hour"


def test_a_change_is_paid_for_once() -> None:
    scaling = replace(observe().scaling, sigma_s=Seconds(90))
    seen = replace(observe(limits=EIGHT, scaling=scaling), rules=AWS)
    plan = forecast_cost(seen, work=72 * HOUR_S)
    assert plan.expected_s == pytest.approx(2 * HOUR_S + 90)
    assert plan.expected_cost == pytest.approx(0.60 * (2 + 90 / HOUR_S), abs=1e-3)


def test_the_last_hour_is_paid_for_as_the_bill_will_have_it() -> None:
    """Two hours and a half: three of each machine by the hour, and no more by the second."""
    seen, work = observe(limits=EIGHT), 90 * HOUR_S
    assert forecast_cost(seen, work).expected_cost == pytest.approx(3 * 0.60)
    by_the_second = forecast_cost(replace(seen, rules=AWS), work)
    assert by_the_second.expected_cost == pytest.approx(2.5 * 0.60)


def test_begins_with_what_is_there() -> None:
    plan = forecast_cost(observe(holding("one"), holding("two", left_s=1800), limits=EIGHT), work=36 * HOUR_S)
    assert [decision.action for decision in plan.decisions] == [Action.HOLD]
    assert plan.expected_s == pytest.approx(HOUR_S)


def test_without_machines_there_is_no_end() -> None:
    nothing = observe(
        evictions=Told(unknown=frozenset({XLARGE})), reliable=ReliableMachines(0, UsdPerHour(0.0), 1)
    )
    plan = forecast_cost(nothing, work=HOUR_S)
    assert [plan.expected_s, plan.expected_cost, plan.expected_evictions] == [math.inf, math.inf, 0]


def test_a_plan_is_the_strategys_own() -> None:
    rented = forecast_cost(observe(limits=EIGHT), work=72 * HOUR_S, decide=OnDemand(32.0).decide)
    assert [(d.action, d.count, d.bid) for d in rented.decisions] == [
        (Action.ACQUIRE, 8, None),
        (Action.HOLD, 0, None),
    ]
    assert rented.expected_cost > 2 * forecast_cost(observe(limits=EIGHT), work=72 * HOUR_S).expected_cost


def test_a_job_that_ends_by_time_costs_what_that_time_does() -> None:
    """Half an hour of 36 cores, of which the change takes 90 s; hours are paid whole."""
    scaling = replace(observe().scaling, sigma_s=Seconds(90))
    plan = forecast_cost(observe(limits=EIGHT, scaling=scaling), math.inf, most_s=1800.0)
    assert [plan.work, plan.expected_s] == pytest.approx([36 * 1710, 1800])
    assert plan.expected_cost == pytest.approx(0.60)
    sooner = forecast_cost(observe(limits=EIGHT, scaling=scaling), 36 * 900.0, most_s=1800.0)
    assert sooner.expected_s == pytest.approx(990), "its work is done before"


def test_a_part_of_a_job_costs_its_part_of_an_hour() -> None:
    plan = forecast_cost(observe(limits=EIGHT), work=36 * 900.0, whole=False)
    assert plan.expected_cost == pytest.approx(0.60 / 4)
