"""The whole of a small input of plain numbers, read without DuckDB and pandas, which take longer to load.

Plain is text of digits, signs, points and delimiters, where every line has as many fields. What is not, or is
too large to be read whole, is None here and read by ``agileml.sampling``; what is answered is the same.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from agileml.app import Arrays, Called, Columns, Counts, Kind
from agileml.looking import InputFiles, Look, parquet_names
from agileml.naming import NONE_CALLED
from agileml.sources import Format, format_of, is_local

MOST_VALUES: Final = 1_000_000
"""Numbers and words that are read of an input: some tenths of a second."""
_MOST_BYTES: Final = 16 * 2**20
"""Of text, unpacked: so few values seldom take more."""
_WRITTEN_WITH: Final = b"0123456789.-\n"


class PlainInput:
    """What an application's survey asks of an ``agileml.tables.Table``. Made by ``read``."""

    def __init__(self, location: str, files: InputFiles, columns: Arrays, size_bytes: int) -> None:
        self.location = location
        self._files = files
        self._columns = columns
        self._size_bytes = size_bytes

    @classmethod
    def read(
        cls, location: str, columns: Columns, called: Called = NONE_CALLED, most_values: int = MOST_VALUES
    ) -> Self | None:
        """Reads the input; None where it is not plain, not on this disk, or has ``most_values`` or more.

        Raises ApplicationError where its columns are not those of the application.
        """
        files = InputFiles(location, columns, called, parquet_names)
        if not is_local(files.filesystem) or any(format_of(name) is not Format.CSV for name in files.names):
            return None
        parts: list[Arrays] = []
        left = most_values
        for name in files.names:
            look = files.look(name)
            part = None if left <= 0 else _read_file(name, look, files.layout)
            if part is None:
                return None
            left -= sum(values.size for values in part.values())
            parts.append(part)
        names = list(parts[0])
        if left <= 0 or any(list(part) != names for part in parts):
            return None
        whole = {name: np.concatenate([part[name] for part in parts]) for name in names}
        size = sum(int(files.filesystem.size(name) or 0) for name in files.names)
        return cls(location, files, whole, size)

    @property
    def layout(self) -> Columns:
        """Which layout the input has, of those that the application reads."""
        return self._files.layout

    @property
    def rows(self) -> int:
        return len(next(iter(self._columns.values())))

    def batches(self) -> Iterator[Arrays]:
        """Yields all rows at once."""
        yield self._columns

    def named(self, name: str, keys: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Returns ``keys``: those of plain numbers are what the input says."""
        return keys

    def counts(self) -> Counts:
        """Returns how large the input is."""
        return counts_of([self._columns], self.layout, len(self._files.names), self._size_bytes)


def counts_of(batches: Sequence[Arrays], layout: Columns, files: int, size_bytes: int) -> Counts:
    """Counts what was read, as if that were all of the input."""
    names = tuple(batches[0])
    rows = sum(len(next(iter(batch.values()))) for batch in batches)
    distinct = {
        name: len(np.unique(np.concatenate([batch[name] for batch in batches])))
        for name in names
        if layout.needed.get(name, layout.others) is Kind.KEY
    }
    values = sum(count_values(column) for batch in batches for column in batch.values())
    return Counts(files, size_bytes, names, rows, values, True, rows, distinct)


def count_values(column: npt.NDArray[Any]) -> int:
    """Returns how many numbers, or words, there are."""
    if column.dtype.hasobject:
        return sum(text.count(" ") + 1 for text in column.tolist())
    return int(column.size)


def _read_file(name: str, look: Look, layout: Columns) -> dict[str, npt.NDArray[Any]] | None:
    text = look.text
    if look.empty or look.docword is not None or text is None or len(text.delimiter) > 1:
        return None
    content = _content(name)
    if content is None or (text.header and b'"' in content.partition(b"\n")[0]):
        return None
    body = content.partition(b"\n")[2] if text.header else content
    delimiter = text.delimiter.encode()
    if body.translate(None, _WRITTEN_WITH + delimiter):
        return None
    lines = body.removesuffix(b"\n").split(b"\n")
    count = len(text.names)
    if set(map(bytes.count, lines, repeat(delimiter))) != {count - 1} or not all(lines):
        return None
    fields = delimiter.join(lines).split(delimiter)
    try:
        return {
            wanted: _numbers(
                fields[text.names.index(column) :: count], layout.needed.get(wanted, layout.others)
            )
            for wanted, column in look.assignment.columns.items()
        }
    except (ValueError, OverflowError):  # a field that is no number, or none of its kind
        return None


def _content(name: str) -> bytes | None:
    """The file, unpacked, with newlines at the ends of lines; None where it is too large or damaged."""
    try:
        with gzip.open(name, "rb") if name.lower().endswith(".gz") else open(name, "rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error):  # who reads it next says what is wrong with it
        return None
    return None if len(content) > _MOST_BYTES else content.replace(b"\r\n", b"\n")


def _numbers(fields: Sequence[bytes], kind: Kind | None) -> npt.NDArray[Any]:
    """Raises ValueError or OverflowError where one is not of that kind; 007 is no key but a name."""
    if kind is Kind.NUMBER:
        numbers = np.array(list(map(float, fields)), np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError("not finite")
        return numbers
    if kind is Kind.TEXT or kind is None:
        raise ValueError("text")
    if kind is Kind.KEY and any(field[:1] == b"0" and len(field) > 1 for field in fields):
        raise ValueError("a name")
    return np.array(list(map(int, fields)), np.int64)
