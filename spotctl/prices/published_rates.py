"""Selects the published eviction rate that applies to a market now.

A figure for the market's own zone precedes one for its whole region. The store has reduced the figures for
each to one rate, averaged over ``AVERAGED_S``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pricing_data.formats.batches import Rate
from pricing_data.model.market import Market
from spotctl.prices.estimates import PublishedRate

AVERAGED_S: Final = 30 * 86400
"""GCP's figures are daily, and noisy."""


@dataclass(frozen=True, slots=True)
class PublishedRates:
    """Holds ``by_market``: rates of a zone under their zone, rates of a region with the region as zone."""

    by_market: Mapping[Market, PublishedRate]

    @classmethod
    def from_pairs(cls, published: Iterable[tuple[str, Rate]]) -> PublishedRates:
        """Builds them from pairs of source and rate, one for each market."""
        return cls(
            {
                rate.market: PublishedRate(rate.low, rate.high, rate.per_s, source, rate.end)
                for source, rate in published
            }
        )

    def of_market(self, market: Market) -> PublishedRate | None:
        """Returns the rate that applies to ``market``; None where none is published."""
        exact = self.by_market.get(market)
        if exact is not None:
            return exact
        return self.by_market.get(Market(market.cloud, market.region, market.region, market.instance_type))
