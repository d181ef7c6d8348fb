"""Of all the published eviction rates the store has, the one that speaks for a market now.

A figure for the market's own zone goes before one for its whole region; then the newest. Bands (Spot
Advisor, Azure) already speak of a month or a day: the newest counts. Figures (GCP, daily) are noisy: those of
the last 30 days are averaged by time. Rates older than the newest of their source by more than that are
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pricing_data.batch import Rate
from pricing_data.market import Market
from spotctl.prices.estimates import Hazard

_WINDOW_S: Final = 30 * 86400


@dataclass(frozen=True, slots=True)
class Rates:
    """``by_market``: rates with a zone as they stand, rates of a region with the region as zone."""

    by_market: Mapping[Market, Hazard]

    @classmethod
    def of(cls, published: Iterable[tuple[str, Rate]]) -> Rates:
        """From pairs of source and rate."""
        found: dict[Market, dict[str, list[Rate]]] = {}
        for source, rate in published:
            found.setdefault(rate.market, {}).setdefault(source, []).append(rate)
        return cls({market: _newest(sources) for market, sources in found.items()})

    def of_market(self, market: Market) -> Hazard | None:
        """None where nobody published any."""
        exact = self.by_market.get(market)
        if exact is not None:
            return exact
        return self.by_market.get(Market(market.cloud, market.region, market.region, market.instance_type))


def _newest(sources: Mapping[str, list[Rate]]) -> Hazard:
    source, rates = max(sources.items(), key=lambda named: (max(rate.end for rate in named[1]), named[0]))
    last = max(rates, key=lambda rate: (rate.end, rate.observed))
    if last.low < last.high:
        return Hazard(last.low, last.high, last.per_s, source)
    recent = [
        rate
        for rate in rates
        if rate.end > last.end - _WINDOW_S and rate.low == rate.high and rate.per_s == last.per_s
    ]
    spans = [rate.end - rate.begin for rate in recent]
    mean = sum(rate.low * span for rate, span in zip(recent, spans, strict=True)) / sum(spans)
    return Hazard(mean, mean, last.per_s, source)
