"""Evictions at a constant rate, for markets whose prices do not show them.

    r       rate       evictions per second of running
    S(h)    survival   exp(-r h)
    E[min(T, h)]       (1 - exp(-r h)) / r, the integral of S
    median             ln 2 / r

Memoryless on purpose: published figures (AWS's monthly share of interrupted instances, Azure's hourly
eviction rate) say nothing about age or bid. Where evictions do depend on age, as at the end of a maximum
lifetime, this is a prior at best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bidbrain.eviction.base import Evidence
from pricing_data.market import Market, PriceHistory
from pricing_data.units import Instant, Seconds


def rate_of(share: float, within_s: float) -> float:
    """Evictions per second, where ``share`` of the machines are evicted within ``within_s`` seconds.

    >>> round(3600 * rate_of(0.05, within_s=3600), 4)
    0.0513
    """
    if not 0 <= share < 1 or within_s <= 0:
        raise ValueError(f"a share in [0, 1) within a positive time, not {share} within {within_s} s")
    return -math.log1p(-share) / within_s


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Rates are given, in evictions per second, and nothing is learned: it is its own fit."""

    rates: Mapping[Market, float]
    observed_s: Seconds
    """How long the published figures were collected for; the evidence."""

    def fit(self, history: PriceHistory, now: Instant) -> ConstantRate:
        """Itself: prices say nothing here."""
        return self

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """exp(-r h)."""
        rate = self._rate(market, bid_delta)
        return 0.0 if rate is None else math.exp(-rate * horizon_s)

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """Beta: 1 - exp(-r h)."""
        rate = self._rate(market, bid_delta)
        return 1.0 if rate is None else -math.expm1(-rate * horizon_s)

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        """(1 - exp(-r h)) / r; the horizon where nothing is ever evicted."""
        rate = self._rate(market, bid_delta)
        if rate is None:
            return Seconds(0.0)
        return Seconds(-math.expm1(-rate * horizon_s) / rate if rate > 0 else horizon_s)

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        """ln 2 / r; None where nothing is ever evicted, or nothing is known."""
        if bid_delta < 0:
            return Seconds(0.0)
        rate = self._rate(market, bid_delta)
        return Seconds(math.log(2) / rate) if rate else None

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        """All of the time observed, or none."""
        return Evidence(self.observed_s, self.observed_s if market in self.rates else Seconds(0.0))

    def _rate(self, market: Market, bid_delta: float) -> float | None:
        """None where the eviction is under way or nothing is known: both are survival 0."""
        return None if bid_delta < 0 else self.rates.get(market)
