"""Answers from one hazard curve per market: what every estimator of capacity gives once it is fitted.

Prices play no part here: a bid not below the price is as good as any other. Knows nothing of how the curves
were learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from bidbrain.eviction.base import Beta, Evidence
from bidbrain.eviction.capacity.hazard import MarketCurve, beta_limits
from bidbrain.eviction.capacity.vectorized_curves import CurveSurvivals
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import Instant, Seconds

NO_EVIDENCE = Evidence(Seconds(0.0), Seconds(0.0), "nothing is known of this market")


class CurveModel(Protocol):
    """Describes an estimator of capacity before it has seen anything."""

    def fit(self, history: PriceHistory, now: Instant) -> FittedCurves:
        """See ``MarketModel.fit``."""
        ...


@dataclass(frozen=True, slots=True)
class FittedCurves:
    """Answers from curves. ``learn`` returns a market's curve, or None where nothing is known; cached."""

    learn: Callable[[Market], MarketCurve | None]
    _learned: dict[Market, MarketCurve | None] = field(default_factory=dict, repr=False, compare=False)

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """See ``FittedMarkets.survival``."""
        known = self.market_curve(market)
        if bid_delta < 0 or known is None:
            return 0.0
        return known.curve.survival(known.at_age(age_s), horizon_s)

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """See ``FittedMarkets.eviction_probability``."""
        return 1.0 - self.survival(market, bid_delta, age_s, horizon_s)

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        """See ``FittedMarkets.expected_uptime``."""
        known = self.market_curve(market)
        if bid_delta < 0 or known is None:
            return Seconds(0.0)
        return known.curve.expected_uptime(known.at_age(age_s), horizon_s)

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        """See ``FittedMarkets.median_time_to_eviction``."""
        if bid_delta < 0:
            return Seconds(0.0)
        known = self.market_curve(market)
        return None if known is None else known.curve.median(known.at_age(age_s))

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        """See ``FittedMarkets.evidence``."""
        known = self.market_curve(market)
        return NO_EVIDENCE if known is None else known.evidence

    def beta(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Beta:
        """See ``Estimates.beta``."""
        known = self.market_curve(market)
        if known is None:
            return Beta(1.0, 0.0, 1.0, NO_EVIDENCE)
        if bid_delta < 0:
            return Beta(1.0, 1.0, 1.0, known.evidence)
        hazard = known.curve.hazard_between(known.at_age(age_s), horizon_s)
        low, high = beta_limits(hazard, known.limits)
        return Beta(1.0 - known.curve.survival(known.at_age(age_s), horizon_s), low, high, known.evidence)

    def survival_batch(self, markets: tuple[Market, ...]) -> CurveSurvivals:
        """Answers about ``markets`` in bulk (``decision_batch.BulkMarkets``)."""
        return CurveSurvivals.from_curves([self.market_curve(market) for market in markets])

    def market_curve(self, market: Market) -> MarketCurve | None:
        """Returns what was learned of ``market``; None where nothing is known."""
        if market not in self._learned:
            self._learned[market] = self.learn(market)
        return self._learned[market]
