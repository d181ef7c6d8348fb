"""Estimates from published eviction rates, until a market's own losses say more.

    l, u        ends of the published band, as hazards: -log(1 - share) / period
    m           what the band is read as, between them
    O, T        losses seen here, and machine-seconds watched
    T0          what a band is worth: one machine-day of watching
    hazard      (m T0 + O) / (T0 + T)

A month's band says how many of some machines were interrupted, but not for how long they ran. Read as a
hazard it is a floor more than a rate: probes of 2023 lost a machine within hours where the band said "more
than 20 % a month". A gamma prior as narrow as the band would resist hundreds of observed losses; hence T0.
Alone, a band gives its own ends as the interval. Knows no ages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bidbrain.eviction.base import Evidence
from bidbrain.eviction.capacity.curves import FittedCurves
from bidbrain.eviction.capacity.hazard import HazardCurve, MarketCurve, gamma_limits
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import Instant, Seconds

_NEARLY_ALL: Final = 0.95
"""Replaces an upper end of 100 %: a hazard has to be finite."""
_WORTH_S: Final = 86400.0
"""T0."""
_LEAST: Final = 0.01
"""Share that is assumed where a band says that nothing is ever evicted: the narrowest bands are of 5 %."""


@dataclass(frozen=True, slots=True)
class Band:
    """States that ``low`` to ``high`` of machines were evicted in ``per_s`` seconds, as published ``at``."""

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

    @property
    def hazards(self) -> tuple[float, float, float]:
        """Returns (l, m, u) per second. m is the middle.

        Twice l where the band has no upper end but everything.
        """
        low, high = (
            -math.log1p(-min(end, _NEARLY_ALL)) / self.per_s for end in (self.low, max(self.high, _LEAST))
        )
        # An open band ("more than 20 %") has no middle; twice its lower end stands for it.
        is_open = self.high >= 1.0 and 0 < self.low < _NEARLY_ALL
        return low, min(2 * low, high) if is_open else (low + high) / 2, high


@dataclass(frozen=True, slots=True)
class BandModel:
    """Configures the estimator.

    Bands by market (a region's has the region as its zone), and all known spells.
    """

    published: Mapping[Market, Band]
    observations: Observations = field(default_factory=Observations)

    def fit(self, history: PriceHistory, now: Instant) -> FittedCurves:
        """Learns from bands published and spells known at ``now``; ignores prices."""
        known = self.observations.as_of(now)
        return FittedCurves(lambda market: self._fit_curve(known, market, now))

    def _fit_curve(self, known: Observations, market: Market, now: Instant) -> MarketCurve | None:
        regional = replace(market, zone=market.region)
        band = self.published.get(market) or self.published.get(regional)
        # A band published later must not be known in a replay.
        if band is None or band.at > now:
            return None
        low, middle, high = band.hazards
        spells = known.spells(market)
        losses = int(np.count_nonzero(spells.lost))
        watched_s = float((spells.ends - spells.begins).sum())
        # The band counts as one machine-day of watching, the market's own losses as what they are.
        hazard = (middle * _WORTH_S + losses) / (_WORTH_S + watched_s)
        alone = (low / hazard, high / hazard)
        source = band.source if not len(spells) else f"{band.source}, and {losses} losses seen here"
        newest = max(int(band.at), int(spells.ends.max())) if len(spells) else int(band.at)
        return MarketCurve(
            curve=HazardCurve.with_constant_rate(hazard),
            limits=gamma_limits(losses) if losses else (min(alone[0], 1.0), max(alone[1], 1.0)),
            evidence=Evidence(
                Seconds(_WORTH_S + watched_s), Seconds(_WORTH_S + watched_s), source, Instant(newest)
            ),
        )
