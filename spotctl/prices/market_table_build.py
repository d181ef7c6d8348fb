"""Builds tables of every market's expected cost from the store, and keeps them beside it.

ROOT/advice/HORIZON.npz     one ``MarketTable`` per requested horizon, in seconds

All code that changes the store calls ``refresh_tables`` afterwards. A table may still not fit the store (its
writer was killed in between); it is then made again on request: advice never rests on an old one.
Unchanged results are reused: estimates from prices are made again only where rows were added, those from
capacity where more was observed or published.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from pricing_data.catalogue import Catalogue
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.rules import default_rules
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour
from pricing_data.snapshots import bundled_market
from pricing_data.store.store import PriceStore
from spotctl.job.price_sources import prices_root
from spotctl.prices.capacity_estimates import CapacityEstimates
from spotctl.prices.estimates import (
    Basis,
    Estimate,
    from_capacity,
    from_crossings,
    from_rate,
    unknown_estimate,
)
from spotctl.prices.market_table import LastPrice, MachineOffer, MarketRow, MarketTable
from spotctl.prices.published_rates import AVERAGED_S, PublishedRates
from spotctl.prices.quotes import Quote, list_quotes

DEFAULT_HORIZON_S: Final = Seconds(float(HOUR_S))
_BUNDLED: Final = (
    "no prices were fetched or imported yet: this is the bundled market, generated, not recorded"
)


@dataclass(frozen=True, slots=True)
class LabelledTable:
    """Pairs a table with what users must know about its origin; empty for the store."""

    table: MarketTable
    label: str


def current_table(horizon_s: Seconds) -> LabelledTable:
    """Returns the store's table; the bundled market's where the store is empty."""
    root = prices_root()
    if not root.is_dir():
        return LabelledTable(bundled_table(horizon_s), _BUNDLED)
    path = _table_path(root, horizon_s)
    kept = MarketTable.load(path)
    if kept is None or kept.fingerprint != store_fingerprint(root):
        kept = _build_table(PriceStore(root), horizon_s, kept)
        kept.save(path)
    return LabelledTable(kept, "") if len(kept) else LabelledTable(bundled_table(horizon_s), _BUNDLED)


def refresh_tables(store: PriceStore) -> None:
    """Updates every table that was ever requested, and that of the usual horizon."""
    horizons = {DEFAULT_HORIZON_S}
    for path in _table_path(store.root, DEFAULT_HORIZON_S).parent.glob("*.npz"):
        kept = MarketTable.load(path)
        if kept is not None:
            horizons.add(Seconds(kept.horizon_s))
    # From the table before: only markets with new rows are estimated again.
    for horizon_s in sorted(horizons):
        path = _table_path(store.root, horizon_s)
        _build_table(store, horizon_s, MarketTable.load(path)).save(path)


def store_fingerprint(root: Path) -> str:
    """Returns a digest of the store and the bundled catalogue: of names, sizes, times of files."""
    digest = hashlib.sha256()
    # A new version of the program may have a new catalogue for the same store.
    for bundled in ("instance_types.csv", "on_demand.csv"):
        digest.update(files("pricing_data.catalogue").joinpath(bundled).read_bytes())
    # Not ``rglob``: it raises where another process removes a folder in the middle of the walk.
    found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    parquet_files = sorted(path for path in found if path.suffix == ".parquet")
    return f"{digest.hexdigest()} {_files_state(root, parquet_files)}"


def _files_state(root: Path, paths: Iterable[Path]) -> str:
    """Returns a digest of names, sizes and times of files that are replaced whole."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            about = path.stat()
        except FileNotFoundError:
            # A running fetch merged it meanwhile; the table is built afterwards, from the merged rows.
            continue
        digest.update(f"{path.relative_to(root)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _table_path(root: Path, horizon_s: Seconds) -> Path:
    return root.parent / "advice" / f"{horizon_s:.0f}.npz"


def bundled_table(horizon_s: Seconds) -> MarketTable:
    """Returns the table of the market that ships with the program."""
    recording, catalogue = bundled_market(), Catalogue.bundled()
    rows = []
    for market, series in recording.series.items():
        quote = Quote(
            market=market,
            price=UsdPerHour(float(series.prices[-1])),
            since=Instant(int(series.times[-1])),
            observed=recording.last,
            first=Instant(int(series.times[0])),
            rows=len(series),
            source=recording.label,
            sources=(recording.label,),
            semantics=recording.semantics,
            generated=recording.generated,
        )
        rules = default_rules(market.cloud, quote.since)
        price = UsdPerHour(float(series.prices[-1]))
        estimate = from_crossings(rules, price, series, quote.observed, horizon_s, quote.source)
        rows.append(_build_row(quote, rules, estimate, catalogue))
    return MarketTable.from_rows("bundled", horizon_s, rows)


def _build_table(store: PriceStore, horizon_s: Seconds, before: MarketTable | None) -> MarketTable:
    """Builds a table of the store as it is; ``before`` may be any older one of the same horizon."""
    mark = store_fingerprint(store.root)  # taken first: a later change makes the table unfit
    watched = _files_state(store.root, store.evictions.files())
    same = before is not None and before.watched == watched
    known = {row.market: row for row in before or () if same or row.estimate.basis is not Basis.CAPACITY}
    return MarketTable.from_rows(mark, horizon_s, _build_rows(store, horizon_s, known), watched)


def _build_rows(
    store: PriceStore, horizon_s: Seconds, known: Mapping[Market, MarketRow]
) -> Iterator[MarketRow]:
    catalogue = store.catalogue()
    capacity = CapacityEstimates(
        store.observations(), PublishedRates.from_pairs(store.evictions.newest_rates(AVERAGED_S))
    )
    found = [
        (quote, _rules_of_quote(quote), _reusable_estimate(quote, known.get(quote.market)))
        for quote in list_quotes(store)
    ]
    # One query for all markets that need their history, instead of one for each.
    asked = [quote.market for quote, rules, before in found if before is None and _by_crossings(quote, rules)]
    history = store.history(asked)
    for quote, rules, before in found:
        estimate = before
        if quote.price is None or rules is None:
            estimate = unknown_estimate(math.nan)
        elif estimate is None and rules.cleared_by_bid:
            steps = history.series(quote.market)
            estimate = from_crossings(rules, quote.price, steps, quote.observed, horizon_s, quote.source)
        elif estimate is None:
            estimate = _without_bids(quote.market, quote.price, rules, capacity, horizon_s)
        yield _build_row(quote, rules, estimate, catalogue)


def _without_bids(
    market: Market, price: UsdPerHour, rules: MarketRules, capacity: CapacityEstimates, horizon_s: Seconds
) -> Estimate:
    """Prefers observations to published rates; where observed losses are too few, the rates remain."""
    seen, rate = capacity.seen_until(market), capacity.rates.of_market(market)
    if seen is not None:
        fitted = capacity.fitted_estimates(market, rules)
        estimate = from_capacity(rules, price, fitted, market, seen, horizon_s)
        if estimate.basis is not Basis.UNKNOWN:
            return estimate
    return unknown_estimate(price) if rate is None else from_rate(rules, price, rate, horizon_s)


def _rules_of_quote(quote: Quote) -> MarketRules | None:
    """Returns the rules in force at the time of the price; None for a cloud whose rules are unknown."""
    try:
        return default_rules(quote.market.cloud, quote.since)
    except KeyError:
        return None


def _by_crossings(quote: Quote, rules: MarketRules | None) -> bool:
    return quote.price is not None and rules is not None and rules.cleared_by_bid


def _reusable_estimate(quote: Quote, before: MarketRow | None) -> Estimate | None:
    """Returns the estimate made before, if all that it rests on is unchanged.

    Crossings rest on every row of the market. Capacity rests on the last price alone, and on sightings, which
    ``before`` has in common.
    """
    if before is None or (before.last.price, before.last.since) != (quote.price, quote.since):
        return None
    basis, last = before.estimate.basis, before.last
    same = basis is Basis.CAPACITY or (
        basis is Basis.CROSSINGS and (last.rows, last.observed) == (quote.rows, quote.observed)
    )
    return before.estimate if same else None


def _build_row(
    quote: Quote, rules: MarketRules | None, estimate: Estimate, catalogue: Catalogue
) -> MarketRow:
    market = quote.market
    kind = catalogue.instance_type(market.cloud, market.instance_type)
    listed = catalogue.on_demand(market.cloud, market.region, market.instance_type, quote.since)
    return MarketRow(
        market=market,
        last=LastPrice(
            price=math.nan if quote.price is None else quote.price,
            since=quote.since,
            observed=quote.observed,
            rows=quote.rows,
            source=quote.source,
            semantics=quote.semantics,
            generated=int(quote.generated),
            rules="" if rules is None else rules.name,
        ),
        machine=MachineOffer(
            vcpus=0 if kind is None else kind.vcpus,
            memory_gib=math.nan if kind is None else kind.memory_gib,
            gpus=0 if kind is None else kind.gpus,
            gpu_name=catalogue.gpu_names.get((market.cloud, market.instance_type), ""),
            on_demand=math.nan if listed is None else listed,
        ),
        estimate=estimate,
        unranked=quote.doubt or ("" if rules is not None else "no billing rules are known for this cloud"),
    )
