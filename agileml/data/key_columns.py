"""Numbers the names in a key column, in DuckDB: 20 million rows of names take seconds.

Names are numbered in the order of their bytes, so the numbers follow from the input alone. They are held by
one of DuckDB's enumerations, which looks them up row by row without changing the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from agileml.data.array_files import read_arrays
from agileml.data.duckdb_files import (
    duckdb_name,
    open_database,
    quote_identifier,
    table_expression,
    wrap_read_errors,
)
from agileml.data.file_survey import InputFiles
from agileml.data.sources import FileFormat

Names = npt.NDArray[Any]

WHOLE_NUMBER: Final = (
    "case when {0} not like '%.%' and {0} not ilike '%e%' and {0} not like '0_%' "
    "then try_cast({0} as bigint) end"
)
"""Null where text is no whole number. 007 is a name: as a number it could not be told from 7."""
_BATCH_ROWS: Final = 65_536
"""Rows of NumPy files that are looked through at a time."""
_LOOKED_AT_FIRST: Final = 2048
"""Rows that are looked at first: names mostly show there, and then the whole file need not be read for it."""


def columns_with_names(
    connection: duckdb.DuckDBPyConnection, source: str, file: str, columns: Mapping[str, str]
) -> set[str]:
    """Returns which of ``columns`` hold anything but whole numbers; missing values are no names.

    ``columns``: by name, the expression for what is written. ``source`` takes the file as its parameter.
    """
    found: set[str] = set()
    for part in (f"(select * from {source} limit {_LOOKED_AT_FIRST})", source):
        rest = {name: written for name, written in columns.items() if name not in found}
        if not rest:
            break
        texts = {name: f"cast({written} as varchar)" for name, written in rest.items()}
        counts = ", ".join(
            f"count(*) filter ({text} is not null and {WHOLE_NUMBER.format(text)} is null)"
            for text in texts.values()
        )
        row = connection.execute(f"select {counts} from {part}", [file]).fetchone()
        assert row is not None
        found |= {name for name, names in zip(rest, row, strict=True) if names}
    return found


def find_key_names(files: InputFiles, keys: Sequence[str]) -> dict[str, Names]:
    """Returns the sorted names in each key column; columns that hold whole numbers alone are left out.

    A pass over the files finds which columns those are, and another one all their names.
    """
    named: set[str] = set()
    for file in files.names if keys else ():
        with wrap_read_errors(file, files.layout):
            # A column that has a name in one file has names in all: it is not looked at again.
            named |= _columns_with_names_in(files, file, [name for name in keys if name not in named])
    return {name: _find_distinct_names(files, name) for name in keys if name in named}


def _columns_with_names_in(files: InputFiles, file: str, keys: Sequence[str]) -> set[str]:
    """Returns which of the key columns hold anything but whole numbers in ``file``."""
    look = files.describe_file(file)
    columns = {name: look.assignment.columns[name] for name in keys}
    if not keys or look.empty or look.format is FileFormat.SVMLIGHT:
        return set()
    if look.format in (FileFormat.NPY, FileFormat.NPZ):
        blocks = next(read_arrays(files.filesystem, file, columns, 1), {})
        return {name for name, block in blocks.items() if block.dtype.kind in "US"}
    wanted = {name: quote_identifier(column) for name, column in columns.items()}
    with open_database(files.filesystem) as connection:
        where = duckdb_name(files.filesystem, file)
        return columns_with_names(connection, table_expression(look), where, wanted)


def _find_distinct_names(files: InputFiles, name: str) -> Names:
    with open_database(files.filesystem) as connection:
        found = DistinctNames(connection)
        for file in files.names:
            look = files.describe_file(file)
            column = look.assignment.columns[name]
            with wrap_read_errors(file, files.layout):
                if look.format in (FileFormat.NPY, FileFormat.NPZ):
                    for block in read_arrays(files.filesystem, file, {name: column}, _BATCH_ROWS):
                        found.add_names(block[name])
                elif not look.empty:
                    where = duckdb_name(files.filesystem, file)
                    found.add_query(table_expression(look), where, quote_identifier(column))
        return found.sorted_names()


class DistinctNames:
    """Collects the distinct names of one column, file by file."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        connection.execute("create temp table found (name varchar)")

    def add_names(self, names: Names) -> None:
        """Adds the names of an array."""
        frame = pd.DataFrame({"name": pd.unique(pd.Series(as_names(names)))})
        self._connection.register("frame", frame)
        self._connection.execute("insert into found select name from frame")
        self._connection.unregister("frame")

    def add_query(self, source: str, file: str, column: str) -> None:
        """Adds the names in ``column`` of ``source``, which takes the file as its parameter."""
        self._connection.execute(
            f"insert into found select distinct cast({column} as varchar) from {source} "
            f"where {column} is not null",
            [file],
        )

    def sorted_names(self) -> Names:
        """Returns all names once, in the order of their bytes."""
        ordered = self._connection.execute("select distinct name from found order by name").df()
        names: Names = ordered["name"].to_numpy(dtype=object)
        return names


def number_names(connection: duckdb.DuckDBPyConnection, column: str, names: Names) -> None:
    """Makes ``number_of_name`` known to ``connection``. ``names``: sorted and distinct."""
    connection.register("frame", pd.DataFrame({"name": names}))
    connection.execute(f"create type {_type_of(column)} as enum (select name from frame order by name)")
    connection.unregister("frame")


def number_of_name(column: str, written: str) -> str:
    """Returns the expression for the place of a name among those of ``column``; null for what is none."""
    return f"enum_code(try_cast(cast({written} as varchar) as {_type_of(column)}))"


def hash_of_name(written: str) -> str:
    """Returns the expression for a number of a key, whatever other keys there are; whole numbers stay."""
    text = f"cast({written} as varchar)"
    return f"coalesce({WHOLE_NUMBER.format(text)}, (hash({text}) >> 2)::bigint) + 0 * length({text})"


def hash_names(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Returns a number for each name of an array, whatever other names there are."""
    found: npt.NDArray[np.int64] = (pd.util.hash_array(as_names(values)) >> 2).astype(np.int64)
    return found


def as_names(values: npt.NDArray[Any]) -> Names:
    """Returns text of an array of NumPy text, bytes or numbers, as Python strings."""
    return values.astype(np.str_).astype(object)


def _type_of(column: str) -> str:
    return '"names of ' + column.replace('"', '""') + '"'
