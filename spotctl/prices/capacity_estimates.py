"""Estimates evictions from the capacity observed in a market.

In markets whose prices do not evict a machine is lost with its capacity, and observations of that say
more than any published rate. The estimator is the one that decides for running jobs
(``bidbrain.eviction.selector``), fitted as of the newest sighting in the cloud; it starts from a published
rate. Says nothing of unobserved markets: their published rates do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bidbrain.eviction.base import Estimates
from bidbrain.eviction.capacity.published_rates import Band
from bidbrain.eviction.selector import EstimatorSelector
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, MarketRules, PriceHistory
from pricing_data.model.units import Instant
from spotctl.prices.published_rates import PublishedRates


@dataclass(frozen=True, slots=True)
class CapacityEstimates:
    """Holds all spells that the store has, and what is published."""

    observations: Observations
    rates: PublishedRates
    _fitted: dict[str, Estimates] = field(default_factory=dict, repr=False, compare=False)

    def seen_until(self, market: Market) -> Instant | None:
        """Returns until when ``market`` was observed; None where it never was."""
        spells = self.observations.spells(market)
        return Instant(int(spells.ends.max())) if len(spells) else None

    def fitted_estimates(self, market: Market, rules: MarketRules) -> Estimates:
        """Returns estimates for ``market``, which was observed, under ``rules`` by which prices do not
        evict.
        """
        if rules.name not in self._fitted:
            self._fitted[rules.name] = self._fit_cloud(market.cloud, rules)
        return self._fitted[rules.name]

    def _fit_cloud(self, cloud: str, rules: MarketRules) -> Estimates:
        markets = [market for market in self.observations.markets if market.cloud == cloud]
        mine = Observations.from_spells({market: self.observations.spells(market) for market in markets})
        now = Instant(max(int(mine.spells(market).ends.max()) for market in markets))
        bands = {
            market: band for market in markets if (band := self._published_band(market, now)) is not None
        }
        return EstimatorSelector(rules, mine, bands).fit(PriceHistory.from_series({}), now)

    def _published_band(self, market: Market, now: Instant) -> Band | None:
        """Returns the published rate, as a prior; it may have been published after the last sighting."""
        rate = self.rates.of_market(market)
        if rate is None:
            return None
        return Band(rate.low, rate.high, rate.per_s, min(rate.until, now), rate.source)
