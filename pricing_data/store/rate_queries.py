"""Queries published eviction rates, one for each market: the current one, out of all ever stored.

The database reduces them, so that the result grows with the number of markets and not with the days that were
recorded. Of several sources the one that spoke last counts. A band already covers a month or a day: the
newest stands. Single figures are noisy: those of a window are averaged by time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pricing_data.formats.batches import Rate
from pricing_data.model.market import Market
from pricing_data.store import parquet

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MARKET: Final = "cloud, region, zone, instance_type"
_NEWEST: Final = f"""
    WITH said AS (
        SELECT {_MARKET}, source, arg_max(
            struct_pack(begin_s, end_s, low, high, per_s, observed_s), (end_s, observed_s, begin_s)
        ) AS last
        FROM {{rates}} GROUP BY {_MARKET}, source
    ), chosen AS (
        SELECT {_MARKET}, unnest(arg_max(struct_pack(source, last), (last.end_s, source)))
        FROM said GROUP BY {_MARKET}
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


def newest_rates(database: DuckDBPyConnection, file: Path, window_s: int) -> tuple[tuple[str, Rate], ...]:
    """Returns (source, rate) of each market in the table of rates; the table need not exist."""
    if not file.exists():
        return ()
    query = _NEWEST.format(rates=parquet.scan_expression([file]), window_s=window_s)
    with database.cursor() as cursor:
        rows = parquet.fetch_rows(cursor, query, [file])
    return tuple((row[4], Rate(Market(*row[:4]), *row[5:11])) for row in rows)


def count_by_cloud(database: DuckDBPyConnection, file: Path) -> dict[str, int]:
    """Returns how many rates there are, by cloud."""
    if not file.exists():
        return {}
    query = f"SELECT cloud, count(*) FROM {parquet.scan_expression([file])} GROUP BY cloud ORDER BY cloud"
    with database.cursor() as cursor:
        return dict(parquet.fetch_rows(cursor, query, [file]))
