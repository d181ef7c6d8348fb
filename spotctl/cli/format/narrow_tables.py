"""Fits tables to narrow terminals: a record for each row, so that no figure is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

_GAP: Final = 2
"""Spaces between two columns of our tables."""


def fit_to_width(picture: RenderableType, width: int) -> RenderableType:
    """Returns ``picture``, with each table that needs more than ``width`` characters a line as records."""
    if isinstance(picture, Group):
        return Group(*(fit_to_width(part, width) for part in picture.renderables))
    if isinstance(picture, Table) and picture.show_header and least_width(picture) > width:
        return _to_records(picture)
    return picture


def least_width(picture: RenderableType) -> int:
    """Returns characters a line that the tables of ``picture`` need; 0 where there is none."""
    if isinstance(picture, Group):
        return max(map(least_width, picture.renderables), default=0)
    if not isinstance(picture, Table):
        return 0
    return sum(map(_column_width, picture.columns)) + _GAP * (len(picture.columns) - 1)


def _column_width(column: Column) -> int:
    """Returns the width of a text where it must stay in one line, else that of its longest word."""
    texts = (_plain_text(cell) for cell in (column.header, *column.cells))
    parts = (part for text in texts for part in ([text] if column.no_wrap else text.split()))
    return max(map(cell_len, parts), default=0)


def _to_records(table: Table) -> Group:
    return Group(*_record_parts(table))


def _record_parts(table: Table) -> Iterator[RenderableType]:
    if table.title:
        yield table.title
    titles = [_plain_text(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        record = Table.grid(padding=(0, _GAP))
        record.add_column(style="bold", no_wrap=True)
        record.add_column(overflow="fold")
        for title, cell in zip(titles, cells, strict=True):
            if _plain_text(cell):
                record.add_row(title, cell)
        yield record
        yield ""
    if table.caption:
        yield table.caption


def _plain_text(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
