"""Splits CSV files, gzipped or not, into columns of text, and parses those into numbers.

Does not know what columns mean. A line that does not fit is reported by its number and keeps no other back;
only what cannot be unpacked, decoded or split is a TraceError.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from pathlib import Path
from typing import Final

import numpy as np

from pricing_data.errors import TraceError
from pricing_data.formats.quality import Flaw, Ints, Mask, UnreadableRow
from pricing_data.model.market import Prices, Times
from pricing_data.model.units import parse_instant

_WHOLE_SECONDS: Final = "0000-00-00T00:00:00Z"
"""The form of nearly all times. Numpy reads these fast, and guesses (with a warning) at others."""
A_PRICE_FILE: Final = "a price file, CSV or gzipped CSV"
_DIGITS: Final = str.maketrans("123456789", "0" * 9)


@dataclass(frozen=True, slots=True)
class CsvTable:
    """Holds the rows of a file that have as many fields as its header, and where the others are."""

    header: tuple[str, ...]
    columns: Mapping[str, Sequence[str]]
    numbers: Ints
    """Lines that the rows are in, counted from 1; the header is line 1."""
    misshapen: Ints
    """Lines with more or fewer fields than the header."""
    lines: Sequence[str]
    """The file; its line n is ``lines[n - 1]``."""

    @classmethod
    def parse(cls, name: str, lines: Sequence[str]) -> CsvTable:
        """Splits lines; raises TraceError where there is no header, or it has a column twice."""
        if not lines:
            raise TraceError(name, None, "an empty file", "a header and rows", "Fetch the file again.")
        header = tuple(field.strip() for field in next(_read_csv(name, lines[:1], before=0), ()))
        twice = [column for column in header if header.count(column) > 1]
        if twice:
            found = f"the column {twice[0][:80]!r} twice"
            raise TraceError(name, 1, found, "each column once", "Rename its columns.")
        return cls(header, *_split_rows(name, header, lines), lines)

    @property
    def row_count(self) -> int:
        """Counts all lines but the header, whether they fit it or not."""
        return len(self.numbers) + len(self.misshapen)

    def encode_column(self, name: str) -> tuple[Sequence[str], Ints]:
        """Returns the different texts of a column as they come, and each row's position among them."""
        column = self.columns[name]
        # dict.fromkeys keeps the order of first appearance.
        code_of = {text: code for code, text in enumerate(dict.fromkeys(column))}
        return list(code_of), np.fromiter(map(code_of.__getitem__, column), np.int64, len(column))

    def is_in(self, name: str, values: Collection[str]) -> Mask:
        """Returns, for each row, whether its ``name`` is one of ``values``."""
        texts, codes = self.encode_column(name)
        return np.array([text in values for text in texts], np.bool_)[codes]

    def read_times(self, name: str, taken: Mask) -> tuple[Times, Mask]:
        """Returns the instants in a column of the ``taken`` rows, and which of them could be read."""
        return parse_times(tuple(compress(self.columns[name], taken)))

    def read_prices(self, name: str, taken: Mask, *, may_be_empty: bool) -> tuple[Prices, Mask, Mask]:
        """Returns prices, which of them could be read, and which of the ``taken`` rows list one at all."""
        return parse_prices(tuple(compress(self.columns[name], taken)), may_be_empty=may_be_empty)

    def unreadable_rows(self, flaws: Mapping[Flaw, Ints]) -> tuple[UnreadableRow, ...]:
        """Returns the lines with these numbers, as they are."""
        return tuple(
            UnreadableRow(flaw, self.lines[number - 1], number)
            for flaw, numbers in flaws.items()
            for number in numbers.tolist()
        )


def read_lines(path: Path, name: str) -> list[str]:
    """Returns the lines of a price file."""
    return read_text(path, name, A_PRICE_FILE).splitlines()


def read_text(path: Path, name: str, expected: str) -> str:
    """Returns the decoded, decompressed content. A file is gzip if it begins like gzip, whatever its name.

    Raises TraceError, which says what was ``expected``, where it cannot be read as text.
    """
    return decode_text(read_content(path, name, expected), name, expected)


