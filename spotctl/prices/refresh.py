"""Tables of what every market is expected to cost, made from the store and kept beside it.

ROOT/advice/HORIZON.npz     one ``Table`` per horizon that was asked for, in seconds

Whatever changes the store calls ``refresh_tables`` afterwards. A table that does not fit the store all the
same (its writer was killed in between) is made again when it is asked for: advice never rests on an old one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pricing_data.catalogue import Catalogue
from pricing_data.layouts import Semantics
from pricing_data.market import Market, Series
from pricing_data.rules import default_rules
from pricing_data.snapshots import bundled_market
from pricing_data.units import HOUR_S, Instant, Seconds, UsdPerHour
from spotctl.prices.estimates import Estimate, from_crossings
from spotctl.prices.tables import Row, Table

DEFAULT_HORIZON_S: Final = Seconds(float(HOUR_S))


@dataclass(frozen=True, slots=True)
class Offered:
    """A table, and what people must be told about where it is from; empty for the store."""

    table: Table
    label: str


@dataclass(frozen=True, slots=True)
class Quote:
    """The current price of one market."""

    market: Market
    price: UsdPerHour
    since: Instant
    observed: Instant
    rows: int
    source: str
    semantics: Semantics
    generated: bool = False


def bundled_table(horizon_s: Seconds) -> Table:
    """The table of the market that ships with the program."""
    recording, catalogue = bundled_market(), Catalogue.bundled()
    quotes = {
        market: Quote(
            market,
            UsdPerHour(float(series.prices[-1])),
            Instant(int(series.times[-1])),
            recording.last,
            len(series),
            recording.label,
            recording.semantics,
            recording.generated,
        )
        for market, series in recording.series.items()
    }
    return Table.of("bundled", horizon_s, _rows(quotes, recording.series, catalogue, horizon_s))


def _rows(
    quotes: Mapping[Market, Quote], series: Mapping[Market, Series], catalogue: Catalogue, horizon_s: Seconds
) -> Iterator[Row]:
    for market, quote in quotes.items():
        rules = default_rules(market.cloud, quote.since)
        estimate = from_crossings(rules, quote.price, series[market], quote.observed, horizon_s, quote.source)
        yield row(quote, estimate, catalogue)


def row(
    quote: Quote, estimate: Estimate, catalogue: Catalogue, gpu_name: str = "", unranked: str = ""
) -> Row:
    """One line of a table."""
    market = quote.market
    kind = catalogue.instance_type(market.cloud, market.instance_type)
    listed = catalogue.on_demand(market.cloud, market.region, market.instance_type, quote.since)
    return Row(
        cloud=market.cloud,
        region=market.region,
        zone=market.zone,
        instance_type=market.instance_type,
        price=quote.price,
        since=quote.since,
        observed=quote.observed,
        rows=quote.rows,
        source=quote.source,
        semantics=quote.semantics,
        generated=int(quote.generated),
        rules=default_rules(market.cloud, quote.since).name,
        vcpus=0 if kind is None else kind.vcpus,
        memory_gib=math.nan if kind is None else kind.memory_gib,
        gpus=0 if kind is None else kind.gpus,
        gpu_name=gpu_name,
        on_demand=math.nan if listed is None else listed,
        basis=estimate.basis,
        beta=estimate.beta,
        low=estimate.low,
        high=estimate.high,
        effective=estimate.effective,
        bid_delta=estimate.bid_delta,
        usd_per_useful_hour=estimate.usd_per_useful_hour,
        evidence=estimate.source,
        unranked=unranked,
    )


def current_table(horizon_s: Seconds) -> Offered:
    """What the store knows; the bundled market where there is no store yet."""
    label = "no prices were fetched or imported yet: this is the bundled market, generated, not recorded"
    return Offered(bundled_table(horizon_s), label)
