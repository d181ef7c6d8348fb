"""The input as its owner keeps it: rows in CSV, Parquet or NumPy files, read in batches of bounded size.

One file or many (a glob, or a folder), on this disk or behind any URL that fsspec knows. Files are taken
in the order of their names, rows in the order they have. DuckDB reads CSV (``.csv``, ``.csv.gz``) and
Parquet; ``.npy`` and ``.npz`` are read through their own headers. This module knows columns and their
kinds, and refuses to know shards or models.
"""

from __future__ import annotations

import csv
import glob
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias, cast
from zipfile import BadZipFile, ZipFile

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
from fsspec.core import url_to_fs

from agileml.app import ApplicationError, Arrays, Columns, Kind

Column: TypeAlias = npt.NDArray[Any]

_BATCH_ROWS: Final = 65_536
"""Half a megabyte a column of numbers."""
_VECTOR_ROWS: Final = 2048
"""Rows in one of DuckDB's vectors."""
_FROM_TEXT: Final[Mapping[Kind, str]] = {
    Kind.INTEGER: "case when {0} not like '%.%' and {0} not ilike '%e%' then try_cast({0} as bigint) end",
    Kind.NUMBER: "try_cast({0} as double)",
    Kind.TEXT: "{0}",
}
"""What is none becomes null. DuckDB by itself would round 1.5 to a whole number."""
_EXPECTED: Final[Mapping[Kind, str]] = {
    Kind.INTEGER: "a whole number (int64)",
    Kind.NUMBER: "a finite number",
    Kind.TEXT: "text",
}


class _Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    NPY = "npy"
    NPZ = "npz"


_SUFFIXES: Final[Mapping[str, _Format]] = {
    ".csv": _Format.CSV,
    ".csv.gz": _Format.CSV,
    ".parquet": _Format.PARQUET,
    ".npy": _Format.NPY,
    ".npz": _Format.NPZ,
}


