"""Finds the input's files and detects the format of each, from its name and its first lines.

It imports neither pandas nor DuckDB, so that a plan can say what a job would read without loading them.
Columns and their meaning are for ``agileml.data.column_names``; ``agileml.data.tables`` reads the rows.
"""

from __future__ import annotations

import csv
import glob
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, Final

from agileml.api import ApplicationError


class FileFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    NPY = "npy"
    NPZ = "npz"
    SVMLIGHT = "svmlight"


_TEXTS: Final = (".csv", ".tsv", ".txt", ".dat", ".data")
"""``.dat`` and ``.data`` are MovieLens', ``.txt`` is UCI's."""
_SVMLIGHT: Final = (".svm", ".libsvm", ".svmlight")
_SUFFIXES: Final[Mapping[str, FileFormat]] = {
    **{f"{suffix}{packed}": FileFormat.CSV for suffix in _TEXTS for packed in ("", ".gz")},
    ".parquet": FileFormat.PARQUET,
    ".npy": FileFormat.NPY,
    ".npz": FileFormat.NPZ,
    **{f"{suffix}{packed}": FileFormat.SVMLIGHT for suffix in _SVMLIGHT for packed in ("", ".gz")},
}
DOCWORD_HEAD: Final = 3
"""Lines at the beginning of a docword file: documents, words of the vocabulary, rows."""
_FIRST_LINES: Final = 8
DOCWORD_COLUMNS: Final = ("doc", "word", "count")


@dataclass(frozen=True, slots=True)
class Docword:
    """Holds the three counts at the beginning of a docword file (UCI's bags of words)."""

    documents: int
    words: int
    rows: int


def find_files(location: str) -> tuple[Any, list[str]]:
    """Returns the file system, and the files in the order of their names. An existing path is no pattern.

    Vocabularies beside docword files are not among them. Raises ApplicationError where there is none.
    """
    from fsspec.core import url_to_fs  # late: what was found before needs no file system

    try:
        filesystem, path = url_to_fs(location)
        if glob.has_magic(path) and not filesystem.exists(path):
            found = [file for file in filesystem.glob(path) if filesystem.isfile(file)]
        elif filesystem.isdir(path):
            found = _data_among([file for file in filesystem.find(path) if _known_suffix(file)])
        else:
            found = [path] if filesystem.exists(path) else []
    except Exception as error:  # file systems have error types of their own, as for lacking credentials
        raise ApplicationError(f"cannot find {location}: {error}") from error
    vocabularies = {vocabulary_of(file) for file in found}
    found = [file for file in found if file not in vocabularies]
    if not found:
        raise ApplicationError(f"there is no file {location}")
    for file in found:
        detect_format(file)
    return filesystem, sorted(found)


def detect_format(file: str) -> FileFormat:
    """Returns the format that the file's name stands for. Raises ApplicationError where it is none known."""
    suffix = _known_suffix(file)
    if suffix is None:
        known = ", ".join(suffix for suffix in _SUFFIXES if not suffix.endswith(".gz"))
        raise ApplicationError(f"{file} is of no known kind; expected a name in {known}, or text in .gz")
    return _SUFFIXES[suffix]


def is_local(filesystem: Any) -> bool:
    # Some file systems have several names: the local one is ("file", "local").
    return "file" in ((filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol)


def first_lines(filesystem: Any, file: str, count: int = _FIRST_LINES) -> list[str]:
    """Returns the first lines of a text file, without line ends; fewer where it has fewer.

    A quoted field may span lines; then the lines are parts of it.
    """
    raw = filesystem.open(file, "rb", compression="infer")
    # Spreadsheets write a byte order mark, which would be part of the first column's name.
    with raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
        return [line.rstrip("\r\n") for line in islice(text, count)]


def first_record(lines: Sequence[str], delimiter: str) -> list[str]:
    """Splits the first record at ``delimiter``; quotes count unless the delimiter has several characters."""
    if not lines:
        return []
    if len(delimiter) > 1:
        return lines[0].split(delimiter)
    return next(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter), [])


def docword_head(lines: Sequence[str]) -> Docword | None:
    """Returns the counts of a docword file: three lines of one number, then lines of three numbers."""
    head, rest = lines[:DOCWORD_HEAD], lines[DOCWORD_HEAD : DOCWORD_HEAD + 1]
    if len(head) < DOCWORD_HEAD or not all(line.strip().isdigit() for line in head):
        return None
    if not all(len(line.split()) == len(DOCWORD_COLUMNS) for line in rest):
        return None
    return Docword(*(int(line) for line in head))


def vocabulary_of(file: str) -> str | None:
    """Returns where UCI puts the vocabulary of a docword file: ``docword.X.txt.gz`` has ``vocab.X.txt``."""
    folder, slash, name = file.rpartition("/")
    if not name.startswith("docword."):
        return None
    return f"{folder}{slash}vocab.{name.removeprefix('docword.').removesuffix('.gz')}"


def read_vocabulary(filesystem: Any, file: str, words: int) -> list[str] | None:
    """Returns the words of a docword file in the order of their numbers; None where there is no vocabulary.

    Raises ApplicationError where the vocabulary has another number of ``words``.
    """
    place = vocabulary_of(file)
    if place is None or not filesystem.exists(place):
        return None
    known: list[str] = filesystem.cat_file(place).decode("utf-8").splitlines()
    if len(known) != words:
        raise ApplicationError(f"{place} has {len(known)} words, and {Path(file).name} counts {words}")
    return known


def _data_among(files: list[str]) -> list[str]:
    """Leaves out notes (``README.txt``) of a folder that has files of another kind, or docwords."""
    sure = [file for file in files if not _may_be_notes(file)]
    return sure or files


def _may_be_notes(file: str) -> bool:
    name = file.rpartition("/")[2].lower().removesuffix(".gz")
    return name.endswith(".txt") and not name.startswith("docword.")


def _known_suffix(file: str) -> str | None:
    return next((suffix for suffix in _SUFFIXES if file.lower().endswith(suffix)), None)
