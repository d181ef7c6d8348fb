"""Reads the input as its owner keeps it: rows in text, Parquet or NumPy files, in batches of bounded size.

One file or many (a glob, or a folder), on this disk or behind any URL that fsspec knows. Files are taken in
the order of their names, rows in the order they have. DuckDB reads text (CSV and its relatives, docword,
svmlight) and Parquet; ``.npy`` and ``.npz`` are read through their own headers. Keys that are names are
numbered by ``agileml.data.key_columns``. This module knows columns and their kinds, but no shards or models.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from agileml.api import ApplicationError, Arrays, Called, Columns, Kind
from agileml.data.array_files import read_arrays
from agileml.data.cell_values import EXPECTED, Column, WrongCell, WrongColumn, convert_values
from agileml.data.column_names import NONE_CALLED
from agileml.data.duckdb_files import (
    duckdb_name,
    open_database,
    quote_identifier,
    table_expression,
    wrap_read_errors,
)
from agileml.data.file_survey import InputFiles, parquet_names
from agileml.data.key_columns import (
    WHOLE_NUMBER,
    as_names,
    find_key_names,
    hash_names,
    hash_of_name,
    number_names,
    number_of_name,
)
from agileml.data.sources import Docword, FileFormat, detect_format, read_vocabulary

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
        # DuckDB hands out whole vectors, so a batch is a multiple of them.
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
            # Text does not store its number of rows, so a pass counts them.
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
        with wrap_read_errors(file, self.layout):
            for raw in read(file):
                yield {name: self._convert_column(file, first, name, values) for name, values in raw.items()}
                first += len(next(iter(raw.values())))

    # ---- columns -------------------------------------------------------------------------------

    def _column_kind(self, name: str) -> Kind | None:
        return self.layout.needed.get(name, self.layout.others)

    def _convert_column(self, file: str, first: int, name: str, values: Column | pd.Series[Any]) -> Column:
        """Converts ``values`` by their kind; ``first``: how many rows of the file came before them."""
        kind = self._column_kind(name) or Kind.TEXT
        try:
            return convert_values(values, kind)
        except WrongColumn as wrong:
            raise ApplicationError(
                f"{file}: column {name} holds {wrong}, expected {EXPECTED[kind]}"
            ) from wrong
        except WrongCell as wrong:
            written = wrong.written
            if written is None and detect_format(file) is FileFormat.CSV:
                # Text that is no number became null: what is written there is read again.
                written = self._read_cell(file, name, first + wrong.row)
            where = f"{file}, row {first + wrong.row + 1}, column {name}"
            raise ApplicationError(
                f"{where}: found {written or 'nothing'}, expected {EXPECTED[kind]}"
            ) from wrong

    @property
    def _key_columns(self) -> list[str]:
        return [name for name, kind in self.layout.needed.items() if kind is Kind.KEY]

    @property
    def _key_names(self) -> Mapping[str, Column]:
        """The sorted names in each key column; columns that hold whole numbers alone are left out."""
        if self._names is None:
            self._names = find_key_names(self._input, self._key_columns if self.exact_keys else [])
        return self._names

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
            written = quote_identifier(column)
            if name in self._key_names:
                parsed[name] = number_of_name(name, written)
            elif self._column_kind(name) is Kind.KEY and not self.exact_keys:
                parsed[name] = hash_of_name(written)
            else:
                parsed[name] = (
                    _FROM_TEXT[self._column_kind(name) or Kind.TEXT].format(written) if text else written
                )
        rows = self._run_query(file, table_expression(look), parsed)
        return rows if look.docword is None else _check_docword(file, look.docword, rows)

    def _read_with_numpy(self, file: str) -> Iterator[Mapping[str, Any]]:
        """Reads NumPy's files, and replaces names by their numbers."""
        columns = self._input.describe_file(file).assignment.columns
        # Made once a file, not for each batch.
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
        with open_database(self._filesystem) as connection:
            column = quote_identifier(look.assignment.columns[name])
            query = f"select {column} from {table_expression(look)} limit 1 offset {row}"
            found = connection.execute(query, [duckdb_name(self._filesystem, file)]).fetchone()
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
            f"{expression} as {quote_identifier(name)}" for name, expression in selected.items()
        )
        with open_database(self._filesystem) as connection:
            for name, names in self._key_names.items():
                number_names(connection, name, names)
            result = connection.execute(
                f"select {columns} from {source}", [duckdb_name(self._filesystem, file)]
            )
            while len(frame := result.fetch_df_chunk(self._batch_size(selected) // _VECTOR_ROWS)):
                yield {name: frame[name] for name in selected}

    def _batch_size(self, columns: Collection[str]) -> int:
        """Returns how many rows of so many columns are a batch."""
        # Wide tables get fewer rows a batch, so that memory stays bounded in cells.
        vectors = _BATCH_CELLS // len(columns) // _VECTOR_ROWS
        return min(self._batch_rows, max(1, vectors) * _VECTOR_ROWS)


def _check_docword(
    file: str, head: Docword, batches: Iterator[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yields the batches. Raises ApplicationError where a docword file has other rows than its head says, or
    words beyond its last.
    """
    rows = 0
    for batch in batches:
        rows += len(batch["word"])
        # A head that understates the words would number them beyond the vocabulary.
        beyond = batch["word"].max()
        if beyond > head.words:
            raise ApplicationError(f"{file}: found word {beyond}, and line 2 says {head.words} words")
        if batch["word"].min() < 1:
            raise ApplicationError(f"{file}: found word {batch['word'].min()}, expected words from 1")
        yield batch
    if rows != head.rows:
        raise ApplicationError(f"{file}: found {rows} rows, and line 3 says {head.rows}")
