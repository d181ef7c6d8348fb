"""How long one decision takes among 1, 100 and 10 000 candidate markets. Aim: 20 ms at 10 000.

Every market is weighed at 4 counts and 20 bid deltas. The fitted model answers in bulk from tables; the
reference is the arithmetic alone that nobody can leave out: one division for each request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from bidbrain.backtest.beta_grid import HORIZONS_S, BetaTables
from bidbrain.bidding.decide import decide
from bidbrain.bidding.decision_batch import SurvivalBatch
from bidbrain.eviction.base import Evidence
from bidbrain.model import (
    BID_DELTAS,
    Action,
    Holding,
    Limits,
    Observation,
    Offer,
    ReliableMachines,
    ScalingModel,
)
from pricing_data.model.market import Market
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour

NOW = Instant(1_465_000_000)
COUNTS = 4


@dataclass(frozen=True)
class Tabled:
    """A fitted model that is its tables."""

    tables: BetaTables

    def survival_batch(self, markets: tuple[Market, ...]) -> SurvivalBatch:
        return self.tables.survival_batch(markets)

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        return self._ask(market, bid_delta, age_s, horizon_s)[0]

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        return 1.0 - self.survival(market, bid_delta, age_s, horizon_s)

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        return Seconds(self._ask(market, bid_delta, age_s, horizon_s)[1])

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        """The tables end at some horizon; no decision asks for more."""
        return None

    def _ask(self, market: Market, *question: float) -> tuple[float, float]:
        first = np.array([0])
        survival, uptime = self.tables.survival_batch((market,)).survival_and_uptime(
            first, *(np.array([q]) for q in question)
        )
        return float(survival[0]), float(uptime[0])

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        return Evidence(Seconds(1e6), Seconds(1e6))


def main() -> None:
    """Print the time of a decision beside its reference."""
    print(f"seed 0; {COUNTS} counts x {len(BID_DELTAS)} bid deltas per market; the best of 25")
    for markets in (1, 100, 10_000):
        observation = _observation(markets, np.random.default_rng(0))
        decision = decide(observation)
        assert decision.action is Action.ACQUIRE
        assert decision.considered == markets * COUNTS * len(BID_DELTAS)
        took, busy = _best(partial(decide, observation))
        values = np.random.default_rng(0).random((2, decision.considered))
        divided, _ = _best(partial(np.divide, *values))
        print(
            f"{markets:>6} markets: {took * 1e3:8.2f} ms, {busy * 1e3:6.2f} ms of processor time; "
            f"a division each {divided * 1e3:8.3f} ms, "
            f"{took / divided:7.0f} times that"
        )


def _best(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor: they differ where others are at work too."""
    times = []
    for _ in range(25):
        began, busy = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - began, time.process_time() - busy))
    return min(took for took, _ in times), min(busy for _, busy in times)


def _observation(count: int, rng: np.random.Generator) -> Observation:
    """A footprint of four allocations, and ``count`` markets with prices around four cents."""
    markets = [
        Market("aws", f"region-{n % 20:02}", f"zone-{n % 60:02}", f"kind-{n:05}") for n in range(count)
    ]
    prices = rng.uniform(0.03, 0.06, count).round(4)
    offers = tuple(
        Offer(market, UsdPerHour(float(price)), UsdPerHour(0.2), 4)
        for market, price in zip(markets, prices, strict=True)
    )
    held = tuple(
        Holding(f"s{n}", markets[0], 4, 4, UsdPerHour(0.1), UsdPerHour(0.05), Instant(NOW + 900 * n), 4, NOW)
        for n in range(1, 5)
    )
    return Observation(
        now=NOW,
        rules=AWS_2016,
        reliable=ReliableMachines(1, UsdPerHour(0.2), 4),
        footprint=held,
        offers=offers,
        limits=Limits(64, COUNTS),
        scaling=ScalingModel(0.98, Seconds(30), Seconds(60), 1, 15),
        evictions=Tabled(_tables(count, rng)),
    )


def _tables(count: int, rng: np.random.Generator) -> BetaTables:
    """Survival that falls with the horizon, from a hazard that falls with the delta."""
    deltas = np.array([0.0, *BID_DELTAS])
    horizons = np.array(HORIZONS_S, dtype=np.float64)
    hazard = rng.uniform(0.2, 2.0, (count, 1, 1)) / (1 + 100 * deltas[:, None]) / HOUR_S
    survival = np.exp(-hazard * horizons)
    return BetaTables(deltas, horizons, survival, (1 - survival) / hazard, np.ones(count, np.bool_))


if __name__ == "__main__":
    main()
