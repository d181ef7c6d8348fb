"""Reports what the store has and what is wrong with it, by cloud and region: for ``prices status``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pricing_data.model.units import Instant
from pricing_data.store.findings import StoreFinding
from pricing_data.store.store import PriceStore
from spotctl.prices.quotes import GONE, Quote, list_quotes


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """Describes one region of one cloud."""

    cloud: str
    region: str
    markets: int
    rows: int
    first: Instant
    last: Instant
    observed: Instant
    gone: int
    """Markets that are no longer listed."""
    doubted: int
    """Markets whose newest row failed a check."""
    stale: int
    believed: tuple[tuple[str, int], ...]
    """Sources, and for how many markets each gives the current price."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """Names several sources of the same markets, and which of them is believed there."""

    believed: str
    others: tuple[str, ...]
    markets: int


@dataclass(frozen=True, slots=True)
class StoreStatus:
    corners: tuple[RegionStatus, ...]
    disputes: tuple[Dispute, ...]
    findings: tuple[StoreFinding, ...]
    rates: int
    """Number of published eviction rates."""
    probes: int
    lifetimes: int
    """Number of observed lifetimes."""

    @property
    def quarantined_rows(self) -> int:
        return sum(finding.count for finding in self.findings if finding.kind.is_quarantining)


def read_store_status(
    store: PriceStore, now: Instant, clouds: Sequence[str] = (), regions: Sequence[str] = ()
) -> StoreStatus:
    """Reports the markets in those clouds and regions; findings are those of their sources."""
    found = [
        quote
        for quote in list_quotes(store)
        if (not clouds or quote.market.cloud in clouds) and (not regions or quote.market.region in regions)
    ]
    by_corner: dict[tuple[str, str], list[Quote]] = {}
    for quote in found:
        by_corner.setdefault((quote.market.cloud, quote.market.region), []).append(quote)
    # Findings are kept by source and not by market, so the filter goes by the sources of those shown.
    sources = {source for quote in found for source in quote.sources}
    everything = not clouds and not regions
    evictions = [found for cloud, found in store.evictions.counts().items() if not clouds or cloud in clouds]
    return StoreStatus(
        corners=tuple(_region_status(*name, members, now) for name, members in sorted(by_corner.items())),
        disputes=_find_disputes(found),
        findings=tuple(f for f in store.quality.findings() if everything or f.source in sources),
        rates=sum(found.rates for found in evictions),
        probes=sum(found.probes for found in evictions),
        lifetimes=sum(found.lifetimes for found in evictions),
    )


def _region_status(cloud: str, region: str, members: Sequence[Quote], now: Instant) -> RegionStatus:
    return RegionStatus(
        cloud=cloud,
        region=region,
        markets=len(members),
        rows=sum(quote.rows for quote in members),
        first=min(quote.first for quote in members),
        last=max(quote.since for quote in members),
        observed=max(quote.observed for quote in members),
        gone=sum(quote.doubt == GONE for quote in members),
        doubted=sum(bool(quote.doubt) and quote.doubt != GONE for quote in members),
        stale=sum(quote.is_stale(now) for quote in members),
        believed=tuple(Counter(quote.source for quote in members).most_common()),
    )


def _find_disputes(found: Iterable[Quote]) -> tuple[Dispute, ...]:
    counts = Counter(quote.sources for quote in found if len(quote.sources) > 1)
    return tuple(Dispute(sources[0], sources[1:], count) for sources, count in sorted(counts.items()))
