"""Queries the prices of a store, in the files of all its months, while the caller holds the lock."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.source_priority import (
    REPEATING_CLOUD,
    MergedSeries,
    SourceClaim,
    drop_repeats,
    merge_claims,
    rank_source,
)
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import Instant, UsdPerHour
from pricing_data.store import parquet
from pricing_data.store.commit_log import ROWS, StoreFolder
from pricing_data.store.reference_tables import Row
from pricing_data.store.validation import RowPool

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class MarketSummary:
    """Summarises what the store knows of a market."""

    market: Market
    rows: int
    """Rows of all sources."""
    first: Instant
    last: Instant
    """Time of the newest row, whatever it says."""
    observed: Instant
    """When the newest row was seen."""
    source: str
    """The source of the current price."""
    semantics: Semantics
    approximate: bool
    price: UsdPerHour | None
    """The current price; None where the market was no longer listed."""
    sources: tuple[str, ...]
    """All sources of the market, by rank: where they overlap, the first is believed."""


def summarize_markets(
    database: DuckDBPyConnection, disk: StoreFolder, cloud: str | None, region: str | None
) -> tuple[MarketSummary, ...]:
    """Returns one summary for every market, sorted."""
    files = disk.month_files(ROWS, cloud, region)
    if not files:
        return ()
    newest = "max_by({'price': price_usd_hour, 'observed': observed_s}, time_s)"
    query = (
        "SELECT cloud, region, zone, instance_type, source, semantics, bool_or(approximate), count(*), "
        f"min(time_s), max(time_s), {newest} FROM {parquet.scan_expression(files)} GROUP BY ALL"
    )
    by_market: dict[Market, list[Row]] = {}
    with database.cursor() as cursor:
        for row in parquet.fetch_rows(cursor, query, files):
            by_market.setdefault(Market(*row[:4]), []).append(row[4:])
    return tuple(_summarize_market(market, rows) for market, rows in sorted(by_market.items()))


def _summarize_market(market: Market, rows: list[Row]) -> MarketSummary:
    ranked, current = rows, rows[0]
    if len(rows) > 1:
        ranked = sorted(rows, key=lambda row: rank_source(row[0], Semantics(row[1]), row[2], row[3]))
        # ``max`` returns the first of equals: of sources with a row then, the best is believed.
        current = max(ranked, key=lambda row: row[5])
    price = current[6]["price"]
    return MarketSummary(
        market=market,
        rows=sum(row[3] for row in rows),
        first=Instant(min(row[4] for row in rows)),
        last=Instant(current[5]),
        observed=Instant(current[6]["observed"]),
        source=current[0],
        semantics=Semantics(current[1]),
        approximate=current[2],
        price=None if price is None else UsdPerHour(price),
        sources=tuple(dict.fromkeys(row[0] for row in ranked)),
    )


def read_history(
    database: DuckDBPyConnection, disk: StoreFolder, markets: Collection[Market] | None, until: Instant | None
) -> PriceHistory:
    """Returns the believed steps up to ``until``; rows after it change none of them."""
    series = {}
    for market, account in merged_series(database, disk, markets, until):
        times, prices = drop_repeats(account.times, account.prices)
        if len(times):
            series[market] = Series(times, prices)
    return PriceHistory.from_series(series)


def merged_series(
    database: DuckDBPyConnection, disk: StoreFolder, markets: Collection[Market] | None, until: Instant | None
) -> Iterator[tuple[Market, MergedSeries]]:
    """Yields the believed rows of each market, with the source of each row."""
    pool = _read_rows(database, disk, markets, until)
    if len(pool) == 0:
        return
    # Stable: files come in the order of their months, so each market's rows stay in order of time.
    order = np.argsort(pool.codes, kind="stable")
    pool = pool.take_rows(order)
    borders = (np.flatnonzero(np.diff(pool.codes)) + 1).tolist()
    claims: dict[Market, list[SourceClaim]] = {}
    for begin, end in zip([0, *borders], [*borders, len(pool)], strict=True):
        name = pool.series[pool.codes[begin]]
        claims.setdefault(name.market, []).append(
            SourceClaim(
                source=name.source,
                semantics=Semantics.POLLED if pool.polled[begin] else Semantics.EVENT_STREAM,
                approximate=bool(pool.approximate[begin:end].any()),
                times=pool.times[begin:end],
                prices=pool.prices[begin:end],
                repeats=name.cloud == REPEATING_CLOUD,
            )
        )
    for market, found in claims.items():
        yield market, merge_claims(found)


def _read_rows(
    database: DuckDBPyConnection, disk: StoreFolder, markets: Collection[Market] | None, until: Instant | None
) -> RowPool:
    files, where, values = select_rows(disk, markets, None, until)
    return parquet.read_pool(database, files, where, values)


def select_rows(
    disk: StoreFolder,
    markets: Collection[Market] | None,
    since: Instant | None,
    until: Instant | None,
) -> tuple[tuple[Path, ...], str, list[Any]]:
    """Returns the files that may have such rows, and an SQL condition, with its values, for them."""
    conditions: list[str] = []
    values: list[Any] = []
    if markets is None:
        files = disk.month_files(ROWS)
    else:
        regions = sorted({(market.cloud, market.region) for market in markets})
        files = tuple(file for cloud, region in regions for file in disk.month_files(ROWS, cloud, region))
        wanted = sorted(markets)
        for column in ("cloud", "region", "zone", "instance_type"):
            among = sorted({getattr(market, column) for market in wanted})
            # One condition per column lets Parquet skip row groups; the exact pairs are checked below.
            conditions.append(f"{column} IN ({', '.join('?' * len(among))})" if among else "false")
            values.extend(among)
        if len(wanted) > 1:
            conditions.append(
                "list_contains(?::VARCHAR[], concat_ws(chr(9), cloud, region, zone, instance_type))"
            )
            values.append(["\t".join((m.cloud, m.region, m.zone, m.instance_type)) for m in wanted])
    for operator, bound in ((">=", since), ("<=", until)):
        if bound is not None:
            conditions.append(f"time_s {operator} ?")
            values.append(bound)
    return files, " AND ".join(conditions) or "true", values


def newest_time(
    database: DuckDBPyConnection, disk: StoreFolder, source: str, cloud: str, region: str
) -> Instant | None:
    """Returns the time of the newest row; None where the source has none in the region."""
    # Newest months first: the first hit ends the search.
    for file in reversed(disk.month_files(ROWS, cloud, region)):
        query = (
            f"SELECT max(time_s) FROM {parquet.scan_expression([file])} "
            "WHERE source = ? AND cloud = ? AND region = ?"
        )
        with database.cursor() as cursor:
            found = parquet.fetch_rows(cursor, query, [file], [source, cloud, region])[0][0]
        if found is not None:
            return Instant(found)
    return None
