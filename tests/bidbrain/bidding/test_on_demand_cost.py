"""The cheapest way on demand, by hand and against a search that tries everything."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.bidding.on_demand_cost import MachineType, Rental, Workload, cheapest_rental, price_rental
from bidbrain.model import ScalingCurve, ScalingModel
from pricing_data.model.billing import on_demand_micros, settle_on_demand
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.rules import AWS, AWS_2016, AZURE, GCP
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour

FOUR = (AWS_2016, AWS, GCP, AZURE)
SCALING = ScalingModel(0.98, Seconds(15), Seconds(15), 1, 15)


def machine(kind: str, price: float, cores: float, rules: MarketRules) -> MachineType:
    return MachineType(Market("aws", "us-east-1", "us-east-1a", kind), UsdPerHour(price), cores, rules)


def by_trying_all(types: list[MachineType], work: Workload, within_s: float) -> Rental | None:
    ways = [price_rental(one, count, work) for one in types for count in range(1, work.most_machines + 1)]
    in_time = [way for way in ways if way.finish_s <= within_s]
    return min(in_time, key=lambda way: (way.cost, way.finish_s, way.machines, way.market), default=None)


def test_twelve_minutes_of_four_large_machines_are_two_hours_of_small_ones() -> None:
    """Four c4.2xlarge for 12 minutes cost four whole hours; c4.xlarge does it in two."""
    types = [machine("c4.2xlarge", 0.419, 8, AWS_2016), machine("c4.xlarge", 0.209, 4, AWS_2016)]
    work = Workload(4 * 8 * 720.0, replace(SCALING, phi=1.0, sigma_s=Seconds(0)), Seconds(60), 4)
    fast, cheap = cheapest_rental(types, work, 780), cheapest_rental(types, work)
    assert fast is not None
    assert cheap is not None
    assert (fast.machines, fast.market.instance_type, fast.cost) == (4, "c4.2xlarge", 4 * 419_000)
    assert (cheap.machines, cheap.market.instance_type, cheap.cost) == (2, "c4.xlarge", 418_000)
    assert (cheap.seconds, cheap.finish_s) == (2880, 2940)


def test_by_the_second_the_boot_is_free_and_joining_is_paid_for() -> None:
    work = Workload(3600.0, replace(SCALING, phi=1.0), Seconds(60), 1)
    found = cheapest_rental([machine("c4.xlarge", 0.36, 4, AWS)], work)
    assert found is not None
    assert (found.seconds, found.finish_s, found.cost) == (915, 975, 91_500)


def test_nothing_is_found_where_nothing_is_fast_enough() -> None:
    types = [machine("c4.xlarge", 0.2, 4, AWS)]
    assert cheapest_rental(types, Workload(1e6, SCALING, Seconds(60), 8), 600) is None
    assert cheapest_rental(types, Workload(1e6, SCALING, Seconds(60), 8), 60) is None
    assert cheapest_rental([], Workload(1e6, SCALING, Seconds(60), 8)) is None


def test_where_more_machines_are_slower_there_is_one() -> None:
    work = Workload(36_000.0, replace(SCALING, phi=0.4), Seconds(0), 100)
    found = cheapest_rental([machine("c4.xlarge", 0.2, 4, AZURE)], work, 36_000)
    assert found is not None
    assert found.machines == 1


def test_a_hundred_million_machines_are_no_reason_to_wait() -> None:
    work = Workload(5e6, SCALING, Seconds(60), 100_000_000)
    for rules in FOUR:
        found = cheapest_rental([machine("c4.xlarge", 0.2, 4, rules)], work, 3000)
        assert found is not None
        assert found.finish_s <= 3000
        assert found.cost == min(
            price_rental(machine("c4.xlarge", 0.2, 4, rules), count, work).cost
            for count in range(found.machines - 200, found.machines + 2000)
            if price_rental(machine("c4.xlarge", 0.2, 4, rules), count, work).finish_s <= 3000
        )


PRICES = st.integers(1, 3_000_000).map(lambda micros: micros / 1e6)


@given(
    st.sampled_from(FOUR),
    st.lists(st.tuples(PRICES, st.sampled_from([1.0, 2.0, 3.7, 8.0])), min_size=1, max_size=4),
    st.floats(1, 1e7),
    st.sampled_from([1.0, 0.98, 0.8, 0.5]),
    st.sampled_from([0.0, 15.0, 90.0]),
    st.sampled_from([0.0, 60.0]),
    st.integers(1, 24),
    st.floats(0.01, 2.0),
)
def test_it_is_what_trying_everything_finds(
    rules: MarketRules,
    offered: list[tuple[float, float]],
    core_seconds: float,
    phi: float,
    sigma_s: float,
    start_s: float,
    most: int,
    share: float,
) -> None:
    types = [machine(f"t{number}", price, cores, rules) for number, (price, cores) in enumerate(offered)]
    scaling = replace(SCALING, phi=phi, sigma_s=Seconds(sigma_s))
    work = Workload(core_seconds, scaling, Seconds(start_s), most)
    within_s = start_s + share * (sigma_s + core_seconds / types[0].speed)
    assert cheapest_rental(types, work) == by_trying_all(types, work, math.inf)
    assert cheapest_rental(types, work, within_s) == by_trying_all(types, work, within_s)


def test_a_constant_phi_scales_without_end() -> None:
    work = Workload(1e5, replace(SCALING, phi=0.4, curve=ScalingCurve.CONSTANT), Seconds(0), 50)
    types = [machine("c4.xlarge", 0.2, 4, AWS)]
    assert cheapest_rental(types, work, 1400) == by_trying_all(types, work, 1400)


@pytest.mark.parametrize("rules", FOUR)
@given(price=st.floats(1e-4, 40), lasted_s=st.floats(0, 1e6))
def test_what_a_machine_owes_is_the_sum_of_its_charges(
    rules: MarketRules, price: float, lasted_s: float
) -> None:
    owed = on_demand_micros(rules, UsdPerHour(price), lasted_s)
    end = Instant(math.ceil(lasted_s - 1e-6))
    charges = settle_on_demand(rules, UsdPerHour(price), Instant(0), end)
    assert owed == sum(charge.amount for charge in charges)
    assert (owed % on_demand_micros(AWS_2016, UsdPerHour(price), HOUR_S) == 0) or rules is not AWS_2016
