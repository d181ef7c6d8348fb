"""Writes tables of very many rows as text, without a library that measures and styles each cell.

They look like our other tables: two spaces between columns, no frame. On terminals that are too narrow each
row becomes a record, so that no figure is cut (see ``narrow_tables.py``).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_GAP: Final = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class TextTable:
    """Holds a table. ``left``: how many columns, from the first, are text; the others are figures, to the
    right.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    total: Sequence[str] | None = None
    notes: Sequence[str] = ()

    def to_text(self, width: int | None = None, *, styled: bool = False) -> str:
        """Returns lines of at most ``width`` characters, where that is possible; ``styled``: for a
        terminal.
        """
        columns = self._column_widths()
        fits = width is None or sum(columns) + len(_GAP) * (len(columns) - 1) <= width
        lines = self._table_lines(columns, styled) if fits else self._record_lines(styled)
        return "\n".join((*lines, *self.notes))

    def _all_rows(self) -> Iterator[Sequence[str]]:
        yield from self.rows
        if self.total is not None:
            yield self.total

    def _column_widths(self) -> list[int]:
        cells = zip(self.titles, *self._all_rows(), strict=True)
        return [max(map(_display_width, column)) for column in cells]

    def _table_lines(self, columns: Sequence[int], styled: bool) -> Iterator[str]:
        yield _make_bold(self._format_line(self.titles, columns), styled)
        for row in self.rows:
            yield self._format_line(row, columns)
        if self.total is not None:
            yield _make_bold(self._format_line(self.total, columns), styled)

    def _format_line(self, row: Sequence[str], columns: Sequence[int]) -> str:
        cells = []
        for place, (cell, column) in enumerate(zip(row, columns, strict=True)):
            room = " " * (column - _display_width(cell))
            cells.append(cell + room if place < self.left else room + cell)
        return _GAP.join(cells).rstrip()

    def _record_lines(self, styled: bool) -> Iterator[str]:
        longest = max(map(_display_width, self.titles))
        for row in self._all_rows():
            for title, cell in zip(self.titles, row, strict=True):
                if cell:
                    yield _make_bold(title + " " * (longest - _display_width(title)), styled) + _GAP + cell
            yield ""


def _display_width(text: str) -> int:
    """Returns how many characters a terminal takes for it."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) > 0 for sign in text)


def _make_bold(text: str, styled: bool) -> str:
    return f"{_BOLD}{text}{_PLAIN}" if styled else text
