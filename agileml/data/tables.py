"""Reads the input as its owner keeps it: rows in text, Parquet or NumPy files, in batches of bounded size.

One file or many (a glob, or a folder), on this disk or behind any URL that fsspec knows. Files are taken in
the order of their names, rows in the order they have. DuckDB reads text (CSV and its relatives, docword,
svmlight) and Parquet; ``.npy`` and ``.npz`` are read through their own headers. Keys that are names are
numbered by ``agileml.data.key_columns``. This module knows columns and their kinds, but no shards or models.
"""

from __future__ import annotations

import csv
import glob
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, cast
from zipfile import BadZipFile

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from agileml.api import ApplicationError, Arrays, Called, Columns, Kind
from agileml.data.array_files import read_arrays
from agileml.data.column_names import NONE_CALLED, TextLayout
from agileml.data.file_survey import FileDescription, InputFiles, parquet_names
from agileml.data.key_columns import (
    WHOLE_NUMBER,
    DistinctNames,
    as_names,
    columns_with_names,
    hash_names,
    hash_of_name,
    number_names,
    number_of_name,
)
from agileml.data.sources import DOCWORD_HEAD, Docword, FileFormat, detect_format, is_local, read_vocabulary

Column: TypeAlias = npt.NDArray[Any]

_BATCH_ROWS: Final = 65_536
"""Rows of a batch: half a megabyte for a column of numbers."""
_BATCH_CELLS: Final = 1 << 19
"""Cells of a batch in tables with many columns, whose batches have fewer rows."""
_VECTOR_ROWS: Final = 2048
"""Rows in one of DuckDB's vectors."""
_FROM_TEXT: Final[Mapping[Kind, str]] = {
    Kind.INTEGER: "case when {0} not like '%.%' and {0} not ilike '%e%' then try_cast({0} as bigint) end",
    Kind.NUMBER: "try_cast({0} as double)",
    Kind.TEXT: "{0}",
    Kind.KEY: WHOLE_NUMBER,
}
"""How DuckDB converts text. Anything else becomes null; by itself DuckDB would round
1.5 to a whole number.
"""
_EXPECTED: Final[Mapping[Kind, str]] = {
    Kind.INTEGER: "a whole number (int64)",
    Kind.NUMBER: "a finite number",
    Kind.TEXT: "text",
    Kind.KEY: "a whole number (int64) or a name",
}


