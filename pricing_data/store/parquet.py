"""Reads and writes price rows as Parquet files, through DuckDB. The only module that knows DuckDB.

Rows of a file are sorted by series and time. So a file is read as numbers alone, and the row count of each
series tells which rows are its own. Times are whole seconds since 1970 (UTC); prices are dollars per hour,
NULL where the market was no longer listed. Judges no rows and knows no folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pricing_data.errors import StoreDamaged, StoreUnwritable
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Ints
from pricing_data.store.validation import FLAWS, RowPool, SeriesKey

if TYPE_CHECKING:
    import pandas as pd
    from duckdb import DuckDBPyConnection

_NAMES: Final = ("cloud", "region", "zone", "instance_type", "source")
_WRITTEN: Final = "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 16384)"
"""Small row groups let a query for one market skip most of its month."""


def open_database() -> DuckDBPyConnection:
    """Returns a database in memory that keeps the order of rows. Threads share it through cursors."""
    import duckdb

    connection = duckdb.connect(config={"preserve_insertion_order": True})
    connection.execute("set enable_progress_bar = false")  # it would go to standard output
    return connection


def sql_literal(path: Path | str) -> str:
    """Returns ``path`` as an SQL string literal."""
    return "'" + str(path).replace("'", "''") + "'"


def scan_expression(files: Sequence[Path], *options: str) -> str:
    """Returns the SQL expression that reads ``files``, in this order."""
    listed = ", ".join(map(sql_literal, files))
    return f"read_parquet({', '.join((f'[{listed}]', 'hive_partitioning = false', *options))})"


def write_pool(database: DuckDBPyConnection, path: Path, pool: RowPool, verdicts: Ints | None = None) -> None:
    """Writes the sorted ``pool`` to ``path``, through to the disk; ``verdicts`` become its flaws."""
    semantics = (Semantics.EVENT_STREAM, Semantics.POLLED)
    columns: dict[str, npt.NDArray[Any] | str] = {
        column: _text_column([name[place] for name in pool.series], pool.codes)
        for place, column in enumerate(_NAMES)
    }
    columns["semantics"] = _text_column(semantics, pool.polled.astype(np.int64))
    columns["approximate"] = pool.approximate
    columns["time_s"] = pool.times
    columns["price_usd_hour"] = pool.prices  # NaN becomes NULL
    columns["observed_s"] = pool.observed
    if verdicts is not None:
        columns["reason"] = _text_column(FLAWS, verdicts)
    write_columns(database, columns, path)


def _text_column(texts: Sequence[str], codes: Ints) -> npt.NDArray[np.object_] | str:
    """Returns the text of each row, or one text where all are the same: a constant is written much faster."""
    if len(set(texts)) == 1 or bool(np.all(codes == codes[0])):
        return str(texts[int(codes[0])])
    column = np.empty(len(texts), object)
    column[:] = [str(text) for text in texts]
    return column[codes]


def read_pool(
    database: DuckDBPyConnection, files: Sequence[Path], where: str = "true", values: Sequence[Any] = ()
) -> RowPool:
    """Returns the rows of ``files`` that satisfy ``where``, file by file.

    Raises StoreDamaged where a file cannot be read.
    """
    if not files:
        return _make_pool((), np.empty(0, np.int64), {})
    names = ", ".join(_NAMES)
    runs_of = (
        f"SELECT {names}, count(*) "
        f"FROM {scan_expression(files, 'filename = true', 'file_row_number = true')} "
        f"WHERE {where} GROUP BY filename, {names} "
        "ORDER BY list_position(?::VARCHAR[], filename), min(file_row_number)"
    )
    rows_of = (
        "SELECT time_s, price_usd_hour, observed_s, approximate, "
        f"semantics = {sql_literal(Semantics.POLLED)} AS polled "
        f"FROM {scan_expression(files, 'file_row_number = true')} "
        f"WHERE {where}"
    )
    # DuckDB turns a long IN into a join, and joins keep no order.
    if where != "true":
        rows_of += " ORDER BY file_index, file_row_number"
    try:
        with translate_interrupt(), database.cursor() as cursor:
            runs = cursor.execute(runs_of, [*values, [str(file) for file in files]]).fetchall()
            columns = cursor.execute(rows_of, list(values)).fetchnumpy()
    except database_error() as error:
        raise damaged_error(files, error) from error
    of_runs = [SeriesKey(*run[:5]) for run in runs]
    series = tuple(sorted(set(of_runs)))
    # Codes are positions among the sorted series, whatever the order of the files.
    place = {name: code for code, name in enumerate(series)}
    codes = np.repeat(np.array([place[name] for name in of_runs], np.int64), [run[5] for run in runs])
    return _make_pool(series, codes, columns)


def _make_pool(series: tuple[SeriesKey, ...], codes: Ints, columns: Mapping[str, Any]) -> RowPool:
    nothing = np.empty(0)

    def read_column(name: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        values = columns.get(name, nothing)
        return np.asarray(np.ma.filled(values, np.nan) if name == "price_usd_hour" else values, kind)

    return RowPool(
        series=series,
        codes=codes.astype(np.int64),
        times=read_column("time_s", np.int64),
        prices=read_column("price_usd_hour", np.float64),
        observed=read_column("observed_s", np.int64),
        polled=read_column("polled", np.bool_),
        approximate=read_column("approximate", np.bool_),
    )


@contextmanager
def translate_interrupt() -> Iterator[None]:
    """Raises KeyboardInterrupt for a Ctrl-C that DuckDB reports as an error of its own."""
    # DuckDB catches the signal and raises a RuntimeError; while it reads our columns, it wraps the interrupt.
    import duckdb

    try:
        yield
    except (RuntimeError, duckdb.Error) as error:
        struck = str(error) == "Query interrupted" or "KeyboardInterrupt" in str(error)
        if struck or isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from error
        raise


def database_error() -> type[Exception]:
    """Returns the base class of DuckDB's errors, without importing DuckDB at the top."""
    import duckdb

    return duckdb.Error


