"""Estimates mean time to failure, for schemes that checkpoint or move by it (TierML 3.4).

    h      horizon_s     how far ahead an estimate looks
    T                    time to eviction
    beta   1 - survival  P(T < h)
    M      mttf_s        mean time between failures
    1/M    failure_rate  failures per second

Most lifetimes are censored, so their mean cannot be taken; time at risk over failures can,

    M = E[min(T, h)] / beta

and equals the mean exactly where failures come at a constant rate. Rates compare better than times: a market
that was never seen to fail has rate 0. Knows no prices and no money.
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
"""Long enough to include the failures of a day's job; shorter histories say nothing."""


def failure_rate(
    evictions: FittedMarkets,
    market: Market,
    bid_delta: float,
    age_s: float = 0.0,
    horizon_s: float = HORIZON_S,
) -> float:
    """Returns failures per second of a machine of that age whose bid is ``bid_delta`` above the price.

    Infinite where nothing is known, like every pessimistic answer of ``evictions``.
    """
    beta = evictions.eviction_probability(market, bid_delta, age_s, horizon_s)
    uptime_s = evictions.expected_uptime(market, bid_delta, age_s, horizon_s)
    return beta / uptime_s if uptime_s > 0 else math.inf


def typical_mttf_s(
    setting: MarketSetup, fitted: FittedMarkets, history: PriceHistory, now: Instant
) -> Seconds:
    """Returns the median M over the markets of machines bid at their list price, by one hour's evictions.

    At most a day. Markets above their list price now do not count; a day where there is no other.
    """
    lasting = []
    for market, listed in zip(setting.markets, setting.on_demand.tolist(), strict=True):
        price = history.price(market, now)
        if price is not None and price <= listed:
            lasting.append(mttf_s(fitted, market, listed - price, horizon_s=HOUR_S))
    return Seconds(min(statistics.median(lasting or [HORIZON_S]), HORIZON_S))


def mttf_s(
    evictions: FittedMarkets,
    market: Market,
    bid_delta: float,
    age_s: float = 0.0,
    horizon_s: float = HORIZON_S,
) -> Seconds:
    """Returns M, the inverse of ``failure_rate``: infinite without failures, 0 where nothing is known."""
    rate = failure_rate(evictions, market, bid_delta, age_s, horizon_s)
    return Seconds(1 / rate if rate > 0 else math.inf)
