"""The protocol's jobs, counted by hand on short prices, and its figures on a sample of the recorded ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.strategies.mttf import failure_rate, mttf_s
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import HOUR_S, Instant
from tests.papers.protocols.market_classes import DAY_S, MINUTE_S, MachineClass, Tables, first_from, tabulate
from tests.papers.protocols.tierml_jobs import Jobs, Scheme, run
from tests.papers.tierml import AGGRESSIVE, LENGTHS, ON_DEMAND_BIDS, PAIRS, Pooled, results

SMALL = Market("aws", "us-east-1", "us-east-1a", "small")
LARGE = Market("aws", "us-east-1", "us-east-1a", "large")
LEARNED_S = 3 * DAY_S
"""Of calm before the window: what the failure rates rest on."""


def tables(
    small: dict[int, float],
    large: dict[int, float],
    minutes: int = 600,
    steps: tuple[float, float] | None = None,
) -> Tables:
    """Prices by the minute they come into force; on demand, 128 small or 64 large machines cost $64/h."""
    series = {}
    for market, prices in ((SMALL, small), (LARGE, large)):
        rows = [
            (0, prices[0]),
            *((LEARNED_S + minute * MINUTE_S, p) for minute, p in prices.items() if minute),
        ]
        series[market] = Series(np.array([at for at, _ in rows], np.int64), np.array([p for _, p in rows]))
    bids = steps or (None, None)
    classes = [MachineClass(SMALL, 128, 0.5, bids[0]), MachineClass(LARGE, 64, 1.0, bids[1])]
    until = Instant(LEARNED_S + minutes * MINUTE_S)
    return tabulate(PriceHistory.from_series(series), classes, Instant(LEARNED_S), until)


def one(scheme: Scheme, window: Tables, length: int) -> Jobs:
    return run(scheme, window, np.array([0]), np.array([length]))


def test_first_from() -> None:
    assert first_from(np.array([False, True, False, True, False])).tolist() == [1, 1, 3, 3, 5]


def test_calm_prices_cost_what_they_say() -> None:
    """63 of 64 machines at a quarter of the price and one at the whole of it, for 64/63 of the time."""
    done = one(Scheme("t", 1), tables({0: 0.2}, {0: 0.25}), 120)
    assert done.minutes[0, 0] == pytest.approx(120 * 64 / 63)
    assert done.cost[0, 0] == pytest.approx((63 * 0.25 + 1) * 2 * 64 / 63)
    assert done.evictions[0, 0] == 0


def test_checkpoints_take_their_share_of_the_time() -> None:
    done = one(Scheme("c", 0, overhead=0.18), tables({0: 0.2}, {0: 0.25}), 120)
    assert done.minutes[0, 0] == pytest.approx(120 * 1.18)
    assert done.cost[0, 0] == pytest.approx(64 * 0.25 * 2 * 1.18)


def test_an_evicted_hour_is_free_and_machines_take_five_minutes_to_replace() -> None:
    """Evicted at 90 minutes: one hour is paid, half an hour was free; the reliable one goes on alone."""
    window = tables({0: 0.4}, {0: 0.25, 90: 0.5, 92: 0.25}, steps=(0.05, 0.1))
    done = one(Scheme("t", 1, classes=(1,)), window, 120)
    left = 120 - 90 * 63 / 64 - 5 / 64
    minutes = 95 + left * 64 / 63
    assert done.evictions[0, 0] == 1
    assert done.minutes[0, 0] == pytest.approx(minutes)
    spot = 63 * 0.25 * (1 + (minutes - 95) / 60)
    assert done.cost[0, 0] == pytest.approx(spot + minutes / 60)


def test_a_class_above_the_on_demand_price_is_not_bid_for() -> None:
    done = one(Scheme("t", 1, classes=(1,)), tables({0: 0.2}, {0: 1.5}), 63)
    assert done.cost[0, 0] == pytest.approx(64 * 64 / 60)
    assert done.on_demand[0, 0] == pytest.approx(64)


def test_what_is_vacated_works_until_its_hour_ends() -> None:
    """The large class grows dear at 30 minutes: the small one joins at 35, both work until 60."""
    window = tables({0: 0.2}, {0: 0.25, 30: 0.99})
    rates = window.rates.copy()
    rates[1, 0] = np.where(np.arange(window.minutes) >= 30, 1e-4, 1e-6)
    rates[0, 0] = 1e-5
    moved = replace(window, rates=rates)
    done = one(Scheme("t", 1, moves_at=2.0), moved, 200)
    fleet_minutes = 200 * 64 / 63
    minutes = fleet_minutes - 25
    assert done.minutes[0, 0] == pytest.approx(minutes)
    large, small = 63 * 0.25, 126 * 0.2 * (minutes - 35) / 60
    assert done.cost[0, 0] == pytest.approx(large + small + minutes / 60)


def test_bids_that_are_paid_cost_the_bid() -> None:
    done = one(
        Scheme("t", 1, classes=(1,), pays_bid=True), tables({0: 0.2}, {0: 0.21}, steps=(0.05, 0.1)), 63
    )
    assert done.cost[0, 0] == pytest.approx((63 * 0.3 + 1) * 64 / 60)


def test_a_job_that_outlives_the_data_has_no_figures() -> None:
    done = one(Scheme("t", 1), tables({0: 0.2}, {0: 0.25}, minutes=100), 120)
    assert np.isnan(done.cost[0, 0])


def test_failure_rates_are_failures_over_time_at_risk() -> None:
    """One spike a day for two hours: every start meets it within a day, 11 h later in the mean."""
    times = np.array([day * DAY_S + at for day in range(12) for at in (0, 22 * HOUR_S)], np.int64)
    prices = np.array([0.1, 0.9] * 12)
    fitted = PriceCrossing(window_s=DAY_S).fit(
        PriceHistory.from_series({LARGE: Series(times, prices)}), Instant(12 * DAY_S)
    )
    beta = 22 / 24
    uptime_s = beta * 11 * HOUR_S + (1 - beta) * DAY_S
    assert failure_rate(fitted, LARGE, 0.5) == pytest.approx(beta / uptime_s)
    assert mttf_s(fitted, LARGE, 0.5) == pytest.approx(uptime_s / beta)
    assert mttf_s(fitted, LARGE, 0.85) == np.inf
    assert mttf_s(fitted, SMALL, 0.5) == pytest.approx(0.0)


@pytest.mark.campaign
def test_the_papers_table(recorded_data: Path, campaign: bool) -> None:
    """Sampled: the first pair, every eight hours; in full, every pair and minute.

    The saving against checkpointing is bounded by the traces: see decision record 0011.
    """
    pairs = PAIRS if campaign else PAIRS[:1]
    found = list(results(recorded_data, pairs, every=1 if campaign else 479))
    normal = Pooled.from_results([result for result in found if result.bidding is ON_DEMAND_BIDS])
    paying = Pooled.from_results([result for result in found if result.bidding is AGGRESSIVE])
    assert all(normal.saved > 0.74)
    assert all(paying.saved_of_checkpointing > 0.15)
    assert all(normal.saved_by_second_class > 0.10)
    assert all(abs(normal.longer) < 0.11)
    for result in found:
        assert not np.isnan(result.relative["tierml"]).any()
        assert result.mean("tierml").shape == LENGTHS.shape