def damaged_error(files: Sequence[Path], error: Exception) -> StoreDamaged:
    """Returns an error that names the damaged one of ``files``, or their folder if DuckDB does not say."""
    text = str(error).splitlines()[0]
    which = next((str(file) for file in files if str(file) in text), str(files[0].parent))
    return StoreDamaged(which, text)


def write_columns(
    database: DuckDBPyConnection, columns: Mapping[str, npt.NDArray[Any] | str], path: Path
) -> None:
    """Writes ``columns`` to ``path``, through to the disk. A text stands for a constant column."""
    selected = [
        f"{sql_literal(held)} AS {name}" if isinstance(held, str) else name for name, held in columns.items()
    ]
    try:
        with translate_interrupt(), database.cursor() as cursor:
            cursor.register(
                "rows", {name: held for name, held in columns.items() if not isinstance(held, str)}
            )
            cursor.execute(f"COPY (SELECT {', '.join(selected)} FROM rows) TO {sql_literal(path)} {_WRITTEN}")
        with path.open("rb") as written:
            # A commit promises that its rows are on the disk.
            os.fsync(written.fileno())
    except (database_error(), OSError) as error:
        raise StoreUnwritable(str(path), str(error).splitlines()[0]) from error


def fetch_rows(
    cursor: DuckDBPyConnection, query: str, files: Sequence[Path], values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Returns the rows of a query over ``files``. Raises StoreDamaged where one of them cannot be read."""
    try:
        with translate_interrupt():
            return cursor.execute(query, list(values)).fetchall()
    except database_error() as error:
        raise damaged_error(files, error) from error


def fetch_frame(
    cursor: DuckDBPyConnection, query: str, files: Sequence[Path], values: Sequence[Any] = ()
) -> pd.DataFrame:
    """Returns the rows of a query as a DataFrame. Raises StoreDamaged as ``fetch_rows``."""
    try:
        with translate_interrupt():
            return cursor.execute(query, list(values)).df()
    except database_error() as error:
        raise damaged_error(files, error) from error
