"""Implements the default: selects an estimator for each market, by the market's rules and past accuracy.

Where the price clears by bid, an eviction is a price crossing, and no other estimator is used. Elsewhere
machines are lost for lack of capacity: the estimators of capacity compete, market by market, on their past
predictions, and the choice is made again every day. A market that none of them knows stays unknown.

Knows no jobs and no money.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bidbrain.eviction.base import Beta, Estimates, Evidence
from bidbrain.eviction.capacity.curves import CurveModel, FittedCurves
from bidbrain.eviction.capacity.lifetime_model import LifetimeModel
from bidbrain.eviction.capacity.pooled import PooledModel
from bidbrain.eviction.capacity.published_rates import Band, BandModel
from bidbrain.eviction.capacity.regime_hazard import RegimeHazard
from bidbrain.eviction.capacity.vectorized_curves import CurveSurvivals
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.eviction.scoring import FitAt, choose_estimator
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, MarketRules, PriceHistory
from pricing_data.model.units import Instant, Seconds

_CHOSEN_EVERY_S: Final = 86400


@dataclass(frozen=True, slots=True)
class EstimatorSelector:
    """Configures the default model under ``rules``: observed capacity, and rates that clouds publish."""

    rules: MarketRules
    observations: Observations = field(default_factory=Observations)
    bands: Mapping[Market, Band] = field(default_factory=dict)
    # Shared by the models of ``with_observations``: a run that sees machines come and go keeps its choices.
    _choices: dict[tuple[Market, int], str] = field(default_factory=dict, repr=False, compare=False)

    def with_observations(self, observations: Observations) -> EstimatorSelector:
        """Returns the same model with ``observations`` in place of its own."""
        return EstimatorSelector(self.rules, observations, self.bands, self._choices)

    def fit(self, history: PriceHistory, now: Instant) -> Estimates:
        """Learns from prices, spells and bands as known at ``now``."""
        if self.rules.cleared_by_bid:
            return PriceCrossing().fit(history, now)
        return FittedSelector(self, self.candidate_models(), history, now)

    def candidate_models(self) -> Mapping[str, CurveModel]:
        """Returns the estimators of capacity by name, the most trusted first while none has a record."""
        return {
            "conditioned": RegimeHazard(self.observations),
            "lifetimes": LifetimeModel(self.observations),
            "bands": BandModel(self.bands, self.observations),
            "pooled": PooledModel(self.observations),
        }

    def choose_for(self, fits: Mapping[str, FitAt], market: Market, day: Instant) -> str:
        """Returns the name of the one of ``fits`` that predicted ``market`` best before ``day``; cached."""
        # Without outcomes in this market nothing can be compared, so the most trusted candidate answers.
        if not len(self.observations.spells(market)):
            return next(iter(fits))
        key = (market, int(day))
        if key not in self._choices:
            self._choices[key] = choose_estimator(fits, self.observations, market, day)
        return self._choices[key]


@dataclass(frozen=True, slots=True)
class FittedSelector:
    """Answers with the estimator chosen for each market, or the next one that knows the market."""

    model: EstimatorSelector
    candidates: Mapping[str, CurveModel]
    history: PriceHistory
    now: Instant
    # Markets are scored at the same moments of the past, so one fit per moment serves all of them.
    _fitted: dict[tuple[str, Instant], FittedCurves] = field(default_factory=dict, repr=False, compare=False)
    _chosen: dict[Market, FittedCurves] = field(default_factory=dict, repr=False, compare=False)

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """See ``FittedMarkets.survival``."""
        return self._estimator_for(market).survival(market, bid_delta, age_s, horizon_s)

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """See ``FittedMarkets.eviction_probability``."""
        return self._estimator_for(market).eviction_probability(market, bid_delta, age_s, horizon_s)

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        """See ``FittedMarkets.expected_uptime``."""
        return self._estimator_for(market).expected_uptime(market, bid_delta, age_s, horizon_s)

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        """See ``FittedMarkets.median_time_to_eviction``."""
        return self._estimator_for(market).median_time_to_eviction(market, bid_delta, age_s)

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        """See ``FittedMarkets.evidence``; the source names the estimator."""
        return self._estimator_for(market).evidence(market, horizon_s)

    def beta(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Beta:
        """See ``Estimates.beta``."""
        return self._estimator_for(market).beta(market, bid_delta, age_s, horizon_s)

    def survival_batch(self, markets: tuple[Market, ...]) -> CurveSurvivals:
        """Answers about ``markets`` in bulk (``decision_batch.BulkMarkets``)."""
        return CurveSurvivals.from_curves(
            [self._estimator_for(market).market_curve(market) for market in markets]
        )

    def _estimator_for(self, market: Market) -> FittedCurves:
        if market not in self._chosen:
            # The choice is that of midnight, so all decisions of a day use the same estimator.
            day = Instant(self.now - self.now % _CHOSEN_EVERY_S)
            fits = {name: partial(self._fit_candidate, name) for name in self.candidates}
            first = self.model.choose_for(fits, market, day)
            # The chosen one first, then the others by trust.
            names = [first, *(name for name in self.candidates if name != first)]
            known = (name for name in names if fits[name](self.now).market_curve(market) is not None)
            self._chosen[market] = fits[next(known, first)](self.now)
        return self._chosen[market]

    def _fit_candidate(self, name: str, at: Instant) -> FittedCurves:
        if (name, at) not in self._fitted:
            self._fitted[name, at] = self.candidates[name].fit(self.history, at)
        return self._fitted[name, at]
