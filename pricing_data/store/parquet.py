"""Reads and writes price rows as Parquet files, through DuckDB. The only module that knows DuckDB.

Rows of a file are sorted by series and time, so a file is read as numbers alone: the number of rows of each
series tells which rows belong to it. Times are whole seconds since 1970 (UTC) and prices dollars per hour,
and the columns say so; a price is NULL where the market was no longer listed. Judges no rows and knows no
folders.
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
"""Small row groups: one market is read without most of its month."""


def open_database() -> DuckDBPyConnection:
    """Returns a database in memory that keeps the order of rows. Threads may share it through cursors."""
    import duckdb

    connection = duckdb.connect(config={"preserve_insertion_order": True})
    connection.execute("set enable_progress_bar = false")  # it would be on standard output
    return connection


def sql_literal(path: Path | str) -> str:
    """Returns it as a string literal of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


def scan_expression(files: Sequence[Path], *options: str) -> str:
    """Returns what to select from to read ``files``, in this order."""
    listed = ", ".join(map(sql_literal, files))
    return f"read_parquet({', '.join((f'[{listed}]', 'hive_partitioning = false', *options))})"


def write_pool(database: DuckDBPyConnection, path: Path, pool: RowPool, verdicts: Ints | None = None) -> None:
    """Writes the sorted ``pool`` to ``path``, through to the disk; ``verdicts`` say what is wrong with it."""
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
    """Returns one text for all rows where it is the same for all, which is much quicker to write."""
    if len(set(texts)) == 1 or bool(np.all(codes == codes[0])):
        return str(texts[int(codes[0])])
    column = np.empty(len(texts), object)
    column[:] = [str(text) for text in texts]
    return column[codes]


def read_pool(
    database: DuckDBPyConnection, files: Sequence[Path], where: str = "true", values: Sequence[Any] = ()
) -> RowPool:
    """Returns the rows of ``files`` that satisfy ``where``, file by file.

    Raises StoreDamaged if it cannot.
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
    if where != "true":  # a long IN becomes a join, and joins keep no order
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
    """Turns Ctrl-C while DuckDB works into a KeyboardInterrupt, whatever DuckDB makes of it.

    DuckDB hears of it first and calls it a RuntimeError. Or the interrupt strikes while DuckDB reads our
    columns, and is wrapped in an error of its own.
    """
    import duckdb

    try:
        yield
    except (RuntimeError, duckdb.Error) as error:
        struck = str(error) == "Query interrupted" or "KeyboardInterrupt" in str(error)
        if struck or isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from error
        raise


def database_error() -> type[Exception]:
    """Returns what DuckDB raises."""
    import duckdb

    return duckdb.Error


def damaged_error(files: Sequence[Path], error: Exception) -> StoreDamaged:
    """Returns an error that names which of ``files`` it was, as far as DuckDB tells."""
    text = str(error).splitlines()[0]
    which = next((str(file) for file in files if str(file) in text), str(files[0].parent))
    return StoreDamaged(which, text)


def write_columns(
    database: DuckDBPyConnection, columns: Mapping[str, npt.NDArray[Any] | str], path: Path
) -> None:
    """Writes ``columns`` to ``path``, through to the disk. A text stands for a column of it."""
    said = [
        f"{sql_literal(held)} AS {name}" if isinstance(held, str) else name for name, held in columns.items()
    ]
    try:
        with translate_interrupt(), database.cursor() as cursor:
            cursor.register(
                "rows", {name: held for name, held in columns.items() if not isinstance(held, str)}
            )
            cursor.execute(f"COPY (SELECT {', '.join(said)} FROM rows) TO {sql_literal(path)} {_WRITTEN}")
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
    """Returns the same as a DataFrame."""
    try:
        with translate_interrupt():
            return cursor.execute(query, list(values)).df()
    except database_error() as error:
        raise damaged_error(files, error) from error
