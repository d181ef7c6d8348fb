"""Estimates mean time to failure, for schemes that checkpoint or move by it (TierML 3.4).

    h      horizon_s     how far ahead an estimate looks
    T                    time to eviction
    beta   1 - survival  P(T < h)
    M      mttf_s        mean time between failures
    1/M    failure_rate  failures per second

Most lifetimes are censored, so their mean is unknown. Time at risk per failure is known:

    M = E[min(T, h)] / beta

It equals the mean where failures come at a constant rate. Callers compare rates, not times: a market without
any observed failure has rate 0, and needs no infinite time. Knows no prices and no money.
"""

from __future__ import annotations

import math
import statistics
from typing import Final

from bidbrain.bidding.decision_batch import MarketSetup
from bidbrain.eviction.base import FittedMarkets
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import HOUR_S, Instant, Seconds

HORIZON_S: Final = 24 * HOUR_S
"""A day: long enough to show the failures that a job of a day would meet."""


def failure_rate(
    evictions: FittedMarkets,
    market: Market,
    bid_delta: float,
    age_s: float = 0.0,
    horizon_s: float = HORIZON_S,
) -> float:
    """Returns failures per second of a machine ``age_s`` old, with its bid ``bid_delta`` $/h above the price.

    Infinite in a market that ``evictions`` knows nothing of.
    """
    beta = evictions.eviction_probability(market, bid_delta, age_s, horizon_s)
    uptime_s = evictions.expected_uptime(market, bid_delta, age_s, horizon_s)
    # Unknown markets, and evictions under way, have uptime 0.
    return beta / uptime_s if uptime_s > 0 else math.inf


def typical_mttf_s(
    setting: MarketSetup, fitted: FittedMarkets, history: PriceHistory, now: Instant
) -> Seconds:
    """Returns the median M over all markets, of machines bid at their list price; a day at most.

    Skips markets that cost more than their list price now. A day where that leaves none.
    """
    lasting = []
    for market, listed in zip(setting.markets, setting.on_demand.tolist(), strict=True):
        price = history.price(market, now)
        if price is not None and price <= listed:
            # An hour's window needs less history than a day's: starts in all but the last hour count.
            lasting.append(mttf_s(fitted, market, listed - price, horizon_s=HOUR_S))
    return Seconds(min(statistics.median(lasting or [HORIZON_S]), HORIZON_S))


def mttf_s(
    evictions: FittedMarkets,
    market: Market,
    bid_delta: float,
    age_s: float = 0.0,
    horizon_s: float = HORIZON_S,
) -> Seconds:
    """Returns M in seconds, the inverse of ``failure_rate``: infinite without failures, 0 if unknown."""
    rate = failure_rate(evictions, market, bid_delta, age_s, horizon_s)
    return Seconds(1 / rate if rate > 0 else math.inf)
