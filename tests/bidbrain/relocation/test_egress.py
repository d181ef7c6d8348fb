"""Moves: what they cost by hand, when they pay, and that they never go to and fro."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.relocation.egress import (
    BYTES_PER_GB,
    NO_MOVE,
    CarriedCheckpoint,
    Distance,
    EgressPrices,
    JobSite,
    TransferLoad,
    distance,
    egress_owed,
    expected_saving,
    move_cost,
    worth_moving,
)
from pricing_data.catalogue import bundled_egress
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour, to_micros

EAST = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
OTHER_ZONE = replace(EAST, zone="us-east-1b")
OHIO = Market("aws", "us-east-2", "us-east-2a", "p3.2xlarge")
AZURE = Market("azure", "eastus", "eastus", "NC6s_v3")
EGRESS = EgressPrices(bundled_egress())
BAGGAGE = TransferLoad(size_gb=10, gb_per_s=0.1, restart_s=Seconds(300))


def place(market: Market, price: float, speed: float = 1.0) -> JobSite:
    return JobSite(market, UsdPerHour(price), speed)


@pytest.mark.parametrize(
    ("there", "apart", "egress", "delay_s"),
    [
        (replace(EAST, instance_type="p2.xlarge"), Distance.NONE, 0.0, 300),
        (OTHER_ZONE, Distance.ZONE, 0.2, 400),
        (OHIO, Distance.REGION, 0.2, 400),
        (AZURE, Distance.CLOUD, 0.9, 400),
    ],
)
def test_what_a_move_costs(there: Market, apart: Distance, egress: float, delay_s: float) -> None:
    cost = move_cost(BAGGAGE, EGRESS, EAST, place(there, 1.8))
    assert distance(EAST, there) is apart
    assert cost.egress == pytest.approx(egress)
    assert cost.delay_s == pytest.approx(delay_s)
    assert cost.total_cost == pytest.approx(egress + 1.8 * delay_s / HOUR_S)


def test_the_data_set_is_carried_where_it_is_not_there_yet() -> None:
    cost = move_cost(replace(BAGGAGE, dataset_gb=150), EGRESS, EAST, place(AZURE, 0.9), lost_s=600)
    assert cost.egress == pytest.approx(160 * 0.09)
    assert cost.delay_s == pytest.approx(300 + 1600 + 600)


def test_a_move_must_repay_itself_in_the_time_that_is_left() -> None:
    """A dollar an hour is saved. The move costs $0.42: an hour repays it, 20 min do not."""
    here, there = place(EAST, 3.0), place(OHIO, 2.0)
    cost = move_cost(BAGGAGE, EGRESS, EAST, there)
    assert expected_saving(here, there, cost, HOUR_S, 1e9) == pytest.approx(1 - 0.2 - 2 * 400 / HOUR_S)
    assert worth_moving(here, there, cost, HOUR_S, 1e9)
    assert not worth_moving(here, there, cost, 1200, 1e9)
    assert not worth_moving(here, there, cost, 1e9, lasts_s=1200)
    assert not worth_moving(here, there, cost, HOUR_S, 1e9, margin=0.2)


def test_from_a_place_that_does_nothing_any_move_pays() -> None:
    dead, there = place(EAST, 3.0, speed=0.0), place(AZURE, 2.0)
    assert worth_moving(dead, there, move_cost(BAGGAGE, EGRESS, EAST, there), 10.0, 1e9)
    assert not worth_moving(there, dead, move_cost(BAGGAGE, EGRESS, AZURE, dead), 10.0, 1e9)


def test_an_unknown_price_says_what_is_missing() -> None:
    moon = Market("moon", "tycho", "tycho-a", "rover")
    with pytest.raises(KeyError, match=r"no egress price from moon to another cloud; .*aws, azure, gcp"):
        move_cost(BAGGAGE, EGRESS, moon, place(EAST, 1.0))
    with pytest.raises(ValueError, match="gb_per_s above 0"):
        TransferLoad(1, 0, Seconds(0))


def test_what_is_carried_by_way_of_an_object_store_leaves_regions_only() -> None:
    home = CarriedCheckpoint(replace(BAGGAGE, restart_s=Seconds(0)), EGRESS, EAST)
    assert home.transfer_cost(place(OTHER_ZONE, 1.8)) == NO_MOVE
    assert replace(home, home=None).transfer_cost(place(AZURE, 1.8)) == NO_MOVE
    toll = home.transfer_cost(place(OHIO, 1.8))
    assert toll.egress == pytest.approx(0.2)
    assert toll.delay_s == pytest.approx(100)
    assert home.worst_cost(place(OHIO, 1.8), (EAST, OHIO, AZURE)).egress == pytest.approx(0.87)
    assert home.worst_cost(place(OHIO, 1.8), ()) == NO_MOVE


@given(st.integers(0, 10**15), st.floats(0, 0.2))
def test_egress_is_whole_micro_dollars_half_up(size_bytes: int, usd_gb: float) -> None:
    exact = Fraction(size_bytes, BYTES_PER_GB) * to_micros(usd_gb)
    assert abs(egress_owed(size_bytes, usd_gb) - exact) <= Fraction(1, 2)


@given(
    st.floats(0.01, 100),
    st.floats(0.01, 100),
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.floats(0, 1e7),
    st.floats(0, 1e6),
)
def test_what_pays_there_does_not_pay_back(
    price: float, other: float, speed: float, other_speed: float, work: float, lasts_s: float
) -> None:
    here, there = place(EAST, price, speed), place(AZURE, other, other_speed)
    out, back = move_cost(BAGGAGE, EGRESS, EAST, there), move_cost(BAGGAGE, EGRESS, AZURE, here)
    if worth_moving(here, there, out, work, lasts_s):
        assert expected_saving(here, there, out, work, lasts_s) > 0
        assert not worth_moving(there, here, back, work, lasts_s)
