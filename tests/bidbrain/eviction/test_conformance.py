"""What every estimator promises (``eviction/base.py``), asked of each one that there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pytest

from bidbrain.eviction.base import FittedMarkets, Lifetime, MarketModel
from bidbrain.eviction.price_crossing import PriceCrossing
from pricing_data.market import Market, PriceHistory, Series
from pricing_data.units import HOUR_S, Instant, Seconds

KNOWN = Market("aws", "us-east-1", "us-east-1a", "m4.xlarge")
UNKNOWN = Market("aws", "us-east-1", "us-east-1b", "m4.xlarge")
BEGIN = 1_460_000_000
NOW = Instant(BEGIN + 60 * HOUR_S)
DELTAS = (0.0, 0.01, 0.05, 0.2)

MODELS: Final[Mapping[str, MarketModel]] = {
    "price crossing": PriceCrossing(),
    "price crossing, starts of two hours": PriceCrossing(window_s=2 * HOUR_S),
}


@pytest.fixture(params=list(MODELS))
def fitted(request: pytest.FixtureRequest) -> FittedMarkets:
    random = np.random.default_rng(7)
    times = BEGIN + np.cumsum(random.integers(60, 900, size=400))
    history = PriceHistory.of({KNOWN: Series(times, np.round(0.05 * random.lognormal(0, 0.4, size=400), 4))})
    model = MODELS[request.param]
    return model.fit(history, NOW)


@pytest.mark.parametrize("delta", DELTAS)
def test_survival_begins_at_one_and_falls(fitted: FittedMarkets, delta: float) -> None:
    survival = [fitted.survival(KNOWN, delta, 0, horizon_s) for horizon_s in range(0, HOUR_S + 1, 60)]
    assert survival[0] == 1
    assert survival == sorted(survival, reverse=True)
    assert survival[-1] >= 0


@pytest.mark.parametrize("delta", DELTAS)
def test_beta_is_what_survival_leaves(fitted: FittedMarkets, delta: float) -> None:
    beta = fitted.eviction_probability(KNOWN, delta, 0, 900)
    assert beta + fitted.survival(KNOWN, delta, 0, 900) == pytest.approx(1)


@pytest.mark.parametrize("delta", DELTAS)
def test_uptime_is_the_integral_of_survival(fitted: FittedMarkets, delta: float) -> None:
    horizons = np.linspace(0, HOUR_S, 721)
    survival = [fitted.survival(KNOWN, delta, 0, float(horizon_s)) for horizon_s in horizons]
    uptime = fitted.expected_uptime(KNOWN, delta, 0, HOUR_S)
    assert uptime == pytest.approx(np.trapezoid(survival, horizons), rel=1e-4)


def test_a_higher_bid_never_lives_shorter(fitted: FittedMarkets) -> None:
    survival = [fitted.survival(KNOWN, delta, 0, HOUR_S) for delta in DELTAS]
    assert survival == sorted(survival)


def test_a_bid_below_the_price_is_lost(fitted: FittedMarkets) -> None:
    assert fitted.survival(KNOWN, -0.01, 0, 60) == 0
    assert fitted.eviction_probability(KNOWN, -0.01, 0, 60) == 1
    assert fitted.expected_uptime(KNOWN, -0.01, 0, 60) == Seconds(0)
    assert fitted.median_time_to_eviction(KNOWN, -0.01, 0) == Seconds(0)


def test_what_is_not_known_is_said_and_answered_pessimistically(fitted: FittedMarkets) -> None:
    assert fitted.evidence(KNOWN, HOUR_S).known
    assert 0 < fitted.evidence(KNOWN, HOUR_S).share <= 1
    assert not fitted.evidence(UNKNOWN, HOUR_S).known
    assert fitted.evidence(UNKNOWN, HOUR_S).share == 0
    assert fitted.survival(UNKNOWN, 0.1, 0, 60) == 0
    assert fitted.eviction_probability(UNKNOWN, 0.1, 0, 60) == 1
    assert fitted.expected_uptime(UNKNOWN, 0.1, 0, 60) == Seconds(0)
    assert fitted.median_time_to_eviction(UNKNOWN, 0.1, 0) is None


def test_half_of_the_machines_outlive_the_median(fitted: FittedMarkets) -> None:
    median = fitted.median_time_to_eviction(KNOWN, 0.0, 0)
    if median is None:
        assert fitted.survival(KNOWN, 0.0, 0, 16 * HOUR_S) > 0.5
    else:
        assert fitted.survival(KNOWN, 0.0, 0, median) == pytest.approx(0.5, abs=0.02)


def test_a_lifetime_is_the_model_asked_about_one_machine(fitted: FittedMarkets) -> None:
    lifetime = Lifetime(fitted, KNOWN, 0.01, age_s=60)
    assert lifetime.survival(600) == fitted.survival(KNOWN, 0.01, 60, 600)
    assert lifetime.expected_uptime(600) == fitted.expected_uptime(KNOWN, 0.01, 60, 600)
