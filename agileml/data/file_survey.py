"""Inspects the input's files without reading their rows: how each is written, and which column is which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

import numpy as np

from agileml.api import ApplicationError, Called, Columns
from agileml.data.array_files import array_header
from agileml.data.column_names import Assignment, ColumnNaming, TextLayout
from agileml.data.sources import (
    DOCWORD_COLUMNS,
    Docword,
    FileFormat,
    detect_format,
    docword_head,
    find_files,
    first_lines,
)

_DOCWORD: Final = TextLayout(" ", False, DOCWORD_COLUMNS)


@dataclass(frozen=True, slots=True)
class FileDescription:
    """Describes how one file is written. ``text`` and ``docword``: of text files, where they are such."""

    format: FileFormat
    assignment: Assignment
    text: TextLayout | None = None
    docword: Docword | None = None
    empty: bool = False


class InputFiles:
    """Holds the files of an input. Raises ApplicationError where there is none.

    ``parquet_names`` reads the columns of a Parquet file: only a reader of rows loads a library for it.
    """

    def __init__(
        self, location: str, columns: Columns, called: Called, parquet_names: Callable[[Any, str], list[str]]
    ) -> None:
        self.filesystem, self.names = find_files(location)
        self._naming = ColumnNaming(columns, called)
        self._parquet_names = parquet_names
        self._looks: dict[str, FileDescription] = {}

    @property
    def layout(self) -> Columns:
        """The layout of the first file that is not empty, of those that the application reads."""
        for name in self.names:
            look = self._describe_once(name)
            if not look.empty:
                return look.assignment.layout
        return self._describe_once(self.names[0]).assignment.layout

    def describe_file(self, name: str) -> FileDescription:
        """Describes how a file is written. Raises ApplicationError where its columns are not those of the
        others.
        """
        found, first = self._describe_once(name), self.layout
        if not found.empty and found.assignment.layout is not first:
            raise ApplicationError(
                f"{name} has {', '.join(found.assignment.layout.needed)}, and other files have "
                f"{', '.join(first.needed)}"
            )
        return found

    def _describe_once(self, name: str) -> FileDescription:
        if name not in self._looks:
            self._looks[name] = self._inspect_file(name)
        return self._looks[name]

    def _inspect_file(self, name: str) -> FileDescription:
        form = detect_format(name)
        if form is FileFormat.CSV:
            return self._inspect_text(name)
        if form is FileFormat.SVMLIGHT:
            return FileDescription(form, self._naming.assign_names(name, DOCWORD_COLUMNS))
        if form is FileFormat.PARQUET:
            return FileDescription(
                form, self._naming.assign_names(name, self._parquet_names(self.filesystem, name))
            )
        with _wrap_read_errors(name):
            found = _numpy_names(self.filesystem, name, form)
        if isinstance(found, int):
            return FileDescription(form, self._naming.assign_places(name, found))
        return FileDescription(form, self._naming.assign_names(name, found))

    def _inspect_text(self, name: str) -> FileDescription:
        with _wrap_read_errors(name):
            lines = first_lines(self.filesystem, name)
        if not lines:
            return FileDescription(
                FileFormat.CSV, self._naming.assign_empty(), TextLayout(",", False, ()), empty=True
            )
        # Before a header is looked for: the three counts would pass for rows of one column.
        docword = docword_head(lines)
        if docword is not None:
            return FileDescription(
                FileFormat.CSV, self._naming.assign_names(name, DOCWORD_COLUMNS), _DOCWORD, docword
            )
        text = self._naming.detect_text_layout(name, lines)
        if text.header:
            return FileDescription(FileFormat.CSV, self._naming.assign_names(name, text.names), text)
        return FileDescription(FileFormat.CSV, self._naming.assign_places(name, len(text.names)), text)


def describe_input(location: str, columns: Columns, called: Called) -> str:
    """Returns which columns of the input are read as what, and how it is written, in one line.

    Raises ApplicationError where a job with this input would be refused for its columns.
    """
    files = InputFiles(location, columns, called, parquet_names)
    look = files.describe_file(files.names[0])
    name = Path(files.names[0]).name
    which = name if len(files.names) == 1 else f"{len(files.names)} files, {name} first"
    return f"{which} ({_kind_of(look)}): {look.assignment}"


def parquet_names(filesystem: Any, name: str) -> list[str]:
    """Returns the columns of a Parquet file."""
    from agileml.data.duckdb_files import parquet_columns  # loads DuckDB

    return parquet_columns(filesystem, name)


def _kind_of(look: FileDescription) -> str:
    if look.docword is not None:
        return f"bag of words, {look.docword.documents:,} documents, {look.docword.rows:,} counts"
    if look.text is None:
        return str(look.format)
    header = "with a header" if look.text.header else "without a header: columns by place, from 0"
    delimiter = {",": "", "\t": ", tabs", " ": ", spaces"}.get(
        look.text.delimiter, f", {look.text.delimiter}"
    )
    return f"{header}{delimiter}"


def _numpy_names(filesystem: Any, name: str, form: FileFormat) -> list[str] | int:
    """Returns the names of its columns, or how many there are without names."""
    with filesystem.open(name, "rb") as raw:
        if form is FileFormat.NPZ:
            with closing(ZipFile(raw)) as archive:
                return [member.removesuffix(".npy") for member in archive.namelist()]
        # Each place along the further axes is a column.
        shape, dtype = array_header(raw)
        return list(dtype.names) if dtype.names else int(np.prod(shape[1:], dtype=np.int64))


@contextmanager
def _wrap_read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ApplicationError(f"cannot read {name}: {error}") from error
