"""Summarises what a store knows of evictions: each market's current published rate, and row counts.

The database reduces the rates, so the result grows with the number of markets and not with the recorded days.
Of several sources, the one with the newest figure counts. A band covers a month or a day, so the newest band
stands. Single figures are noisy: those of a window are averaged, weighted by the time they cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pricing_data.formats.batches import Rate
from pricing_data.model.market import Market
from pricing_data.store import parquet
from pricing_data.store.content import StoreContent
from pricing_data.store.reference_tables import LIFETIMES, PROBES, RATES, TableSchema

_MARKET: Final = "cloud, region, zone, instance_type"
_NEWEST: Final = f"""
    WITH by_source AS (
        SELECT {_MARKET}, source, arg_max(
            struct_pack(begin_s, end_s, low, high, per_s, observed_s), (end_s, observed_s, begin_s)
        ) AS last
        FROM {{rates}} GROUP BY {_MARKET}, source
    ), chosen AS (
        SELECT {_MARKET}, unnest(arg_max(struct_pack(source, last), (last.end_s, source)))
        FROM by_source GROUP BY {_MARKET}
    ), figures AS (
        SELECT {_MARKET}, min(begin_s) AS begin_s,
            fsum(low * (end_s - begin_s)) / sum(end_s - begin_s) AS mean
        FROM {{rates}} JOIN chosen USING ({_MARKET}, source)
        WHERE end_s > last.end_s - {{window_s}} AND low = high AND per_s = last.per_s
        GROUP BY {_MARKET}
    )
    SELECT {_MARKET}, source,
        if(last.low < last.high, last.begin_s, figures.begin_s), last.end_s,
        if(last.low < last.high, last.low, mean), if(last.low < last.high, last.high, mean),
        last.per_s, last.observed_s
    FROM chosen LEFT JOIN figures USING ({_MARKET}) ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class EvictionCounts:
    """Counts the rows about evictions in one cloud."""

    rates: int
    probes: int
    lifetimes: int


class EvictionFigures:
    """Queries the tables of published rates, probes and lifetimes."""

    def __init__(self, content: StoreContent) -> None:
        self._content = content

    def rates(self) -> tuple[tuple[str, Rate], ...]:
        """Returns every stored rate with its source: all days of all markets."""
        with self._content.lock_for_reading():
            rows = self._content.tables.read_rows(RATES)
        return tuple((row[4], Rate(Market(*row[:4]), *row[5:11])) for row in rows)

    def newest_rates(self, window_s: int) -> tuple[tuple[str, Rate], ...]:
        """Returns (source, rate) of each market: its newest band, or its mean figure over ``window_s``."""
        with self._content.lock_for_reading():
            file = self._content.tables.table_path(RATES)
            if not file.exists():
                return ()
            query = _NEWEST.format(rates=parquet.scan_expression([file]), window_s=window_s)
            with self._content.database.cursor() as cursor:
                rows = parquet.fetch_rows(cursor, query, [file])
        return tuple((row[4], Rate(Market(*row[:4]), *row[5:11])) for row in rows)

    def counts(self) -> dict[str, EvictionCounts]:
        """Returns how many rows there are, by cloud."""
        with self._content.lock_for_reading():
            by_table = [self._count_by_cloud(kind) for kind in (RATES, PROBES, LIFETIMES)]
        clouds = sorted(set().union(*by_table))
        return {cloud: EvictionCounts(*(found.get(cloud, 0) for found in by_table)) for cloud in clouds}

    def files(self) -> tuple[Path, ...]:
        """Returns the files that estimates of evictions rest on, those that exist."""
        paths = (self._content.tables.table_path(kind) for kind in (LIFETIMES, PROBES, RATES))
        return tuple(path for path in paths if path.exists())

    def _count_by_cloud(self, kind: TableSchema) -> dict[str, int]:
        file = self._content.tables.table_path(kind)
        if not file.exists():
            return {}
        query = f"SELECT cloud, count(*) FROM {parquet.scan_expression([file])} GROUP BY cloud"
        with self._content.database.cursor() as cursor:
            return dict(parquet.fetch_rows(cursor, query, [file]))
