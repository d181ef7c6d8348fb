"""Reads a part of an input in bounded time, and estimates the whole from it, for planning a job.

An input of at most ``MOST_VALUES`` values is read whole, and its counts are exact. Of a larger one the first
rows are read. How many rows there are follows from the files' own headers (Parquet, NumPy, docword). In other
text it follows from the bytes that rows take in places spread over the files. It knows nothing of what rows
mean.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import duckdb
import numpy as np
import numpy.typing as npt

from agileml.api import ApplicationError, Arrays, Called, Columns, Counts, Kind
from agileml.data.array_files import array_header
from agileml.data.column_names import NONE_CALLED
from agileml.data.duckdb_files import duckdb_name, open_database
from agileml.data.sources import FileFormat
from agileml.data.tables import Table

MOST_VALUES: Final = 1_000_000
"""Numbers and words that are read: this takes some tenths of a second."""
_BATCH_ROWS: Final = 8192
_BLOCK: Final = 1 << 18
_PLACES: Final = 4
"""How many blocks are read in one file, and how many files."""


class Sample(Table):
    """The first rows of an input, and none of the others. Raises ApplicationError as ``Table`` does.

    Names in key columns are numbered by hashes, as their order is known only from all of them.
    """

    exact_keys = False

    def __init__(
        self,
        location: str | Path,
        columns: Columns,
        called: Called = NONE_CALLED,
        most_values: int = MOST_VALUES,
    ) -> None:
        super().__init__(location, columns, _BATCH_ROWS, called=called)
        self._kept: list[Arrays] = []
        self._values_read = 0
        self._whole = True
        for batch in super().batches():
            self._kept.append(batch)
            self._values_read += sum(_count_values(values) for values in batch.values())
            if self._values_read >= most_values:
                self._whole = False
                break
        self._rows = sum(len(next(iter(batch.values()))) for batch in self._kept)

    def batches(self) -> Iterator[Arrays]:
        """Yields the rows that were read."""
        yield from self._kept

    def with_rows(self, rows: Arrays) -> Sample:
        """Returns a sample of ``rows`` in place of those that were read."""
        other = copy(self)
        other._kept, other._rows = [rows], len(next(iter(rows.values())))
        return other

    def count_input(self) -> Counts:
        """Counts the whole input, as far as what was read tells."""
        names = tuple(self._kept[0])
        distinct = {
            name: len(np.unique(np.concatenate([batch[name] for batch in self._kept])))
            for name in names
            if self._column_kind(name) is Kind.KEY
        }
        size = self._total_bytes(self._files)
        rows, exact = (self.rows, True) if self._whole else self._rows_of_all()
        values = round(self._values_read / self.rows * rows)
        return Counts(len(self._files), size, names, rows, values, exact, self.rows, distinct)

    def _rows_of_all(self) -> tuple[int, bool]:
        """Returns how many rows there are, and whether that is exact."""
        # A few files spread over all of them: neighbours are often alike.
        looked_at = self._files[:: max(1, len(self._files) // _PLACES)]
        found = [self._rows_of(file) for file in looked_at]
        rows, all_known = sum(rows for rows, _ in found), all(known for _, known in found)
        if len(looked_at) == len(self._files):
            return max(rows, self.rows), all_known
        share = self._total_bytes(looked_at) / max(self._total_bytes(self._files), 1)
        return max(round(rows / share), self.rows), False

    def _total_bytes(self, files: Sequence[str]) -> int:
        return sum(int(self._filesystem.size(file) or 0) for file in files)

    def _rows_of(self, file: str) -> tuple[int, bool]:
        name = file.lower()
        if name.endswith(".parquet"):
            return self._rows_of_parquet(file), True
        if name.endswith(".npy"):
            with self._filesystem.open(file, "rb") as raw:
                return array_header(raw)[0][0], True
        if name.endswith(".npz"):
            with self._filesystem.open(file, "rb") as raw, ZipFile(raw) as archive:
                return array_header(archive.open(archive.namelist()[0]))[0][0], True
        look, size = self._input.describe_file(file), self._total_bytes([file])
        if look.docword is not None:
            return look.docword.rows, True
        mark = b":" if look.format is FileFormat.SVMLIGHT else b"\n"
        return round(size / self._bytes_per(mark, file, size)), False

    def _rows_of_parquet(self, file: str) -> int:
        query = "select sum(num_rows) from parquet_file_metadata(?)"
        try:
            with open_database(self._filesystem) as connection:
                found = connection.execute(query, [duckdb_name(self._filesystem, file)]).fetchone()
        except duckdb.Error as error:
            raise ApplicationError(f"cannot read {file}: {error}") from error
        return int(found[0]) if found else 0

    def _bytes_per(self, mark: bytes, file: str, size: int) -> float:
        """Returns bytes of the file, compressed as it is, for each ``mark``: a row ends
        with one, or has one.
        """
        with self._filesystem.open(file, "rb") as raw:
            if file.lower().endswith(".gz"):
                packed = raw.read(4 * _BLOCK)
                text = zlib.decompressobj(wbits=31).decompress(packed)
                return len(packed) / max(text.count(mark), 1)
            read = rows = 0
            for place in range(_PLACES):
                raw.seek(place * max(0, size - _BLOCK) // max(1, _PLACES - 1))
                block = raw.read(_BLOCK)
                read, rows = read + len(block), rows + block.count(mark)
        return read / max(rows, 1)


def _count_values(column: npt.NDArray[Any]) -> int:
    """Counts numbers, or words."""
    if column.dtype.hasobject:
        return sum(text.count(" ") + 1 for text in column.tolist())
    return int(column.size)
