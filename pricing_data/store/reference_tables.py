"""Stores everything besides prices: rates, types, list prices, probes, lifetimes, unreadable rows.

Small tables, one Parquet file each, replaced whole. Of several rows with one key, the last observed stays (of
those, the greatest): published rates are still corrected for days. So a table, too, is a function of the set
of rows that were added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pricing_data.store import parquet
from pricing_data.store.commit_log import replace_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Describes one kind of table: the ``keys`` first columns identify a row; the last is ``observed_s``."""

    name: str
    columns: tuple[str, ...]
    kinds: tuple[type, ...]
    """The type of each column."""
    keys: int


_MARKET: Final = ("cloud", "region", "zone", "instance_type")
RATES: Final = TableSchema(
    "rates",
    (*_MARKET, "source", "begin_s", "end_s", "low", "high", "per_s", "observed_s"),
    (str, str, str, str, str, int, int, float, float, float, int),
    keys=7,
)
TYPES: Final = TableSchema(
    "types",
    ("cloud", "instance_type", "vcpus", "memory_gib", "gpus", "gpu_name", "source", "observed_s"),
    (str, str, int, float, int, str, str, int),
    keys=2,
)
ON_DEMAND: Final = TableSchema(
    "on_demand",
    ("cloud", "region", "instance_type", "valid_from_s", "price_usd_hour", "source", "observed_s"),
    (str, str, str, int, float, str, int),
    keys=4,
)
PROBES: Final = TableSchema(
    "probes",
    (*_MARKET, "source", "time_s", "available", "observed_s"),
    (str, str, str, str, str, int, int, int),
    keys=7,
)
"""``available`` is part of the key: two counts for one moment are both kept, and the reader decides."""
LIFETIMES: Final = TableSchema(
    "lifetimes",
    (*_MARKET, "source", "begin_s", "rank", "end_s", "lost", "observed_s"),
    (str, str, str, str, str, int, int, int, int, int),
    keys=7,
)
"""``rank`` numbers the machines of one source that began at one moment, in the order of their ends."""
SEEN: Final = TableSchema(
    "seen",
    ("source", "cloud", "region", "observed_s"),
    (str, str, str, int),
    keys=3,
)
"""When each source last mentioned a region: a repeated price row keeps the time of its first observation."""
UNREADABLE: Final = TableSchema(
    "unreadable",
    ("source", "line", "reason", "text", "observed_s"),
    (str, int, str, str, int),
    keys=4,
)


@dataclass(frozen=True, slots=True)
class ReferenceTables:
    """Manages a store's tables. Only a holder of the ``merging`` lock may add to them."""

    root: Path
    database: DuckDBPyConnection

    def table_path(self, kind: TableSchema) -> Path:
        return self.root / "tables" / f"{kind.name}.parquet"

    def signature(self, *kinds: TableSchema) -> tuple[object, ...]:
        """Returns a value that changes when one of the tables is replaced."""
        return tuple(self._file_signature(self.table_path(kind)) for kind in kinds)

    @staticmethod
    def _file_signature(path: Path) -> object:
        try:
            now = path.stat()
        except FileNotFoundError:
            return None
        # Tables are replaced whole, so new content has a new inode.
        return now.st_ino, now.st_mtime_ns, now.st_size

    def read_rows(self, kind: TableSchema) -> list[Row]:
        """Returns all rows, sorted."""
        if not self.table_path(kind).exists():
            return []
        with self.database.cursor() as cursor:
            query = (
                f"SELECT {', '.join(kind.columns)} FROM {parquet.scan_expression([self.table_path(kind)])}"
            )
            return parquet.fetch_rows(cursor, query, [self.table_path(kind)])

    def new_rows(self, kind: TableSchema, rows: Iterable[Row]) -> list[Row]:
        """Returns the rows that adding would keep: those with new keys, or newer than the stored row."""
        before = {row[: kind.keys]: row for row in self.read_rows(kind)}
        after = dict(before)
        for row in rows:
            key = row[: kind.keys]
            # Ties go to the greatest row, so the order of arrival does not matter.
            if key not in after or _newness_key(row) > _newness_key(after[key]):
                after[key] = row
        return [row for key, row in after.items() if before.get(key) != row]

    def add_rows(self, kind: TableSchema, rows: Iterable[Row]) -> int:
        """Adds ``rows``; returns how many are new or changed, not merely observed again."""
        before = {row[: kind.keys]: row for row in self.read_rows(kind)}
        news = {row[: kind.keys]: row for row in self.new_rows(kind, rows)}
        if news:
            self._write_table(kind, sorted({**before, **news}.values()))
        # The last column is the time of observation, which does not count.
        return sum(1 for key, row in news.items() if key not in before or row[:-1] != before[key][:-1])

    def _write_table(self, kind: TableSchema, rows: list[Row]) -> None:
        columns: dict[str, Any] = {}
        for place, (name, held) in enumerate(zip(kind.columns, kind.kinds, strict=True)):
            columns[name] = np.empty(len(rows), object if held is str else held)
            # Filled in place: from a list of texts, numpy would make a column of fixed width.
            columns[name][:] = [row[place] for row in rows]
        path = self.table_path(kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place and renamed, so a killed process leaves the old table whole.
        parquet.write_columns(self.database, columns, path.with_suffix(".new"))
        replace_file(path.with_suffix(".new"), path)


def _newness_key(row: Row) -> Row:
    return (row[-1], *row)
