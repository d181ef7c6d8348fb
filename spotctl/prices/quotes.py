"""Returns the current price of every market in the store: how much, since when, from whom, how long ago.

Rule 1: a price is in doubt if it was in force and its market's newest row failed a check: it is shown
with the reason and never ranked.

Rule 2: a source that is asked for a region's prices also says which markets have not changed, so
the age of a price counts from when the source last spoke of the region.

Rule 3: AWS's event streams repeat their prices about daily, so a market without a row for two days was not
seen since, whatever was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Flaw
from pricing_data.formats.source_priority import REPEATING_CLOUD, SILENCE_S
from pricing_data.model.market import Market, Series
from pricing_data.model.rules import AUCTIONS_ENDED
from pricing_data.model.units import Instant, UsdPerHour
from pricing_data.store.queries import MarketSummary
from pricing_data.store.store import PriceStore
from spotctl.errors import UsageError
from spotctl.prices.market_table import STALE_AFTER_S

GONE: Final = "no longer listed"
_SAYS_NOTHING_OF_NOW: Final = (Flaw.CONFLICT, Flaw.FUTURE, Flaw.PREHISTORIC)
"""A second price for a moment leaves the first one in force, and a time in the future is no current price."""


@dataclass(frozen=True, slots=True)
class Quote:
    """Describes what is known about the price of one market now."""

    market: Market
    price: UsdPerHour | None
    """None where the market is no longer listed."""
    since: Instant
    """Time of the newest row."""
    observed: Instant
    """When the price was last seen to hold."""
    first: Instant
    rows: int
    source: str
    sources: tuple[str, ...]
    semantics: Semantics
    approximate: bool = False
    generated: bool = False
    doubt: str = ""
    """Why the price must not be relied on; empty if it may be."""

    def age_s(self, now: Instant) -> int:
        return max(now - self.observed, 0)

    def is_stale(self, now: Instant) -> bool:
        """Tells whether the price was last seen too long ago to rely on."""
        return self.age_s(now) > STALE_AFTER_S[self.semantics]


def list_quotes(store: PriceStore) -> tuple[Quote, ...]:
    """Returns the quotes of all markets, in their order."""
    summaries = store.markets()
    seen = _last_seen(store, summaries)
    failed = store.quality.newest_failures(but=_SAYS_NOTHING_OF_NOW)
    return tuple(_build_quote(summary, seen, failed) for summary in summaries)


def _build_quote(
    summary: MarketSummary,
    seen: Mapping[tuple[str, str, str], Instant],
    failed: Mapping[Market, tuple[Instant, Flaw]],
) -> Quote:
    market = summary.market
    # By the source in force: what another one has seen says nothing about this price.
    observed = seen[summary.source, market.cloud, market.region]
    if summary.semantics is Semantics.EVENT_STREAM and market.cloud == REPEATING_CLOUD:
        if summary.last < AUCTIONS_ENDED:  # a recording: AWS no longer has prices of that time
            observed = summary.observed
        observed = min(observed, Instant(summary.last + SILENCE_S))
    doubt = ""
    # A flaw before the newest good row is history.
    if market in failed and failed[market][0] > summary.last:
        doubt = f"its newest row failed a check: {failed[market][1]}"
    return Quote(
        market=market,
        price=summary.price,
        since=summary.last,
        observed=observed,
        first=summary.first,
        rows=summary.rows,
        source=summary.source,
        sources=summary.sources,
        semantics=summary.semantics,
        approximate=summary.approximate,
        doubt=GONE if summary.price is None else doubt,
    )


def _last_seen(store: PriceStore, summaries: Iterable[MarketSummary]) -> dict[tuple[str, str, str], Instant]:
    """Returns when each source last spoke of a region."""
    seen = store.last_seen()
    for summary in summaries:
        key = (summary.source, summary.market.cloud, summary.market.region)
        seen[key] = max(seen.get(key, summary.observed), summary.observed)
    return seen


def select_quotes(
    found: Sequence[Quote], names: Sequence[str], clouds: Sequence[str], regions: Sequence[str]
) -> tuple[Quote, ...]:
    """Returns the named quotes, TYPE or TYPE@ZONE, in those clouds and regions; all without a name.

    Raises UsageError for a name that fits none.
    """
    here = [
        quote
        for quote in found
        if (not clouds or quote.market.cloud in clouds) and (not regions or quote.market.region in regions)
    ]
    for name in names:
        if not any(_is_called(quote.market, name) for quote in here):
            raise _unknown_name(name, here)
    return tuple(
        quote for quote in here if not names or any(_is_called(quote.market, name) for name in names)
    )


def find_quote(found: Sequence[Quote], name: str) -> Quote:
    """Returns the one market of that name. Raises UsageError where there is none, or several."""
    fitting = select_quotes(found, [name], (), ())
    if len(fitting) > 1:
        zones = ", ".join(str(quote.market) for quote in fitting[:6]) + (", ..." if len(fitting) > 6 else "")
        raise UsageError(f"{name} is sold in {len(fitting)} zones; name one: {zones}")
    return fitting[0]


def _is_called(market: Market, name: str) -> bool:
    return name in (market.instance_type, str(market))


def _unknown_name(name: str, here: Sequence[Quote]) -> UsageError:
    from spotctl.schema.document import suggest_nearest

    if not here:
        return UsageError("the store has no such prices yet; `spotctl prices fetch` or `import` brings some")
    known = {str(quote.market) for quote in here} | {quote.market.instance_type for quote in here}
    return UsageError(
        f"no market is called {name!r}{suggest_nearest(name, sorted(known))}; `spotctl prices show` lists "
        "them"
    )


def cut_series(series: Series, first: Instant | None, last: Instant | None) -> Series:
    """Returns the steps of [``first``, ``last``), with the one in force at ``first`` starting there."""
    times, prices = series.times, series.prices
    if last is not None:
        size = int(np.searchsorted(times, last, side="left"))
        times, prices = times[:size], prices[:size]
    if first is not None:
        begin = max(int(np.searchsorted(times, first, side="right")) - 1, 0)
        times, prices = np.maximum(times[begin:], first), prices[begin:]
    return Series(times, prices)