class Table:
    """``location``: a file, a folder, a glob, or a URL of one. Raises ApplicationError if nothing is there.

    Every ``batches()`` is a pass over all of it, in memory that does not grow with it. ``after_batch`` is
    called after each batch, and may raise to give up.
    """

    def __init__(
        self,
        location: str | Path,
        columns: Columns,
        batch_rows: int = _BATCH_ROWS,
        after_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self.location = str(location)
        self._columns = columns
        self._batch_rows = max(_VECTOR_ROWS, batch_rows // _VECTOR_ROWS * _VECTOR_ROWS)
        self._after_batch = after_batch
        self._filesystem, self._files = _find(self.location)
        self._rows: int | None = None

    @property
    def rows(self) -> int:
        """How many there are; known after the first whole pass, which is made where there was none."""
        if self._rows is None:
            for _ in self.batches():
                pass
        return cast(int, self._rows)

    def batches(self) -> Iterator[Arrays]:
        """Columns by name, one row on each first axis: int64, float64, or ``str`` objects by their kind.

        Raises ApplicationError, with file, row, column, and what was expected there.
        """
        rows = 0
        for file in self._files:
            for batch in self._of_file(file):
                rows += len(next(iter(batch.values())))
                yield batch
                self._after_batch()
        if not rows:
            raise ApplicationError(f"{self.location} has no rows")
        self._rows = rows

    def _of_file(self, file: str) -> Iterator[Arrays]:
        read = {
            _Format.CSV: self._csv,
            _Format.PARQUET: self._parquet,
            _Format.NPY: self._npy,
            _Format.NPZ: self._npz,
        }[_format(file)]
        first = 0
        try:
            for raw in read(file):
                yield {name: self._checked(file, first, name, values) for name, values in raw.items()}
                first += len(next(iter(raw.values())))
        except duckdb.Error as error:
            told = _told(str(error))
            expected = f"; expected the columns {self._columns}" if told.startswith(", line ") else ""
            raise ApplicationError(f"{file}{told}{expected}") from error
        except (OSError, ValueError, EOFError, BadZipFile, csv.Error) as error:
            raise ApplicationError(f"cannot read {file}: {error}") from error

    # ---- columns -------------------------------------------------------------------------------

    def _kind(self, name: str) -> Kind | None:
        return self._columns.needed.get(name, self._columns.others)

    def _chosen(self, file: str, names: Sequence[str]) -> list[str]:
        """Those to read, the needed ones first."""
        missing = [name for name in self._columns.needed if name not in names]
        if missing or len(set(names)) < len(names):
            raise ApplicationError(
                f"{file} has the columns {', '.join(names) or '(none)'}; expected {self._columns}"
            )
        others = [name for name in names if name not in self._columns.needed]
        return [*self._columns.needed, *(others if self._columns.others else ())]

    def _named(self, file: str, count: int) -> list[str]:
        """For a file without names: the needed columns first, the others by their place."""
        needed = list(self._columns.needed)
        if count < len(needed) or (count > len(needed) and self._columns.others is None):
            raise ApplicationError(f"{file} has {count} columns without names; expected {self._columns}")
        return needed + [str(place) for place in range(len(needed), count)]

    def _checked(self, file: str, first: int, name: str, values: Column | pd.Series[Any]) -> Column:
        """``values`` by their kind; ``first``: how many rows of the file came before them."""
        kind = self._kind(name) or Kind.TEXT
        if kind is Kind.TEXT and isinstance(values, pd.Series):
            values = values.fillna("")  # CSV does not tell empty text from none
        found = values.to_numpy() if isinstance(values, pd.Series) else values
        missing = np.asarray(pd.isna(values)).reshape(len(found), -1).any(axis=1)
        if missing.any():
            raise self._wrong(file, first, name, kind, int(np.argmax(missing)), None)
        if kind is Kind.TEXT:
            return found.astype(object)
        if found.dtype.kind not in "iufb":
            raise ApplicationError(f"{file}: column {name} holds {found.dtype}, expected {_EXPECTED[kind]}")
        converted = found.astype(np.float64)
        fits = np.isfinite(converted)
        if kind is Kind.INTEGER:
            fits &= _fits_int64(found)
        wrong = ~fits.reshape(len(found), -1).all(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self._wrong(file, first, name, kind, row, repr(found[row].tolist()))
        return found.astype(np.int64) if kind is Kind.INTEGER else converted

    def _wrong(
        self, file: str, first: int, name: str, kind: Kind, row: int, held: str | None
    ) -> ApplicationError:
        """``held``: what is there, as far as it is known; of CSV it can be read again."""
        if held is None and _format(file) is _Format.CSV:
            held = self._written(file, name, first + row)
        where = f"{file}, row {first + row + 1}, column {name}"
        return ApplicationError(f"{where}: found {held or 'nothing'}, expected {_EXPECTED[kind]}")

    # ---- formats -------------------------------------------------------------------------------

    def _csv(self, file: str) -> Iterator[Mapping[str, Any]]:
        source, names = self._csv_source(file)
        if not names:
            return iter(())
        parsed = {
            name: _FROM_TEXT[self._kind(name) or Kind.TEXT].format(_identifier(name))
            for name in self._chosen(file, names)
        }
        return self._sql(file, source, parsed)

    def _csv_source(self, file: str) -> tuple[str, list[str]]:
        """How DuckDB is to read it, all as text, and its columns; none in an empty file."""
        raw = self._filesystem.open(file, "rb", compression="infer")
        with raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
            first = next(csv.reader(text), [])
        header = any(name in self._columns.needed for name in first)
        names = first if header or not first else self._named(file, len(first))
        types = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in names)
        return f"read_csv(?, header = {header}, auto_detect = false, columns = {{{types}}})", names

    def _written(self, file: str, name: str, row: int) -> str | None:
        source, _ = self._csv_source(file)
        with closing(self._connect()) as connection:
            query = f"select {_identifier(name)} from {source} limit 1 offset {row}"
            found = connection.execute(query, [self._duck(file)]).fetchone()
        return None if found is None or found[0] is None else repr(found[0])

    def _parquet(self, file: str) -> Iterator[Mapping[str, Any]]:
        with closing(self._connect()) as connection:
            source = "read_parquet(?)"
            described = connection.execute(f"describe select * from {source}", [self._duck(file)]).fetchall()
        chosen = self._chosen(file, [row[0] for row in described])
        return self._sql(file, source, {name: _identifier(name) for name in chosen})

    def _sql(self, file: str, source: str, selected: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """``selected``: names, and the expressions for them."""
        columns = ", ".join(f"{expression} as {_identifier(name)}" for name, expression in selected.items())
        with closing(self._connect()) as connection:
            result = connection.execute(f"select {columns} from {source}", [self._duck(file)])
            while len(frame := result.fetch_df_chunk(self._batch_rows // _VECTOR_ROWS)):
                yield {name: frame[name] for name in selected}

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """One thread, and nothing fetched from elsewhere: what is not local comes through fsspec."""
        off = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        connection = duckdb.connect(config={"threads": "1", **off})
        connection.execute("set enable_progress_bar = false")  # it would be on standard output
        if not _is_local(self._filesystem):
            connection.register_filesystem(self._filesystem)
        return connection

    def _duck(self, file: str) -> str:
        """DuckDB takes every name for a pattern."""
        local = _is_local(self._filesystem)
        return glob.escape(file if local else str(self._filesystem.unstrip_protocol(file)))

    def _npy(self, file: str) -> Iterator[Mapping[str, Any]]:
        with self._filesystem.open(file, "rb") as raw:
            for block in _blocks(raw, self._batch_rows):
                if block.dtype.names:
                    yield {name: block[name] for name in self._chosen(file, block.dtype.names)}
                else:
                    flat = block.reshape(len(block), -1)
                    names = self._named(file, flat.shape[1])
                    yield {name: flat[:, place] for place, name in enumerate(names)}

    def _npz(self, file: str) -> Iterator[Mapping[str, Any]]:
        with self._filesystem.open(file, "rb") as raw, ZipFile(raw) as archive, ExitStack() as stack:
            chosen = self._chosen(file, [name.removesuffix(".npy") for name in archive.namelist()])
            members = [stack.enter_context(archive.open(f"{name}.npy")) for name in chosen]
            streams = [_blocks(member, self._batch_rows) for member in members]
            for blocks in zip(*streams, strict=True):
                if len({len(block) for block in blocks}) > 1:
                    raise ApplicationError(f"{file}: {', '.join(chosen)} have different numbers of rows")
                yield dict(zip(chosen, blocks, strict=True))


def _find(location: str) -> tuple[Any, list[str]]:
    """The file system, and the files in the order of their names. What is there is no pattern."""
    try:
        filesystem, path = url_to_fs(location)
        if glob.has_magic(path) and not filesystem.exists(path):
            found = [file for file in filesystem.glob(path) if filesystem.isfile(file)]
        elif filesystem.isdir(path):
            found = [file for file in filesystem.find(path) if _suffix(file)]
        else:
            found = [path] if filesystem.exists(path) else []
    except Exception as error:  # of any file system's own kind: no credentials, say
        raise ApplicationError(f"cannot find {location}: {error}") from error
    if not found:
        raise ApplicationError(f"there is no file {location}")
    for file in found:
        _format(file)
    return filesystem, sorted(found)


def _fits_int64(values: Column) -> npt.NDArray[np.bool_]:
    """Whether each stays the same number; NumPy would wrap those that do not, without a word."""
    fits: npt.NDArray[np.bool_]
    if values.dtype.kind == "f":
        wide = values.astype(np.float64)
        fits = (wide == np.floor(wide)) & (wide >= -(2.0**63)) & (wide < 2.0**63)
    else:
        fits = values <= np.iinfo(np.int64).max
    return fits


def _suffix(file: str) -> str | None:
    return next((suffix for suffix in _SUFFIXES if file.lower().endswith(suffix)), None)


def _format(file: str) -> _Format:
    suffix = _suffix(file)
    if suffix is None:
        raise ApplicationError(f"{file} is of no known kind; expected a name in {', '.join(_SUFFIXES)}")
    return _SUFFIXES[suffix]


def _is_local(filesystem: Any) -> bool:
    return "file" in ((filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _blocks(raw: Any, rows: int) -> Iterator[Column]:
    """The array of a ``.npy`` stream, some rows at a time. Raises ValueError where it is none."""
    version = np.lib.format.read_magic(raw)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(raw)
    if not shape or dtype.hasobject or (fortran and len(shape) > 1):
        raise ValueError(f"an array of shape {shape}, {dtype}; expected rows of numbers in C order")
    row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    for first in range(0, shape[0], rows):
        count = min(rows, shape[0] - first)
        data = raw.read(count * row_bytes)
        if len(data) < count * row_bytes:
            raise EOFError(f"it ends within row {first + len(data) // max(1, row_bytes) + 1} of {shape[0]}")
        yield np.frombuffer(data, dtype).reshape(count, *shape[1:])


_LINE: Final = re.compile(r"CSV Error on Line: (\d+)")
_WRITTEN: Final = re.compile(r"Original Line:\s?(.*)")
_COUNT: Final = re.compile(r"Expected Number of Columns: \d+ Found: \d+")


def _told(error: str) -> str:
    """What DuckDB found wrong, without its advice: where and what."""
    line, written = _LINE.search(error), _WRITTEN.search(error)
    if line is None or written is None:
        return f": {error.splitlines()[0]}"
    count = _COUNT.search(error)
    return f", line {line[1]}: found {written[1]!r}; {count[0] if count else error.splitlines()[0]}"
