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
class Rows:
    """Holds a table. ``left``: how many columns, from the first, are text; the others are figures, to the
    right.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    total: Sequence[str] | None = None
    notes: Sequence[str] = ()

    def text(self, width: int | None = None, *, styled: bool = False) -> str:
        """Returns lines of at most ``width`` characters, where that is possible; ``styled``: for a
        terminal.
        """
        columns = self._widths()
        fits = width is None or sum(columns) + len(_GAP) * (len(columns) - 1) <= width
        lines = self._table(columns, styled) if fits else self._records(styled)
        return "\n".join((*lines, *self.notes))

    def _all(self) -> Iterator[Sequence[str]]:
        yield from self.rows
        if self.total is not None:
            yield self.total

    def _widths(self) -> list[int]:
        cells = zip(self.titles, *self._all(), strict=True)
        return [max(map(_width, column)) for column in cells]

    def _table(self, columns: Sequence[int], styled: bool) -> Iterator[str]:
        yield _bold(self._line(self.titles, columns), styled)
        for row in self.rows:
            yield self._line(row, columns)
        if self.total is not None:
            yield _bold(self._line(self.total, columns), styled)

    def _line(self, row: Sequence[str], columns: Sequence[int]) -> str:
        cells = []
        for place, (cell, column) in enumerate(zip(row, columns, strict=True)):
            room = " " * (column - _width(cell))
            cells.append(cell + room if place < self.left else room + cell)
        return _GAP.join(cells).rstrip()

    def _records(self, styled: bool) -> Iterator[str]:
        longest = max(map(_width, self.titles))
        for row in self._all():
            for title, cell in zip(self.titles, row, strict=True):
                if cell:
                    yield _bold(title + " " * (longest - _width(title)), styled) + _GAP + cell
            yield ""


def _width(text: str) -> int:
    """Returns how many characters a terminal takes for it."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) > 0 for sign in text)


def _bold(text: str, styled: bool) -> str:
    return f"{_BOLD}{text}{_PLAIN}" if styled else text
