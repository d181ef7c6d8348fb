"""Estimates each market from its own lifetimes alone, in one of the forms of ``lifetimes.py``.

Does not borrow from other markets (``pooled.py`` does) and ignores prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.eviction.base import Evidence
from bidbrain.eviction.capacity.curves import FittedCurves
from bidbrain.eviction.capacity.hazard import MarketCurve, gamma_limits
from bidbrain.eviction.capacity.lifetimes import Fit, kaplan_meier
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import Instant, Seconds


@dataclass(frozen=True, slots=True)
class LifetimeModel:
    """Configures the estimator: the form, and all known spells; a fit sees those before its now.

    Markets with fewer than ``least_losses`` are unknown: half the form would be made up.
    """

    observations: Observations
    form: Fit = kaplan_meier
    least_losses: int = 5

    def fit(self, history: PriceHistory, now: Instant) -> FittedCurves:
        """Learns from the spells as known at ``now``; ignores prices."""
        known = self.observations.as_of(now)
        return FittedCurves(lambda market: self._fit_curve(known, market, now))

    def _fit_curve(self, known: Observations, market: Market, now: Instant) -> MarketCurve | None:
        spells = known.spells(market)
        ages = (spells.ends - spells.begins).astype(np.float64)
        # A spell of no length has no age to learn from.
        seen = ages > 0
        losses = int(np.count_nonzero(spells.lost & seen))
        if losses < self.least_losses:
            return None
        span_s = Seconds(float(now - spells.begins[0]))
        source = f"{losses} losses among {len(spells)} lifetimes seen here"
        return MarketCurve(
            curve=self.form(ages[seen], spells.lost[seen]),
            limits=gamma_limits(losses),
            evidence=Evidence(
                span_s, Seconds(min(float(ages.sum()), span_s)), source, Instant(int(spells.ends.max()))
            ),
            kept_s=spells.kept_s(now),
        )
