"""Reports on the quality of a store's rows: which are not believed and why, and which stand out.

The database counts over the files as they are: memory does not grow with the number of rows. A gap is a
finding only where rows were due. AWS repeats its prices about daily; other clouds' event streams are price
lists that change by the month, and a polled log has no row until a price changes. A gap of AWS's is
classified by what else is known of that time: nobody recorded the region, the market was no longer listed, or
other markets of the region were recorded while this one was not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import EXAMPLES_KEPT, Flaw
from pricing_data.formats.source_priority import REPEATING_CLOUD, SILENCE_S
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, format_instant
from pricing_data.store import parquet
from pricing_data.store.commit_log import QUARANTINE, ROWS, StoreFolder
from pricing_data.store.content import StoreContent
from pricing_data.store.reference_tables import UNREADABLE, Row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DAY_S: Final = 86400
_RECORDED_WITHIN_H: Final = 26
"""While a region is being recorded, some market of it has a row at least this often."""
_ROW: Final = "market := [cloud, region, zone, instance_type], time := time_s, price := price_usd_hour"
_GAPS: Final = f"""
    WITH believed AS (
        SELECT * FROM {{rows}}
    ), gaps AS (
        SELECT *, lag(time_s) OVER (
            PARTITION BY region, zone, instance_type, source ORDER BY time_s
        ) AS before_s
        FROM believed WHERE semantics = {parquet.sql_literal(Semantics.EVENT_STREAM)}
        QUALIFY time_s - before_s > {SILENCE_S}
    ), hours AS (
        SELECT DISTINCT region, time_s // 3600 AS hour FROM believed
    ), steps AS (
        SELECT *, hour - lag(hour) OVER (PARTITION BY region ORDER BY hour) AS step FROM hours
    ), recorded AS (
        SELECT region, hour, sum(if(step > {_RECORDED_WITHIN_H}, 0, step)) OVER (
            PARTITION BY region ORDER BY hour
        ) AS recorded_h FROM steps
    ), gone AS (
        SELECT region, zone, instance_type, time_s FROM believed WHERE price_usd_hour IS NULL
    ), judged AS (
        SELECT gaps.*, EXISTS (
            FROM gone WHERE gone.region = gaps.region AND gone.zone = gaps.zone
            AND gone.instance_type = gaps.instance_type
            AND gone.time_s >= gaps.before_s AND gone.time_s < gaps.time_s
        ) AS was_gone, until.hour - since.hour AS gap,
        coalesce(until.recorded_h, 0) - coalesce(since.recorded_h, 0) AS recorded_h
        FROM gaps
        JOIN recorded AS since ON since.region = gaps.region AND since.hour = gaps.before_s // 3600
        JOIN recorded AS until ON until.region = gaps.region AND until.hour = gaps.time_s // 3600
    )
    SELECT source, CASE
        WHEN was_gone THEN {parquet.sql_literal(Flaw.RELISTED)}
        WHEN recorded_h = gap OR recorded_h * 3600 > {SILENCE_S} THEN {parquet.sql_literal(Flaw.SILENCE)}
        ELSE {parquet.sql_literal(Flaw.UNRECORDED)}
    END AS flaw, count(*), min(struct_pack({_ROW}, after := time_s - before_s), {EXAMPLES_KEPT})
    FROM judged GROUP BY source, flaw
