"""Jobs over time: by hand where they stay and where they move, and never dearer for it without tolls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.relocation.egress import EgressPrices, TransferLoad
from bidbrain.relocation.oracle_path import MovePolicy, Options, follow_prices, stay_put
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Seconds

HERE = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
THERE = Market("aws", "us-east-1", "us-east-1b", "p3.2xlarge")
HOUR = float(HOUR_S)
FREE = MovePolicy(
    TransferLoad(0.0, 1.0, Seconds(0)), EgressPrices({("aws", "zone"): 0.0}), lasts_s=math.inf, margin=0
)


def moving(restart_s: float) -> MovePolicy:
    """A gigabyte at a dollar, carried in no time to speak of."""
    return MovePolicy(
        TransferLoad(1.0, 1e9, Seconds(restart_s)),
        EgressPrices({("aws", "zone"): 1.0}),
        lasts_s=math.inf,
        margin=0,
    )


def options(here: list[float], there: list[float], speeds: tuple[float, float] = (1.0, 1.0)) -> Options:
    return Options((HERE, THERE), np.array(speeds), np.array([here, there]), HOUR)


def test_the_cheapest_is_so_per_work_and_not_per_hour() -> None:
    assert stay_put(options([3.0], [1.0], (4.0, 1.0)), 0, HOUR).places == (0,)
    assert stay_put(options([math.nan], [9.0]), 0, HOUR).places == (1,)


def test_staying_pays_the_prices_of_its_market_as_they_come() -> None:
    journey = stay_put(options([1.0, 5.0, 5.0], [2.0, 2.0, 2.0]), 0, 2.5 * HOUR)
    assert (journey.cost, journey.seconds) == pytest.approx((1 + 5 + 2.5, 2.5 * HOUR))
    assert journey.places == (0,)


def test_a_move_pays_its_toll_and_waits() -> None:
    """From the second hour on it saves $8 an hour for $1 and half an hour of $2."""
    journey = follow_prices(options([1.0] + [10.0] * 4, [2.0] * 5), 0, 3 * HOUR, moving(1800))
    assert journey.places == (0, 1)
    assert journey.cost == pytest.approx(1 + 1 + 2 * 2.5)
    assert journey.seconds == pytest.approx(3.5 * HOUR)


def test_a_move_that_does_not_repay_itself_is_not_made() -> None:
    assert follow_prices(options([1.0, 2.5, 2.5], [2.0] * 3), 0, 3 * HOUR, moving(1800)).move_count == 0


def test_a_market_without_an_offer_is_left() -> None:
    gone = options([1.0, math.nan, math.nan], [2.0, 2.0, 2.0])
    assert follow_prices(gone, 0, 2 * HOUR, moving(0)).cost == pytest.approx(1 + 1 + 2)
    assert math.isnan(stay_put(gone, 0, 2 * HOUR).cost)


def test_prices_that_end_before_the_job_give_no_figure() -> None:
    assert math.isnan(stay_put(options([1.0], [2.0]), 0, 2 * HOUR).cost)


def test_options_must_fit_together() -> None:
    with pytest.raises(ValueError, match="a row of prices for each market"):
        Options((HERE,), np.array([1.0, 2.0]), np.ones((1, 3)), HOUR)


_PRICES = st.lists(st.floats(0.1, 10), min_size=12, max_size=12)


@given(_PRICES, _PRICES, st.floats(0.5, 4), st.floats(0.1, 5))
def test_free_moves_pay_the_least_price_of_every_hour(
    here: list[float], there: list[float], speed: float, hours: float
) -> None:
    found = options(here, there, (1.0, speed))
    journey = follow_prices(found, 0, hours * HOUR, FREE)
    assert journey.cost <= found.cost_per_work.min(axis=0).max() * hours * HOUR * (1 + 1e-9)
    assert journey.cost >= found.cost_per_work.min() * hours * HOUR * (1 - 1e-9)
