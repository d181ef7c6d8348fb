"""Reads large plain CSV price files by pandas: two thirds of the time and half of the memory of lines.

Plain is ASCII without quotes, where no field begins with a space, every line ends with a newline and has as
many fields as the header, and every time is written ``2016-06-01T00:00:00Z``; price files nearly always are.
All else is read by ``csv_columns.py``, which names the lines that are flawed. Both give the same result. Does
not know what columns are called.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from pricing_data.formats.csv_columns import A_PRICE_FILE, CsvTable, decode_text, parse_prices, read_content
from pricing_data.formats.quality import Ints, Mask
from pricing_data.model.market import Prices, Times

LARGE: Final = 20 * 2**20
"""Bytes, unpacked: at this size pandas saves as much time as it takes to load."""
_NOT_PLAIN: Final = (b'"', b", ", b"\n ", b"\r", b"\0", b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e")
"""Quotes, spaces that the csv module skips, and what else ends a line of text."""
_TIME: Final = b"0000-00-00T00:00:00Z"
_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)


class ColumnType(StrEnum):
    """Says what a column is read for, as a type of pandas. Fixed bytes make no object for each field.

    They cut off what is longer, so a column is read one byte wider than its fields may be.
    """

    TIME = "S21"
    PRICE = "S32"
    NAME = "category"
    """Few different texts."""
    NOTHING = "S1"


@dataclass(frozen=True, slots=True, eq=False)
class LargeTable(CsvTable):
    """Holds a plain file. ``columns`` has none that hold nothing."""

    def encode_column(self, name: str) -> tuple[Sequence[str], Ints]:
        import pandas as pd

        column: Any = self.columns[name]
        codes, texts = pd.factorize(column)
        return texts.tolist(), codes.astype(np.int64)

    def read_times(self, name: str, taken: Mask) -> tuple[Times, Mask]:
        column: Any = self.columns[name]
        found = column[taken]
        return found, np.ones(len(found), np.bool_)

    def read_prices(self, name: str, taken: Mask, *, may_be_empty: bool) -> tuple[Prices, Mask, Mask]:
        column: Any = self.columns[name]
        return parse_prices(column[taken].tolist(), may_be_empty=may_be_empty)


def read_table(path: Path, name: str, holds: Mapping[str, ColumnType], large: int = LARGE) -> CsvTable:
    """Reads a price file; ``holds`` gives the type of each column that may be requested.

    A file of ``large`` bytes is read by pandas if it is plain. Raises TraceError where it cannot be read, and
    as ``CsvTable.parse``.
    """
    content = read_content(path, name, A_PRICE_FILE)
    # For small files importing pandas takes longer than reading them.
    columns = _plain_columns(content, name, holds) if len(content) >= large else None
    lines = decode_text(content, name, A_PRICE_FILE).splitlines()
    if columns is None:
        return CsvTable.parse(name, lines)
    header = CsvTable.parse(name, lines[:1]).header
    return LargeTable(header, columns, np.arange(2, len(lines) + 1), np.empty(0, np.int64), lines)


def _plain_columns(content: bytes, name: str, holds: Mapping[str, ColumnType]) -> Mapping[str, Any] | None:
    """Returns times in seconds since 1970, prices as bytes, names as categories.

    None where the file is not plain.
    """
    header_ends = content.find(b"\n")
    if header_ends < 0 or not content.isascii() or any(odd in content for odd in _NOT_PLAIN):
        return None
    header = CsvTable.parse(name, [content[:header_ends].decode("ascii")]).header
    kinds = [holds.get(column, ColumnType.NOTHING) for column in header]

    import pandas as pd

    try:
        frame = pd.read_csv(
            BytesIO(content),
            header=None,
            skiprows=1,
            dtype={place: kind.value for place, kind in enumerate(kinds)},
            na_filter=False,
            skip_blank_lines=False,
            quoting=csv.QUOTE_NONE,
            low_memory=False,  # else a line with too many fields may pass, where a part of the file begins
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError):
        return None
    # Pandas refuses lines with more fields than the first and fills up those with fewer: if all commas
    # together are as many as in whole lines, all lines are whole.
    if frame.shape[1] != len(header) or content.count(b",") != (len(frame) + 1) * (len(header) - 1):
        return None
    columns: dict[str, Any] = {}
    for (column, kind), place in zip(zip(header, kinds, strict=True), frame.columns, strict=True):
        if kind is ColumnType.NAME:
            names = frame[place].array
            if names.categories.inferred_type not in ("string", "empty"):
                return None  # where all are numbers pandas makes numbers of them: 01 is 1 then
            columns[column] = names
        elif kind is not ColumnType.NOTHING:
            fields = frame[place].to_numpy()
            found = _parse_moments(fields) if kind is ColumnType.TIME else _untruncated(fields)
            if found is None:
                return None
            columns[column] = found
    return columns


def _parse_moments(fields: Any) -> Times | None:
    if fields.tobytes().translate(_DIGITS) != (_TIME + b"\0") * len(fields):
        return None
    try:
        moments = fields.astype(f"S{len(_TIME) - 1}").astype("datetime64[s]")
    except ValueError:  # at least one is no time
        return None
    return np.asarray(moments.astype(np.int64))


def _untruncated(fields: Any) -> Any | None:
    """Returns the fields; None where one may be longer than what was read of it."""
    return fields if np.strings.str_len(fields).max(initial=0) < fields.itemsize else None
