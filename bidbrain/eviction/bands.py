"""Published eviction rates as a prior, that a market's own losses correct.

    l, u        ends of the published band, as hazards: -log(1 - share) / period
    m, k        mean and shape of the gamma prior on the hazard that the band is read as
    O, T        losses seen here, and machine-seconds watched
    hazard      (k + O) / (k / m + T), a gamma of shape k + O

A month's band says how many of some machines were interrupted, run for nobody says how long: read as a hazard
it is a floor more than a rate (probes of 2023 lost a machine within hours where the band said "more than 20 %
a month"). Hence wide priors: a few losses outweigh them. Refuses to know ages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bidbrain.eviction.base import Evidence
from bidbrain.eviction.curves import FittedCurves, MarketCurve
from bidbrain.eviction.hazard import HazardCurve, gamma_limits
from pricing_data.market import Market, PriceHistory
from pricing_data.spells import Observations
from pricing_data.units import Instant, Seconds

_NEARLY_ALL: Final = 0.95
"""Where the upper end is everything, or a figure says so: a hazard has to be finite."""
_WIDEST, _NARROWEST = 1.0, 4.0
"""Shapes of the prior: of a band without an end, and of a single figure (a factor of two either way)."""
_Z: Final = 1.959964


@dataclass(frozen=True, slots=True)
class Band:
    """Between ``low`` and ``high`` of the machines were evicted in ``per_s`` seconds, as published ``at``."""

    low: float
    high: float
    per_s: float
    at: Instant
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1 or self.per_s <= 0:
            raise ValueError(
                f"a band lies within [0, 1] for a period above 0 s, not {self.low} to {self.high} "
                f"for {self.per_s} s"
            )

    def prior(self) -> tuple[float, float]:
        """(mean hazard per second, shape)."""
        low, high = (-math.log1p(-min(end, _NEARLY_ALL)) / self.per_s for end in (self.low, self.high))
        if self.high >= 1.0:
            return 2.0 * max(low, high / 10), _WIDEST
        if high == 0:
            return 1.0 / (_NARROWEST * self.per_s), _WIDEST
        if low == 0:
            return high / 2, _WIDEST
        width = math.log(high / low)
        shape = (2 * _Z / width) ** 2 if width > 0 else _NARROWEST
        return (low + high) / 2, min(max(shape, _WIDEST), _NARROWEST)


@dataclass(frozen=True, slots=True)
class Bands:
    """Configuration: bands by market (a region's has the region as its zone), and all spells there are."""

    published: Mapping[Market, Band]
    observations: Observations = field(default_factory=Observations)

    def fit(self, history: PriceHistory, now: Instant) -> FittedCurves:
        """Bands published and spells known at ``now``; prices are not looked at."""
        known = self.observations.as_of(now)
        return FittedCurves(lambda market: self._curve(known, market, now))

    def _curve(self, known: Observations, market: Market, now: Instant) -> MarketCurve | None:
        regional = replace(market, zone=market.region)
        band = self.published.get(market) or self.published.get(regional)
        if band is None or band.at > now:
            return None
        mean, shape = band.prior()
        spells = known.spells(market)
        losses = int(np.count_nonzero(spells.lost))
        watched_s = float((spells.ends - spells.begins).sum())
        hazard = (shape + losses) / (shape / mean + watched_s)
        source = band.source if not len(spells) else f"{band.source}, and {losses} losses seen here"
        newest = max(int(band.at), int(spells.ends.max())) if len(spells) else int(band.at)
        return MarketCurve(
            curve=HazardCurve.constant(hazard),
            limits=gamma_limits(shape + losses),
            evidence=Evidence(
                Seconds(band.per_s + watched_s), Seconds(band.per_s + watched_s), source, Instant(newest)
            ),
        )
