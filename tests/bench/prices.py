"""How fast the price store is, each figure beside a reference that was measured in the same run.

Five million rows of 400 markets in four regions over a year: importing them from Parquet, 100 000 questions
for a price as of a moment, one market's series. Aims: 5 s; twice numpy's searchsorted alone; 30 ms.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import parse_instant
from pricing_data.store import parquet
from pricing_data.store.importing import import_file
from pricing_data.store.store import PriceStore

ROWS, MARKETS, QUESTIONS = 5_000_000, 400, 100_000
BEGIN = parse_instant("2025-01-01")
YEAR_S = 365 * 86400
NOW = parse_instant("2026-01-02")
_EXPORT = f"""
    COPY (
        SELECT 'aws' AS cloud, region, zone, instance_type,
            make_timestamp(({BEGIN} + step * {YEAR_S * MARKETS // ROWS} + market % 60) * 1000000) AS time_utc,
            0.01 + (hash(market * 100000 + step) % 900)::DOUBLE / 10000 AS price_usd_hour,
            'bench' AS source, 'event stream' AS semantics, false AS approximate,
            make_timestamp({NOW}::BIGINT * 1000000) AS observed_utc
        FROM (
            SELECT market, 'region-' || market % 4 AS region, region || 'abcd'[1 + market // 4 % 4] AS zone,
                'type-' || market AS instance_type FROM range({MARKETS}) AS markets (market)
        ), range({ROWS // MARKETS}) AS steps (step)
        ORDER BY region, zone, instance_type, time_utc
    ) TO '{{path}}' (FORMAT parquet, COMPRESSION zstd)
"""


def main() -> None:
    """Print each figure, its reference and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "rows.parquet"
        parquet.open_database().execute(_EXPORT.format(path=export))
        store = PriceStore(Path(folder) / "store")
        copied = _seconds(lambda: _copy(export, Path(folder) / "copy.parquet"))
        began = time.perf_counter()
        added = import_file(store, export, NOW).added
        imported = time.perf_counter() - began
        assert (added.new, added.quarantined) == (ROWS, 0), added
        _say("import of 5 M rows from Parquet", imported, "DuckDB copying the file", copied)
        loaded = _seconds(store.history)
        _say("all 5 M rows as a history", loaded, "DuckDB copying the file", copied)
        _as_of(store.history())
        _one_market(store)
        _say("the state of every market", _median(store.markets, 5), "DuckDB copying the file", copied)


def _copy(export: Path, copy: Path) -> None:
    parquet.open_database().execute(
        f"COPY (FROM {parquet.scan_expression([export])}) TO {parquet.sql_literal(copy)} (FORMAT parquet)"
    )


def _as_of(history: PriceHistory) -> None:
    """Questions come in any order; the reference gets them sorted by market, and only searches."""
    random = np.random.default_rng(7)
    markets = history.markets
    codes = random.integers(0, MARKETS, QUESTIONS)
    moments = random.integers(BEGIN + 60, BEGIN + YEAR_S, QUESTIONS)
    columns = [history.series(market) for market in markets]
    groups = [moments[codes == code] for code in range(MARKETS)]

    def searched() -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
        return [
            held.prices[np.searchsorted(held.times, group, side="right") - 1]
            for held, group in zip(columns, groups, strict=True)
        ]

    def asked() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return history.prices_at(markets, codes, moments)

    expected = np.empty(QUESTIONS)
    for code, prices in enumerate(searched()):
        expected[codes == code] = prices
    assert np.array_equal(asked(), expected)
    _say("100 000 as-of questions", _median(asked, 15), "numpy's searchsorted alone", _median(searched, 15))


def _one_market(store: PriceStore) -> None:
    market = Market("aws", "region-1", "region-1b", "type-5")
    files = store.root.glob("cloud=aws/region=region-1/month=*/rows.parquet")
    query = (
        f"SELECT time_s, price_usd_hour FROM {parquet.scan_expression(sorted(files))} WHERE instance_type = "
        "'type-5'"
    )
    database = parquet.open_database()
    assert len(store.series(market)) > ROWS // MARKETS * 0.99
    series = _median(lambda: store.series(market), 15)
    _say(
        "one market's series, warm",
        series,
        "DuckDB's query for it",
        _median(lambda: database.execute(query).fetchnumpy(), 15),
    )


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _median(run: Callable[[], object], times: int) -> float:
    run()
    return statistics.median(_seconds(run) for _ in range(times))


def _say(what: str, seconds: float, reference: str, reference_s: float) -> None:
    print(
        f"{what:34} {seconds * 1000:8.1f} ms {seconds / reference_s:8.2f} x {reference} "
        f"({reference_s * 1000:.1f} ms)"
    )