class Table:
    """The rows of an input.

    ``location``: a file, a folder, a glob, or a URL of one. Raises ApplicationError if nothing is there.
    ``called``: the columns that the job names, by the application's names for them. Every ``batches()`` is a
    pass over all of it, in memory that does not grow with it. ``after_batch`` is called after each batch, and
    may raise to give up.
    """

    exact_keys: ClassVar[bool] = True
    """Whether names are numbered by their order among all names; else by a hash, which
    needs no extra pass.
    """

    def __init__(
        self,
        location: str | Path,
        columns: Columns,
        batch_rows: int = _BATCH_ROWS,
        after_batch: Callable[[], None] = lambda: None,
        called: Called = NONE_CALLED,
    ) -> None:
        self.location = str(location)
        self._input = InputFiles(self.location, columns, called, parquet_names)
        self._batch_rows = max(_VECTOR_ROWS, batch_rows // _VECTOR_ROWS * _VECTOR_ROWS)
        self._after_batch = after_batch
        self._filesystem, self._files = self._input.filesystem, self._input.names
        self._rows: int | None = None
        self._names: Mapping[str, Column] | None = None

    @property
    def layout(self) -> Columns:
        """The layout that the input has, of those that the application reads."""
        return self._input.layout

    def named(self, name: str, keys: npt.NDArray[np.int64]) -> Column:
        """Returns what ``keys`` of the key column ``name`` are in the input: numbers, or names as text."""
        names = self._key_names.get(name)
        if names is None and name == "word" and (vocabulary := self._read_words()) is not None:
            return np.array(vocabulary)[keys - 1]
        return keys if names is None else names[keys].astype(np.str_)

    @property
    def rows(self) -> int:
        """The number of rows; known after the first whole pass, which is made where there was none."""
        if self._rows is None:
            for _ in self.batches():
                pass
        return cast(int, self._rows)

    def batches(self) -> Iterator[Arrays]:
        """Yields columns by name, one row on each first axis: int64, float64, or ``str`` objects by their
        kind.

        Raises ApplicationError, with file, row, column, and what was expected there.
        """
        rows = 0
        for file in self._files:
            for batch in self._read_file(file):
                rows += len(next(iter(batch.values())))
                yield batch
                self._after_batch()
        if not rows:
            raise ApplicationError(f"{self.location} has no rows")
        self._rows = rows

    def _read_file(self, file: str) -> Iterator[Arrays]:
        read = (
            self._read_with_numpy
            if detect_format(file) in (FileFormat.NPY, FileFormat.NPZ)
            else self._read_with_duckdb
        )
        first = 0
        with self._wrap_read_errors(file):
            for raw in read(file):
                yield {name: self._convert_column(file, first, name, values) for name, values in raw.items()}
                first += len(next(iter(raw.values())))

    @contextmanager
    def _wrap_read_errors(self, file: str) -> Iterator[None]:
        """Raises ApplicationError, which names the file, for what goes wrong while it is read."""
        try:
            yield
        except duckdb.Error as error:
            problem = _describe_error(str(error))
            expected = f"; expected the columns {self.layout}" if problem.startswith(", line ") else ""
            raise ApplicationError(f"{file}{problem}{expected}") from error
        except (OSError, ValueError, EOFError, BadZipFile, csv.Error) as error:
            raise ApplicationError(f"cannot read {file}: {error}") from error

    # ---- columns -------------------------------------------------------------------------------

    def _column_kind(self, name: str) -> Kind | None:
        return self.layout.needed.get(name, self.layout.others)

    def _convert_column(self, file: str, first: int, name: str, values: Column | pd.Series[Any]) -> Column:
        """Converts ``values`` by their kind; ``first``: how many rows of the file came before them."""
        kind = self._column_kind(name) or Kind.TEXT
        if kind is Kind.TEXT and isinstance(values, pd.Series):
            values = values.fillna("")  # CSV does not tell empty text from none
        found = values.to_numpy() if isinstance(values, pd.Series) else values
        missing = np.asarray(pd.isna(values)).reshape(len(found), -1).any(axis=1)
        if missing.any():
            raise self._wrong_value(file, first, name, kind, int(np.argmax(missing)), None)
        if kind is Kind.TEXT:
            return found.astype(object)
        if found.dtype.kind not in "iufb":
            raise ApplicationError(f"{file}: column {name} holds {found.dtype}, expected {_EXPECTED[kind]}")
        converted = found.astype(np.float64)
        fits = np.isfinite(converted)
        whole = kind in (Kind.INTEGER, Kind.KEY)
        if whole:
            fits &= _fits_int64(found)
        wrong = ~fits.reshape(len(found), -1).all(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self._wrong_value(file, first, name, kind, row, repr(found[row].tolist()))
        return found.astype(np.int64) if whole else converted

    def _wrong_value(
        self, file: str, first: int, name: str, kind: Kind, row: int, written: str | None
    ) -> ApplicationError:
        """Returns the error for a wrong value. ``written``: what is there, if known; CSV is read again."""
        if written is None and detect_format(file) is FileFormat.CSV:
            written = self._read_cell(file, name, first + row)
        where = f"{file}, row {first + row + 1}, column {name}"
        return ApplicationError(f"{where}: found {written or 'nothing'}, expected {_EXPECTED[kind]}")

    # ---- keys ----------------------------------------------------------------------------------

    @property
    def _key_columns(self) -> list[str]:
        return [name for name, kind in self.layout.needed.items() if kind is Kind.KEY]

    @property
    def _key_names(self) -> Mapping[str, Column]:
        """The sorted names in each key column; columns that hold whole numbers alone are left out."""
        if self._names is None:
            keys = self._key_columns if self.exact_keys else []
            named: set[str] = set()
            for file in self._files if keys else ():
                with self._wrap_read_errors(file):
                    named |= self._holding_names(file, [name for name in keys if name not in named])
            self._names = {name: self._distinct_names(name) for name in keys if name in named}
        return self._names

    def _holding_names(self, file: str, keys: Sequence[str]) -> set[str]:
        """Returns which of the key columns hold anything but whole numbers in ``file``."""
        look = self._input.describe_file(file)
        columns = {name: look.assignment.columns[name] for name in keys}
        if not keys or look.empty or look.format is FileFormat.SVMLIGHT:
            return set()
        if look.format in (FileFormat.NPY, FileFormat.NPZ):
            blocks = next(read_arrays(self._filesystem, file, columns, 1), {})
            return {name for name, block in blocks.items() if block.dtype.kind in "US"}
        wanted = {name: _quote_identifier(column) for name, column in columns.items()}
        with self._open_database() as connection:
            return columns_with_names(connection, self._names_source(look), self._duckdb_name(file), wanted)

    def _names_source(self, look: FileDescription) -> str:
        """Returns the table in which DuckDB looks for names: all of the file."""
        return _table_expression(look)

    def _distinct_names(self, name: str) -> Column:
        with self._open_database() as connection:
            found = DistinctNames(connection)
            for file in self._files:
                look = self._input.describe_file(file)
                column = look.assignment.columns[name]
                with self._wrap_read_errors(file):
                    if look.format in (FileFormat.NPY, FileFormat.NPZ):
                        for block in read_arrays(self._filesystem, file, {name: column}, self._batch_rows):
                            found.add_names(block[name])
                    elif not look.empty:
                        found.add_query(
                            self._names_source(look), self._duckdb_name(file), _quote_identifier(column)
                        )
            return found.sorted_names()

    # ---- formats -------------------------------------------------------------------------------

    def _read_with_duckdb(self, file: str) -> Iterator[Mapping[str, Any]]:
        """Reads text and Parquet."""
        look = self._input.describe_file(file)
        if look.empty:
            return iter(())
        # Columns of text files arrive as text: these expressions decide what is a number, not DuckDB.
        text = look.format is not FileFormat.PARQUET
        parsed = {}
        for name, column in look.assignment.columns.items():
            written = _quote_identifier(column)
            if name in self._key_names:
                parsed[name] = number_of_name(name, written)
            elif self._column_kind(name) is Kind.KEY and not self.exact_keys:
                parsed[name] = hash_of_name(written)
            else:
                parsed[name] = (
                    _FROM_TEXT[self._column_kind(name) or Kind.TEXT].format(written) if text else written
                )
        rows = self._run_query(file, _table_expression(look), parsed)
        return rows if look.docword is None else _check_docword(file, look.docword, rows)

    def _read_with_numpy(self, file: str) -> Iterator[Mapping[str, Any]]:
        """Reads NumPy's files, and replaces names by their numbers."""
        columns = self._input.describe_file(file).assignment.columns
        places = {name: pd.Index(names) for name, names in self._key_names.items()}
        for batch in read_arrays(self._filesystem, file, columns, self._batch_size(columns)):
            found = {name: places[name].get_indexer(pd.Index(as_names(batch[name]))) for name in places}
            if not self.exact_keys:
                found |= {
                    name: hash_names(batch[name])
                    for name in self._key_columns
                    if batch[name].dtype.kind in "US"
                }
            yield {**batch, **found}

    def _read_cell(self, file: str, name: str, row: int) -> str | None:
        look = self._input.describe_file(file)
        with self._open_database() as connection:
            column = _quote_identifier(look.assignment.columns[name])
            query = f"select {column} from {_table_expression(look)} limit 1 offset {row}"
            found = connection.execute(query, [self._duckdb_name(file)]).fetchone()
        return None if found is None or found[0] is None else repr(found[0])

    def _read_words(self) -> list[str] | None:
        """Returns the words of a docword file, where it has a vocabulary beside it."""
        docword = self._input.describe_file(self._files[0]).docword
        if docword is None:
            return None
        return read_vocabulary(self._filesystem, self._files[0], docword.words)

    def _run_query(self, file: str, source: str, selected: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """Yields the results of a query. ``selected``: names, and the expressions for them."""
        columns = ", ".join(
            f"{expression} as {_quote_identifier(name)}" for name, expression in selected.items()
        )
        with self._open_database() as connection:
            for name, names in self._key_names.items():
                number_names(connection, name, names)
            result = connection.execute(f"select {columns} from {source}", [self._duckdb_name(file)])
            while len(frame := result.fetch_df_chunk(self._batch_size(selected) // _VECTOR_ROWS)):
                yield {name: frame[name] for name in selected}

    def _batch_size(self, columns: Collection[str]) -> int:
        """Returns how many rows of so many columns are a batch."""
        vectors = _BATCH_CELLS // len(columns) // _VECTOR_ROWS
        return min(self._batch_rows, max(1, vectors) * _VECTOR_ROWS)

    def _open_database(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return _open_database(self._filesystem)

    def _duckdb_name(self, file: str) -> str:
        return _duckdb_name(self._filesystem, file)


def parquet_columns(filesystem: Any, file: str) -> list[str]:
    """Returns the columns of a Parquet file. Raises ApplicationError where it is none."""
    try:
        with _open_database(filesystem) as connection:
            described = connection.execute(
                "describe select * from read_parquet(?)", [_duckdb_name(filesystem, file)]
            )
            return [row[0] for row in described.fetchall()]
    except duckdb.Error as error:
        raise ApplicationError(f"{file}{_describe_error(str(error))}") from error


@contextmanager
def _open_database(filesystem: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a database of one thread that fetches nothing from elsewhere: remote files come through fsspec.

    Raises KeyboardInterrupt for what a signal ends, for which DuckDB has errors of its own.
    """
    off = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(config={"threads": "1", **off})
    connection.execute("set enable_progress_bar = false")  # it would be on standard output
    if not is_local(filesystem):
        connection.register_filesystem(filesystem)
    try:
        yield connection
    except (RuntimeError, duckdb.Error) as error:
        struck = str(error) == "Query interrupted" or "KeyboardInterrupt" in str(error)
        if struck or isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from error
        raise
    finally:
        connection.close()


def _duckdb_name(filesystem: Any, file: str) -> str:
    """Returns a file's name for DuckDB, which takes every name for a pattern."""
    return glob.escape(file if is_local(filesystem) else str(filesystem.unstrip_protocol(file)))


def _table_expression(look: FileDescription) -> str:
    """Returns the table that DuckDB makes of a file, which is its parameter; text stays text."""
    if look.format is FileFormat.SVMLIGHT:
        return SVMLIGHT_SOURCE
    return (
        "read_parquet(?)" if look.text is None else _read_csv(look.text, DOCWORD_HEAD if look.docword else 0)
    )


def _check_docword(
    file: str, head: Docword, batches: Iterator[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yields the batches. Raises ApplicationError where a docword file has other rows than its head says, or
    words beyond its last.
    """
    rows = 0
    for batch in batches:
        rows += len(batch["word"])
        beyond = batch["word"].max()
        if beyond > head.words:
            raise ApplicationError(f"{file}: found word {beyond}, and line 2 says {head.words} words")
        if batch["word"].min() < 1:
            raise ApplicationError(f"{file}: found word {batch['word'].min()}, expected words from 1")
        yield batch
    if rows != head.rows:
        raise ApplicationError(f"{file}: found {rows} rows, and line 3 says {head.rows}")


def _fits_int64(values: Column) -> npt.NDArray[np.bool_]:
    """Whether each value stays the same number; NumPy would wrap those that do not, without a word."""
    fits: npt.NDArray[np.bool_]
    if values.dtype.kind == "f":
        wide = values.astype(np.float64)
        fits = (wide == np.floor(wide)) & (wide >= -(2.0**63)) & (wide < 2.0**63)
    else:
        fits = values <= np.iinfo(np.int64).max
    return fits


def _read_csv(layout: TextLayout, skip: int = 0) -> str:
    """Returns the table function by which DuckDB reads a text file, all of it as text."""
    types = ", ".join(f"{_quote_literal(name)}: 'VARCHAR'" for name in layout.names)
    return (
        f"read_csv(?, header = {layout.header}, skip = {skip}, delim = {_quote_literal(layout.delimiter)}, "
        f"auto_detect = false, columns = {{{types}}})"
    )


SVMLIGHT_SOURCE: Final = """(
    select doc, split_part(pair, ':', 1) as word, split_part(pair, ':', 2) as count from (
        select doc, unnest(list_filter(
            string_split(split_part(line, '#', 1), ' '),
            lambda term: term like '%:%' and term not like 'qid:%'
        )) as pair from (
            select (row_number() over () - 1)::varchar as doc, line from read_csv(
                ?, header = false, auto_detect = false, delim = '\x01', quote = '', escape = '',
                columns = {'line': 'VARCHAR'}
            )
        )
    )
)"""
"""A row for each pair of an svmlight file; documents are its lines, from 0."""


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_LINE: Final = re.compile(r"CSV Error on Line: (\d+)")
_WRITTEN: Final = re.compile(r"Original Line:\s?(.*)")
_COUNT: Final = re.compile(r"Expected Number of Columns: \d+ Found: \d+")


def _describe_error(error: str) -> str:
    """Returns what DuckDB found wrong, and where, without its advice."""
    line, written = _LINE.search(error), _WRITTEN.search(error)
    if line is None or written is None:
        return f": {error.splitlines()[0]}"
    count = _COUNT.search(error)
    return f", line {line[1]}: found {written[1]!r}; {count[0] if count else error.splitlines()[0]}"
