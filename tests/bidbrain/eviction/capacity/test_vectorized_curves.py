"""Asked in bulk, curves answer what they answer one by one."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.bidding.decision_batch import BulkMarkets
from bidbrain.eviction.capacity.lifetime_model import LifetimeModel
from bidbrain.eviction.capacity.published_rates import Band
from bidbrain.eviction.selector import EstimatorSelector
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.rules import AWS
from pricing_data.model.units import HOUR_S, Instant

BEGIN = 1_680_000_000
NOW = Instant(BEGIN + 300 * HOUR_S)
ZONES = tuple(Market("aws", "us-east-1", f"us-east-1{letter}", "p3.2xlarge") for letter in "abcde")
BANDED = Market("azure", "eastus", "eastus", "Standard_NC6")
UNKNOWN = Market("gcp", "us-east1", "us-east1-b", "n1-highcpu-2")
MARKETS = (*ZONES, BANDED, UNKNOWN)


@pytest.fixture(scope="module")
def seen() -> Observations:
    """Four zones with more and more losses; the fifth is unseen."""
    random = np.random.default_rng(21)
    found = {}
    for place, market in enumerate(ZONES[:4]):
        lives = random.exponential(HOUR_S * 4 / (place + 1), size=60).astype(np.int64) + 1
        begins = BEGIN + np.append(0, np.cumsum(lives + 600)[:-1])
        found[market] = Spells.from_columns(begins, begins + lives, random.random(60) < 0.8)
    return Observations.from_spells(found)


@pytest.mark.parametrize("kind", ["chosen", "lifetimes"])
def test_in_bulk_as_one_by_one(seen: Observations, kind: str) -> None:
    bands = {BANDED: Band(0.05, 0.1, HOUR_S, Instant(BEGIN), "published")}
    model = EstimatorSelector(AWS, seen, bands) if kind == "chosen" else LifetimeModel(seen)
    fitted = model.fit(PriceHistory(), NOW)
    assert isinstance(fitted, BulkMarkets)
    chances = fitted.survival_batch(MARKETS)
    known = [fitted.evidence(market, HOUR_S).is_known for market in MARKETS]
    assert chances.known_markets().tolist() == [known]
    random = np.random.default_rng(22)
    shape = (40, len(MARKETS))
    codes = np.broadcast_to(np.arange(len(MARKETS)), shape)
    deltas = random.choice([-0.01, 0.0, 0.4], size=shape)
    ages = random.choice([0.0, 100.0, 5000.0, 90_000.0, 900_000.0], size=shape)
    horizons = random.uniform(0, 20 * HOUR_S, size=shape)
    survival, uptime = chances.survival_and_uptime(codes, deltas, ages, horizons)
    for place in np.ndindex(shape):
        question = (MARKETS[codes[place]], float(deltas[place]), float(ages[place]), float(horizons[place]))
        assert survival[place] == pytest.approx(fitted.survival(*question), rel=1e-9, abs=1e-15)
        assert uptime[place] == pytest.approx(fitted.expected_uptime(*question), rel=1e-6, abs=1e-4)
