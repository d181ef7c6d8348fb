"""Reports on the rows of a store: counted by source and flaw, with the first few of each.

The database counts over the files as they are: nothing grows with the number of rows but the time it takes. A
gap is a finding only where rows were due. AWS repeats its prices about daily; everybody else's event streams
are price lists that change by the month, and a polled log says nothing until a price changes. A gap of AWS's
is classified by what else is known of that time: nobody recorded the region, the market was seen to be no
longer listed, or others of the region were recorded while this one was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import EXAMPLES_KEPT, Flaw
from pricing_data.formats.source_priority import REPEATING_CLOUD, SILENCE_S
from pricing_data.model.market import Market
from pricing_data.store import parquet
from pricing_data.store.commit_log import QUARANTINE, ROWS, StoreFolder
from pricing_data.store.queries import line_text, row_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DAY_S: Final = 86400
_HEARD_WITHIN_H: Final = 26
"""A region that is being recorded has a row at least so often, even if one market has none."""
_ROW: Final = "market := [cloud, region, zone, instance_type], time := time_s, price := price_usd_hour"
_GAPS: Final = f"""
    WITH spoken AS (
        SELECT * FROM {{rows}}
    ), gaps AS (
        SELECT *, lag(time_s) OVER (
            PARTITION BY region, zone, instance_type, source ORDER BY time_s
        ) AS before_s
        FROM spoken WHERE semantics = {parquet.sql_literal(Semantics.EVENT_STREAM)}
        QUALIFY time_s - before_s > {SILENCE_S}
    ), hours AS (
        SELECT DISTINCT region, time_s // 3600 AS hour FROM spoken
    ), steps AS (
        SELECT *, hour - lag(hour) OVER (PARTITION BY region ORDER BY hour) AS step FROM hours
    ), heard AS (
        SELECT region, hour, sum(if(step > {_HEARD_WITHIN_H}, 0, step)) OVER (
            PARTITION BY region ORDER BY hour
        ) AS heard FROM steps
    ), gone AS (
        SELECT region, zone, instance_type, time_s FROM spoken WHERE price_usd_hour IS NULL
    ), judged AS (
        SELECT gaps.*, EXISTS (
            FROM gone WHERE gone.region = gaps.region AND gone.zone = gaps.zone
            AND gone.instance_type = gaps.instance_type
            AND gone.time_s >= gaps.before_s AND gone.time_s < gaps.time_s
        ) AS was_gone, until.hour - since.hour AS gap,
        coalesce(until.heard, 0) - coalesce(since.heard, 0) AS heard
        FROM gaps
        JOIN heard AS since ON since.region = gaps.region AND since.hour = gaps.before_s // 3600
        JOIN heard AS until ON until.region = gaps.region AND until.hour = gaps.time_s // 3600
    )
    SELECT source, CASE
        WHEN was_gone THEN {parquet.sql_literal(Flaw.RELISTED)}
        WHEN heard = gap OR heard * 3600 > {SILENCE_S} THEN {parquet.sql_literal(Flaw.SILENCE)}
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


def collect_findings(
    database: DuckDBPyConnection, disk: StoreFolder, unreadable: Path
) -> tuple[StoreFinding, ...]:
    """Returns findings by source and kind.

    ``unreadable`` is the table of unreadable lines; it need not exist.
    """
    with database.cursor() as cursor:
        found = [
            *_line_findings(cursor, unreadable),
            *_row_findings(cursor, disk.month_files(QUARANTINE), "reason"),
            *_row_findings(
                cursor, disk.month_files(ROWS), parquet.sql_literal(Flaw.APPROXIMATE), "approximate"
            ),
            *_gap_findings(cursor, disk.month_files(ROWS, REPEATING_CLOUD)),
        ]
    return tuple(sorted(_merge_findings(found), key=lambda finding: (finding.source, finding.kind)))


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
        yield StoreFinding(source, Flaw(name), count, tuple(map(_row_text, rows)))


def _gap_findings(cursor: DuckDBPyConnection, files: tuple[Path, ...]) -> Iterator[StoreFinding]:
    if not files:
        return
    for source, name, count, rows in parquet.fetch_rows(
        cursor, _GAPS.format(rows=parquet.scan_expression(files)), files
    ):
        texts = (f"{_row_text(row)}, {row['after'] / _DAY_S:.1f} days after the row before" for row in rows)
        yield StoreFinding(source, Flaw(name), count, tuple(texts))


def _line_findings(cursor: DuckDBPyConnection, file: Path) -> Iterator[StoreFinding]:
    if not file.exists():
        return
    query = (
        f"SELECT source, reason, count(*), min(struct_pack(line := line, text := text), {EXAMPLES_KEPT}) "
        f"FROM {parquet.scan_expression([file])} GROUP BY source, reason"
    )
    for source, reason, count, lines in parquet.fetch_rows(cursor, query, [file]):
        texts = (line_text(one["line"], one["text"]) for one in lines)
        yield StoreFinding(source, Flaw(reason), count, tuple(texts))


def _row_text(row: dict[str, Any]) -> str:
    return row_text(Market(*row["market"]), row["time"], row["price"])


def _merge_findings(found: Iterable[StoreFinding]) -> Iterable[StoreFinding]:
    """Merges findings by source and flaw: unreadable lines may share both with rows."""
    merged: dict[tuple[str, Flaw], StoreFinding] = {}
    for one in found:
        before = merged.get((one.source, one.kind))
        # Examples of both, as many as one finding may show.
        if before is not None:
            examples = (*before.examples, *one.examples)[:EXAMPLES_KEPT]
            one = StoreFinding(one.source, one.kind, before.count + one.count, examples)
        merged[one.source, one.kind] = one
    return merged.values()
