"""Small observations for tests: a market, a fitted model that answers as told, an observation around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bidbrain.eviction.base import Evidence
from bidbrain.model import Holding, Limits, Observation, Offer, ReliableMachines, ScalingModel
from pricing_data.model.market import Market
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour

NOW = Instant(1_000_000_000)
XLARGE = Market("aws", "us-east-1", "us-east-1a", "c4.xlarge")
DOUBLE = Market("aws", "us-east-1", "us-east-1b", "c4.2xlarge")


@dataclass(frozen=True)
class Told:
    """A fitted model by decree: one beta for every horizon of up to an hour, evictions half-way through it.

    Beyond that each hour is like the first.
    ``betas`` by (market, delta) override ``beta``; markets of ``unknown`` have no history.
    """

    beta: float = 0.0
    betas: Mapping[tuple[Market, float], float] = field(default_factory=dict)
    unknown: frozenset[Market] = frozenset()

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        return 1 - self.eviction_probability(market, bid_delta, age_s, horizon_s)

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        if bid_delta < 0 or market in self.unknown:
            return 1.0
        beta = self.betas.get((market, bid_delta), self.beta)
        return 1.0 - float((1.0 - beta) ** max(horizon_s / HOUR_S, 1.0))

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        if bid_delta < 0 or market in self.unknown:
            return Seconds(0)
        beta = self.betas.get((market, bid_delta), self.beta)
        within = min(horizon_s, HOUR_S) * (1 - beta / 2)
        if horizon_s <= HOUR_S:
            return Seconds(within)
        hours = horizon_s / HOUR_S
        return Seconds(within * (hours if beta == 0 else (1 - (1 - beta) ** hours) / beta))

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        return None

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        return Evidence(Seconds(HOUR_S * 100), Seconds(0 if market in self.unknown else HOUR_S * 99))


IDEAL = ScalingModel(phi=1.0, sigma_s=Seconds(0), lambda_s=Seconds(0), stage2_above=1, stage3_above=15)


def offer(
    market: Market, price: float, *, cores: int = 4, on_demand: float = 0.2, is_open: bool = True
) -> Offer:
    return Offer(market, UsdPerHour(price), UsdPerHour(on_demand), cores, is_open)


def holding(
    name: str,
    market: Market = XLARGE,
    *,
    count: int = 4,
    price: float = 0.05,
    bid: float = 0.1,
    left_s: int = HOUR_S,
) -> Holding:
    """``count`` instances of 4 cores that have ``left_s`` seconds of their first hour left."""
    return Holding(
        id=name,
        market=market,
        count=count,
        cores=4,
        bid=UsdPerHour(bid),
        price=UsdPerHour(price),
        hour_ends=Instant(NOW + left_s),
        counts_for=count,
        started=Instant(NOW + left_s - HOUR_S),
    )


def observe(
    *footprint: Holding,
    offers: tuple[Offer, ...] = (),
    evictions: Told | None = None,
    reliable: ReliableMachines | None = None,
    scaling: ScalingModel = IDEAL,
    limits: Limits | None = None,
) -> Observation:
    return Observation(
        now=NOW,
        rules=AWS_2016,
        reliable=reliable or ReliableMachines(1, UsdPerHour(0.2), 4),
        footprint=footprint,
        offers=offers or (offer(XLARGE, 0.05),),
        limits=limits or Limits(max_instances=64, max_per_allocation=4),
        scaling=scaling,
        evictions=evictions or Told(),
    )
