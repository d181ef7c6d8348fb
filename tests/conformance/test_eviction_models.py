"""Tests what every estimator promises (``eviction/base.py``), for each one that there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from bidbrain.eviction.base import Estimates, FittedMarkets, MarketModel, RemainingLifetime
from bidbrain.eviction.capacity.lifetime_model import LifetimeModel
from bidbrain.eviction.capacity.lifetimes import bathtub, constant_hazard, weibull
from bidbrain.eviction.capacity.pooled import PooledModel
from bidbrain.eviction.capacity.published_rates import Band, BandModel
from bidbrain.eviction.capacity.regime_hazard import RegimeHazard
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.eviction.selector import EstimatorSelector
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds

KNOWN = Market("aws", "us-east-1", "us-east-1a", "m4.xlarge")
UNKNOWN = Market("gcp", "us-east1", "us-east1-b", "n1-standard-4")
BEGIN = 1_460_000_000
NOW = Instant(BEGIN + 60 * HOUR_S)
DELTAS = (0.0, 0.01, 0.05, 0.2)


def _seen() -> Observations:
    """Machines of exponential lives, some given up, some still running at ``NOW``."""
    random = np.random.default_rng(3)
    begins = BEGIN + np.sort(random.integers(0, 50 * HOUR_S, size=60))
    lives = random.exponential(4 * HOUR_S, size=60).astype(np.int64) + 1
    return Observations.from_spells(
        {KNOWN: Spells.from_columns(begins, begins + lives, random.random(60) < 0.7)}
    )


SEEN = _seen()
BANDS = {replace(KNOWN, zone=KNOWN.region): Band(0.05, 0.1, 24 * HOUR_S, Instant(BEGIN), "published")}

MODELS: Final[Mapping[str, MarketModel]] = {
    "price crossing": PriceCrossing(),
    "price crossing, starts of two hours": PriceCrossing(window_s=2 * HOUR_S),
    "conditioned": RegimeHazard(SEEN),
    "pooled": PooledModel(SEEN),
    "Kaplan-Meier": LifetimeModel(SEEN),
    "constant": LifetimeModel(SEEN, constant_hazard),
    "Weibull": LifetimeModel(SEEN, weibull),
    "bathtub": LifetimeModel(SEEN, bathtub),
    "bands": BandModel(BANDS),
    "bands, and own losses": BandModel(BANDS, SEEN),
    "chosen, capacity": EstimatorSelector(AWS, SEEN, BANDS),
    "chosen, auctions": EstimatorSelector(AWS_2016, SEEN, BANDS),
}


@pytest.fixture(params=list(MODELS))
def fitted(request: pytest.FixtureRequest) -> Estimates:
    random = np.random.default_rng(7)
    times = BEGIN + np.cumsum(random.integers(60, 900, size=400))
    history = PriceHistory.from_series(
        {KNOWN: Series(times, np.round(0.05 * random.lognormal(0, 0.4, size=400), 4))}
    )
    model = MODELS[request.param]
    estimates: Estimates = model.fit(history, NOW)
    return estimates


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
    assert fitted.evidence(KNOWN, HOUR_S).is_known
    known = fitted.evidence(KNOWN, HOUR_S)
    assert 0 < known.used_s <= known.span_s
    assert not fitted.evidence(UNKNOWN, HOUR_S).is_known
    assert fitted.evidence(UNKNOWN, HOUR_S).used_s == Seconds(0)
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
    lifetime = RemainingLifetime(fitted, KNOWN, 0.01, age_s=60)
    assert lifetime.survival(600) == fitted.survival(KNOWN, 0.01, 60, 600)
    assert lifetime.expected_uptime(600) == fitted.expected_uptime(KNOWN, 0.01, 60, 600)


@pytest.mark.parametrize("delta", [*DELTAS, -0.01])
def test_every_beta_lies_in_its_interval_and_says_where_it_is_from(fitted: Estimates, delta: float) -> None:
    beta = fitted.beta(KNOWN, delta, 0, HOUR_S)
    assert beta.value == pytest.approx(fitted.eviction_probability(KNOWN, delta, 0, HOUR_S), abs=1e-12)
    assert 0 <= beta.low <= beta.value + 1e-12
    assert beta.value <= beta.high + 1e-12 <= 1 + 2e-12
    assert beta.evidence.source
    age_s = beta.age_s(NOW)
    assert age_s is not None
    assert 0 <= age_s <= NOW - BEGIN


def test_of_an_unknown_market_the_interval_is_everything(fitted: Estimates) -> None:
    beta = fitted.beta(UNKNOWN, 0.1, 0, HOUR_S)
    assert (beta.value, beta.low, beta.high) == (1, 0, 1)
    assert beta.age_s(NOW) is None
