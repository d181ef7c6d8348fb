"""Finds out which column of a file is which of the application's, and describes it.

A job may name them (``columns: {user: userId}``). Else the application's own names count, then its aliases; a
file without names has the needed columns first. Columns without names are called by their place, from 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from agileml.api import Called, Columns, ColumnsError, Kind
from agileml.data.sources import first_record

NONE_CALLED: Final[Called] = {}
OTHERS: Final = "others"
_DELIMITERS: Final = (",", "\t", ";", "::", "|", " ")
"""``::`` is MovieLens 1M and 10M, the tab MovieLens 100k."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Says from which column of a file each of the application's is read.

    ``columns``: the file's column by the application's name, needed ones first; others keep the file's own
    name. ``unused``: columns of the file that are not read.
    """

    layout: Columns
    columns: Mapping[str, str]
    unused: tuple[str, ...]

    def __str__(self) -> str:
        needed = [f"{name} = {self.columns[name]}" for name in self.layout.needed]
        others = [name for name in self.columns if name not in self.layout.needed]
        text = ", ".join(needed)
        if others:
            text += f"; {len(others)} more: {_join_names(others)}"
        return text + (f"; not used: {_join_names(self.unused)}" if self.unused else "")


@dataclass(frozen=True, slots=True)
class TextLayout:
    """Says how a text file is written: its delimiter, whether it has a header, and its columns."""

    delimiter: str
    header: bool
    names: tuple[str, ...]


class ColumnNaming:
    """Assigns columns of files to those of an application.

    ``called``: the columns that the job names. Raises ColumnsError where the application has none such.
    """

    def __init__(self, columns: Columns, called: Called) -> None:
        self._columns = columns
        self._called = {name: str(column) for name, column in called.items() if name != OTHERS}
        others = called.get(OTHERS)
        self._others = None if others is None else [others] if isinstance(others, str) else list(others)
        fitting = [layout for layout in columns.all_layouts if self._called.keys() <= layout.needed.keys()]
        if not fitting:
            raise ColumnsError(self._describe_unknown())
        if self._others is not None:
            fitting = [layout for layout in fitting if layout.others is not None]
        if not fitting:
            raise ColumnsError(f"the application reads no others; expected {columns}")
        self._layouts = tuple(fitting)

    def assign_names(self, file: str, names: Sequence[str]) -> Assignment:
        """Assigns the named columns of ``file``. Raises ColumnsError where one is missing or there twice."""
        if len(set(names)) == len(names):
            for layout in self._layouts:
                found = self._try_layout(layout, names)
                if found is not None:
                    return found
        has = ", ".join(names) or "(none)"
        named = [f"{name}: {column}" for name, column in self._called.items() if column not in names]
        if named:
            raise ColumnsError(f"{file} has the columns {has}, and no {{{', '.join(named)}}}")
        lacking = next(iter(self._layouts[0].needed))
        example = names[0] if names else "its header"
        raise ColumnsError(
            f"{file} has the columns {has}; expected {self._columns}. Say which is which in the job file, "
            f"like columns: {{{lacking}: {example}}}"
        )

    def assign_places(self, file: str, count: int) -> Assignment:
        """Assigns ``count`` columns without names: those that the job names by place, the others in order."""
        names = [str(place) for place in range(count)]
        fitting = [layout for layout in self._layouts if len(layout.needed) == count]
        # A layout with just as many columns is the likelier one; only then those that leave some unused.
        for layout in (*fitting, *self._layouts):
            free = iter([name for name in names if name not in self._called.values()])
            columns = {
                name: self._called[name] if name in self._called else next(free, "") for name in layout.needed
            }
            unused = [name for name in names if name not in columns.values()]
            spare_text = unused and layout.others is None and Kind.TEXT in layout.needed.values()
            if all(column in names for column in columns.values()) and not spare_text:
                return self._with_others(layout, columns, names)
        raise ColumnsError(f"{file} has {count} columns without names; expected {self._columns}")

    def assign_empty(self) -> Assignment:
        """Assigns the columns of a file that is empty."""
        layout = self._layouts[0]
        return Assignment(layout, {name: name for name in layout.needed}, ())

    def detect_text_layout(self, file: str, lines: Sequence[str]) -> TextLayout:
        """Detects how a text file that begins with ``lines`` is written.

        Raises ColumnsError where its first line looks like a header with no name that the application knows.
        Raises it too where the job names columns by more than their places, and the file has none of them.
        """
        records = {delimiter: first_record(lines, delimiter) for delimiter in _DELIMITERS}
        for delimiter, names in records.items():
            if self._is_header(names):
                return TextLayout(delimiter, True, tuple(names))
        if not all(column.isdecimal() for column in self._called.values()):
            self.assign_names(file, max(records.values(), key=len))  # the job names a column of a header
        fitting = {d: names for d, names in records.items() if self._may_be_rows(names)}
        delimiter = max(fitting or [","], key=lambda d: len(records[d]))
        names = records[delimiter]
        if (
            not fitting
            and self._numeric_layouts == self._layouts
            and names
            and not any(map(_is_number, names))
        ):
            self.assign_names(file, max(records.values(), key=len))
        return TextLayout(delimiter, False, tuple(str(place) for place in range(len(names))))

    @property
    def _numeric_layouts(self) -> tuple[Columns, ...]:
        return tuple(layout for layout in self._layouts if Kind.TEXT not in layout.needed.values())

    def _may_be_rows(self, fields: Sequence[str]) -> bool:
        """Whether a layout of numbers and keys has as many columns, and these hold numbers where it does."""
        for layout in self._numeric_layouts:
            kinds = list(layout.needed.values())
            kinds += [layout.others or Kind.KEY] * (len(fields) - len(kinds))
            numbers = [field for field, kind in zip(fields, kinds, strict=False) if kind is not Kind.KEY]
            if len(layout.needed) == len(fields) and layout.others is not None:
                continue  # a row of nothing but its label
            if len(kinds) == len(fields) and (self._called or all(map(_is_number, numbers))):
                return True
        return False

    def _is_header(self, names: Sequence[str]) -> bool:
        known = {name for layout in self._layouts for name in layout.needed} | set(self._called.values())
        if any(name in known for name in names):
            return not all(map(_is_number, names))
        return any(self._try_layout(layout, names) is not None for layout in self._layouts)

    def _try_layout(self, layout: Columns, names: Sequence[str]) -> Assignment | None:
        taken = set(self._called.values())
        columns: dict[str, str] = {}
        for name in layout.needed:
            column = self._called.get(name) or _recognise_column(
                layout, name, [n for n in names if n not in taken]
            )
            if column is None or column not in names:
                return None
            columns[name] = column
            taken.add(column)
        return self._with_others(layout, columns, names)

    def _with_others(self, layout: Columns, columns: Mapping[str, str], names: Sequence[str]) -> Assignment:
        """Completes an assignment. Raises ColumnsError where the file lacks one of the others that the job
        names.
        """
        rest = [name for name in names if name not in columns.values()]
        wanted = rest if self._others is None and layout.others is not None else self._others or []
        if missing := [name for name in wanted if name not in rest]:
            raise ColumnsError(f"others: there is no column {', '.join(missing)} among {', '.join(rest)}")
        clash = [name for name in wanted if name in layout.needed]
        if clash:
            raise ColumnsError(f"the column {', '.join(clash)} is called as one that is read from another")
        unused = tuple(name for name in rest if name not in wanted)
        return Assignment(layout, {**columns, **{name: name for name in wanted}}, unused)

    def _describe_unknown(self) -> str:
        known = sorted({name for layout in self._columns.all_layouts for name in layout.needed})
        wrong = next((name for name in self._called if name not in known), "")
        near = get_close_matches(wrong, known, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        if not wrong:
            return f"found {', '.join(self._called)}, which are not read together; expected {self._columns}"
        return f"the application reads no {wrong}{meant}; expected {self._columns}"


def _recognise_column(layout: Columns, name: str, names: Sequence[str]) -> str | None:
    """Returns the column with the application's name, or else with its first alias that is there."""
    if name in names:
        return name
    plain = {_normalise_name(column): column for column in reversed(names)}
    wanted = (name, *layout.aliases.get(name, ()))
    return next((plain[_normalise_name(alias)] for alias in wanted if _normalise_name(alias) in plain), None)


def _normalise_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return not text.strip()  # a missing one
    return True


def _join_names(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