"""


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """Reports that ``count`` rows of ``source`` share this flaw; the first few of them are shown."""

    source: str
    kind: Flaw
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """Describes a row that is not believed, or a line that is no row (then there is no market)."""

    source: str
    reason: Flaw
    market: Market | None
    at: Instant | None
    """Its time, however wrong; None for a line."""
    text: str


class StoreQuality:
    """Queries the quarantine of a store, and looks for gaps and approximate times among its believed rows."""

    def __init__(self, content: StoreContent) -> None:
        self._content = content

    def findings(self) -> tuple[StoreFinding, ...]:
        """Returns bad rows, gaps and approximate times, counted by source and kind, with examples."""
        disk = self._content.disk
        with self._content.lock_for_reading(), self._content.database.cursor() as cursor:
            found = [
                *_line_findings(cursor, self._content.tables.table_path(UNREADABLE)),
                *_row_findings(cursor, disk.month_files(QUARANTINE), "reason"),
                *_row_findings(
                    cursor, disk.month_files(ROWS), parquet.sql_literal(Flaw.APPROXIMATE), "approximate"
                ),
                *_gap_findings(cursor, disk.month_files(ROWS, REPEATING_CLOUD)),
            ]
        return tuple(sorted(_merge_findings(found), key=lambda finding: (finding.source, finding.kind)))

    def list_quarantined(self, most: int | None = None) -> tuple[QuarantinedRow, ...]:
        """Returns at most ``most`` rows that are not believed: rows by market and time, then lines."""
        with self._content.lock_for_reading():
            bad = _quarantined_rows(self._content.database, self._content.disk, most)
            unreadable = self._content.tables.read_rows(UNREADABLE)
        rows = []
        for *names, source, reason, time_s, price in bad:
            market = Market(*names)
            text = _row_text(market, time_s, price)
            rows.append(QuarantinedRow(source, Flaw(reason), market, Instant(time_s), text))
        lines = [
            QuarantinedRow(row[0], Flaw(row[2]), None, None, _line_text(row[1], row[3]))
            for row in (unreadable if most is None else unreadable[: most - len(rows)])
        ]
        return (*rows, *lines)

    def newest_failures(self, but: Collection[Flaw] = ()) -> dict[Market, tuple[Instant, Flaw]]:
        """Returns the newest quarantined row of each market, disregarding rows with flaws in ``but``."""
        query = (
            "SELECT cloud, region, zone, instance_type, max(struct_pack(at := time_s, reason := reason)) "
            "FROM {rows} WHERE NOT list_contains(?::VARCHAR[], reason) GROUP BY ALL"
        )
        with self._content.lock_for_reading(), self._content.database.cursor() as cursor:
            files = self._content.disk.month_files(QUARANTINE)
            if not files:
                return {}
            query = query.format(rows=parquet.scan_expression(files))
            rows = parquet.fetch_rows(cursor, query, files, [sorted(map(str, but))])
        return {Market(*row[:4]): (Instant(row[4]["at"]), Flaw(row[4]["reason"])) for row in rows}


def _quarantined_rows(database: DuckDBPyConnection, disk: StoreFolder, most: int | None) -> list[Row]:
    files = disk.month_files(QUARANTINE)
    if not files:
        return []
    query = (
        "SELECT cloud, region, zone, instance_type, source, reason, time_s, price_usd_hour "
        f"FROM {parquet.scan_expression(files)} ORDER BY ALL"
    ) + ("" if most is None else f" LIMIT {most:d}")
    with database.cursor() as cursor:
        return parquet.fetch_rows(cursor, query, files)


def _row_findings(
    cursor: DuckDBPyConnection, files: tuple[Path, ...], flaw: str, where: str = "true"
) -> Iterator[StoreFinding]:
    if not files:
        return
    query = (
        f"SELECT source, {flaw} AS flaw, count(*), min(struct_pack({_ROW}), {EXAMPLES_KEPT}) "
        f"FROM {parquet.scan_expression(files)} WHERE {where} GROUP BY source, flaw"
    )
    for source, name, count, rows in parquet.fetch_rows(cursor, query, files):
        yield StoreFinding(source, Flaw(name), count, tuple(map(_example_text, rows)))


def _gap_findings(cursor: DuckDBPyConnection, files: tuple[Path, ...]) -> Iterator[StoreFinding]:
    if not files:
        return
    for source, name, count, rows in parquet.fetch_rows(
        cursor, _GAPS.format(rows=parquet.scan_expression(files)), files
    ):
        texts = (
            f"{_example_text(row)}, {row['after'] / _DAY_S:.1f} days after the row before" for row in rows
        )
        yield StoreFinding(source, Flaw(name), count, tuple(texts))


def _line_findings(cursor: DuckDBPyConnection, file: Path) -> Iterator[StoreFinding]:
    if not file.exists():
        return
    query = (
        f"SELECT source, reason, count(*), min(struct_pack(line := line, text := text), {EXAMPLES_KEPT}) "
        f"FROM {parquet.scan_expression([file])} GROUP BY source, reason"
    )
    for source, reason, count, lines in parquet.fetch_rows(cursor, query, [file]):
        texts = (_line_text(one["line"], one["text"]) for one in lines)
        yield StoreFinding(source, Flaw(reason), count, tuple(texts))


def _example_text(row: dict[str, Any]) -> str:
    return _row_text(Market(*row["market"]), row["time"], row["price"])


def _line_text(line: int, text: str) -> str:
    """Formats a line of a file; line 0 stands for a row of an API's answer."""
    return f"line {line}: {text}" if line else text


def _row_text(market: Market, time_s: int, price: float | None) -> str:
    """Formats a row, however wrong its time and price are."""
    shown = "no longer listed" if price is None or np.isnan(price) else f"{price:g} $/h"
    try:
        moment = format_instant(Instant(time_s))
    except (ValueError, OverflowError, OSError):  # quarantined for that very reason
        moment = f"{time_s} s since 1970"
    return f"{market} {moment} {shown}"


def _merge_findings(found: Iterable[StoreFinding]) -> Iterable[StoreFinding]:
    """Merges findings by source and flaw."""
    # The tables of lines and of rows are counted apart, and may have findings of one source and flaw.
    merged: dict[tuple[str, Flaw], StoreFinding] = {}
    for one in found:
        before = merged.get((one.source, one.kind))
        if before is not None:
            examples = (*before.examples, *one.examples)[:EXAMPLES_KEPT]
            one = StoreFinding(one.source, one.kind, before.count + one.count, examples)
        merged[one.source, one.kind] = one
    return merged.values()
