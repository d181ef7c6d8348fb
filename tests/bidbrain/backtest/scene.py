"""A small random market and a job in it, for tests of the backtests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.backtest.beta_grid import BetaTables
from bidbrain.backtest.job import Accounting, BacktestJob
from bidbrain.backtest.price_tape import PriceTape
from bidbrain.bidding.decision_batch import Codes, MarketSetup
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import Limits, ReliableMachines, ScalingModel
from pricing_data.model.market import Market, MarketRules, PriceHistory, Series
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour

NOW = Instant(1_465_000_000)
MARKETS = tuple(Market("aws", "us-east-1", f"us-east-1{zone}", "m4.xlarge") for zone in "ab")
LASTS_S = 40 * HOUR_S


@dataclass(frozen=True, eq=False)
class Scene:
    setting: MarketSetup
    history: PriceHistory
    tape: PriceTape
    tables: BetaTables
    job: BacktestJob
    starts: Codes


def scene(
    seed: int, *, jobs: int = 12, rules: MarketRules = AWS_2016, accounting: Accounting = Accounting.LEDGER
) -> Scene:
    """Two markets of four cores that move every few minutes and spike now and then; jobs of two hours."""
    rng = np.random.default_rng(seed)
    history = PriceHistory.from_series({market: _series(rng) for market in MARKETS})
    setting = MarketSetup(
        markets=MARKETS,
        cores=np.array([4.0, 4.0]),
        on_demand=np.array([0.239, 0.239]),
        rules=rules,
        reliable=ReliableMachines(1, UsdPerHour(0.12), 2),
        limits=Limits(max_instances=8, max_per_allocation=4),
        scaling=ScalingModel(0.98, Seconds(30), Seconds(60), stage2_above=1, stage3_above=4),
    )
    end = Instant(NOW + LASTS_S)
    fitted = PriceCrossing().fit(history.as_of(NOW), NOW)
    return Scene(
        setting=setting,
        history=history,
        tape=PriceTape.from_history(history, MARKETS, NOW, end),
        tables=BetaTables.from_fitted(fitted, MARKETS, setting.limits.bid_deltas),
        job=BacktestJob(work=8 * 4 * 2 * HOUR_S, boot_s=60, accounting=accounting),
        starts=np.sort(rng.integers(NOW, end - 20 * HOUR_S, jobs)),
    )


def _series(rng: np.random.Generator) -> Series:
    times = NOW - 60 * HOUR_S + np.cumsum(rng.integers(60, 900, size=800))
    prices = 0.035 + np.abs(np.cumsum(rng.normal(0, 0.0006, size=len(times)))) % 0.02
    for begins in rng.integers(0, len(times) - 5, size=25):
        prices[begins : begins + int(rng.integers(1, 4))] = rng.uniform(0.05, 1.0)
    return Series(times.astype(np.int64), np.round(prices, 4))
