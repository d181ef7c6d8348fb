"""Opens DuckDB on one file: its name, its table, and what its errors mean.

Text stays text: what is a number, the expressions of ``tables`` decide. By itself DuckDB would guess.
"""

from __future__ import annotations

import csv
import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from zipfile import BadZipFile

import duckdb

from agileml.api import ApplicationError, Columns
from agileml.data.column_names import TextLayout
from agileml.data.file_survey import FileDescription
from agileml.data.sources import DOCWORD_HEAD, FileFormat, is_local


@contextmanager
def wrap_read_errors(file: str, columns: Columns) -> Iterator[None]:
    """Raises ApplicationError, which names the file, for what goes wrong while it is read.

    ``columns``: the layout that was expected of it.
    """
    try:
        yield
    except duckdb.Error as error:
        problem = _describe_error(str(error))
        expected = f"; expected the columns {columns}" if problem.startswith(", line ") else ""
        raise ApplicationError(f"{file}{problem}{expected}") from error
    except (OSError, ValueError, EOFError, BadZipFile, csv.Error) as error:
        raise ApplicationError(f"cannot read {file}: {error}") from error


@contextmanager
def open_database(filesystem: Any) -> Iterator[duckdb.DuckDBPyConnection]:
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


def duckdb_name(filesystem: Any, file: str) -> str:
    """Returns a file's name for DuckDB, which takes every name for a pattern."""
    return glob.escape(file if is_local(filesystem) else str(filesystem.unstrip_protocol(file)))


def table_expression(look: FileDescription) -> str:
    """Returns the table that DuckDB makes of a file, which is its parameter; text stays text."""
    if look.format is FileFormat.SVMLIGHT:
        return SVMLIGHT_SOURCE
    return (
        "read_parquet(?)" if look.text is None else _read_csv(look.text, DOCWORD_HEAD if look.docword else 0)
    )


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


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def parquet_columns(filesystem: Any, file: str) -> list[str]:
    """Returns the columns of a Parquet file. Raises ApplicationError where it is none."""
    try:
        with open_database(filesystem) as connection:
            described = connection.execute(
                "describe select * from read_parquet(?)", [duckdb_name(filesystem, file)]
            )
            return [row[0] for row in described.fetchall()]
    except duckdb.Error as error:
        raise ApplicationError(f"{file}{_describe_error(str(error))}") from error


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