def read_content(path: Path, name: str, expected: str) -> bytes:
    """Returns the decompressed content. Raises TraceError as ``read_text``."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(name, None, "no such file", expected, "Check the path.") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise TraceError(name, None, why.lower(), expected, "Check the path and its permissions.") from error
    # The magic number of gzip.
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            found = f"gzip data that cannot be unpacked ({error})"
            raise TraceError(name, None, found, "a whole gzip file", "Fetch the file again.") from error
    return content


def decode_text(content: bytes, name: str, expected: str) -> str:
    """Returns the content as text, which may not be binary. Raises TraceError as ``read_text``."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"bytes that are not UTF-8 text ({content[error.start : error.start + 4].hex(' ')})"
        raise TraceError(name, line, found, expected, "Convert it to CSV in UTF-8.") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TraceError(name, line, "binary data", expected, "Convert it to CSV in UTF-8.")
    return text


_Rows = tuple[Mapping[str, Sequence[str]], Ints, Ints]
"""Columns, the lines they are from, and the lines that have another number of fields."""


def _split_rows(name: str, header: Sequence[str], lines: Sequence[str]) -> _Rows:
    """Splits without the csv reader where nothing is quoted and every line is whole.

    The usual case, and fast.
    """
    body, commas = lines[1:], len(header) - 1
    # One join and one split for the whole file are much faster than one split per line.
    together = ",".join(body)
    # Every line has as many commas as the header, so every field is where it should be.
    whole = set(map(str.count, body, repeat(","))) == {commas}
    # Quotes, and spaces that the csv module skips, need the real parser.
    if not whole or '"' in together or ", " in together:
        return _csv_rows(header, list(_read_csv(name, body, before=1)))
    fields = together.split(",")
    columns = {name: fields[place :: len(header)] for place, name in enumerate(header)}
    return columns, np.arange(2, len(lines) + 1), np.empty(0, np.int64)


def _read_csv(name: str, lines: Sequence[str], before: int) -> Iterator[list[str]]:
    """Reads lines by the csv module. ``before``: lines of the file before these."""
    reader = csv.reader(lines, skipinitialspace=True)
    try:
        yield from reader
    except csv.Error as error:
        line = before + reader.line_num
        raise TraceError(name, line, str(error), "CSV", "Check how it was written.") from error


def _csv_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> _Rows:
    whole = [len(row) == len(header) for row in rows]
    good = [number for number, fits in enumerate(whole, start=2) if fits]
    bad = [number for number, fits in enumerate(whole, start=2) if not fits and rows[number - 2]]
    columns = {name: [rows[number - 2][place] for number in good] for place, name in enumerate(header)}
    return columns, np.array(good, np.int64), np.array(bad, np.int64)


def parse_times(texts: Sequence[str]) -> tuple[Times, Mask]:
    """Returns instants, and which of them could be read."""
    known = np.ones(len(texts), np.bool_)
    # With all digits mapped to 0, one comparison checks the form of every time.
    if "".join(texts).translate(_DIGITS) == _WHOLE_SECONDS * len(texts):
        try:
            moments = np.array([text[:-1] for text in texts], dtype="datetime64[s]")
        except ValueError:
            pass  # at least one is no time: find out which
        else:
            return moments.astype(np.int64), known
    values = np.zeros(len(texts), np.int64)
    for index, text in enumerate(texts):
        try:
            values[index] = parse_instant(text)
        except (ValueError, OverflowError):
            known[index] = False
    return values, known


def parse_prices(texts: Sequence[str | bytes], may_be_empty: bool) -> tuple[Prices, Mask, Mask]:
    """Returns prices, which of them could be read, and which rows list a price at all."""
    known = np.ones(len(texts), np.bool_)
    listed = np.ones(len(texts), np.bool_)
    try:
        return np.array(list(map(float, texts)), np.float64), known, listed
    except ValueError:
        values = np.zeros(len(texts), np.float64)
    for index, text in enumerate(texts):
        try:
            values[index] = float(text)
        except ValueError:
            if may_be_empty and not text.strip():
                listed[index] = False
            else:
                known[index] = False
    return values, known, listed
