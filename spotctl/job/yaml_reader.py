"""Reads YAML strictly: finds every problem of a file, and says where each stands.

Rule 1: meaning comes from the text as written, not from YAML's guesses: ``on`` is a word, ``1e-3`` a
number, and ``1:30`` is not ninety.
Rule 2: reading goes on after a problem, with a stand-in for the value, so that one run shows them all.
Rule 3: the code that reads is the schema. A key that no code asked for is unknown; the message suggests the
nearest key that some code did ask for.

This module knows nothing of jobs. The code that reads a field says what it means.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeAlias, TypeVar

import yaml

from pricing_data.model.units import Seconds, parse_duration
from spotctl.errors import JobFileError, Problem, UsageError

T = TypeVar("T")
Reader: TypeAlias = Callable[[yaml.Node], T]
"""Turns a node into a value or raises Mismatch."""

_NULL: Final = "tag:yaml.org,2002:null"
_UNTAGGED: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "timestamp", "value", "merge")
)
"""Tags that YAML guesses for plain scalars; the user wrote every other tag."""
_WHOLE: Final = re.compile(r"[-+]?\d{1,18}")
_TOO_LONG: Final = re.compile(r"[-+]?\d{19,}")
_LONGEST_S: Final = 10 * 365 * 86400
"""Longest duration; longer ones are typing errors, and later than a date can say."""
_SIZE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]?)(i?)B")
_SIZE_UNITS: Final = ("", "K", "M", "G", "T")
_LARGEST_BYTES: Final = 10**15


class Mismatch(Exception):
    """Reports a node that does not hold what was expected. ``node`` is the innermost one at fault."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        super().__init__(message)
        self.node = node


class Document:
    """Reads one file, and collects problems until the whole of it has been seen."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._problems: list[Problem] = []
        self.sections: list[Section] = []
        """All of its sections: each knows which of its keys nobody asked for."""

    def report_problem(self, mark: yaml.Mark | None, field: str, message: str) -> None:
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        self._problems.append(Problem(self.file, line, column, field, message))

    def refuse(self, mark: yaml.Mark | None, message: str) -> NoReturn:
        """Reports a problem that makes reading on pointless. Raises JobFileError with all problems so far."""
        self.report_problem(mark, "", message)
        raise JobFileError(self._problems)

    def raise_if_wrong(self) -> None:
        """Raises JobFileError with all problems so far, keys included that no code has asked for."""
        for section in self.sections:
            for name in section.entries.keys() - section.asked.keys() - section.rejected:
                self.report_problem(*section.describe_unknown(name))
        if self._problems:
            raise JobFileError(self._problems)


class Section:
    """Reads one mapping of a document, which in the end reports the keys nobody asked for.

    An absent optional section reads as if it were empty. One that was already reported as missing or
    malformed is silent about its own missing keys.
    """

    def __init__(self, document: Document, path: str, node: yaml.MappingNode | None, *, silent: bool) -> None:
        self._document = document
        self._path = path
        self._silent = silent
        self._mark = node.start_mark if node else None
        self.asked: dict[str, None] = {}
        """Keys that some code reads."""
        self.rejected: set[str] = set()
        self.entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        """Keys as written, each with its own node and its value's."""
        document.sections.append(self)
        for key, value in node.value if node else ():
            if isinstance(key, yaml.ScalarNode) and key.value not in self.entries:
                self.entries[key.value] = (key, value)
            else:
                self._refuse_key(key)

    def _refuse_key(self, key: yaml.Node) -> None:
        if not isinstance(key, yaml.ScalarNode):
            self._document.report_problem(
                key.start_mark, self._path, f"found {describe_node(key)} as a key, expected a word"
            )
            return
        first = self.entries[key.value][0].start_mark.line + 1
        message = f"found a second time, expected once (first in line {first})"
        self._document.report_problem(key.start_mark, self._field_path(key.value), message)

    def _field_path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def describe_unknown(self, name: str) -> tuple[yaml.Mark, str, str]:
        """Returns where a key stands that nobody asked for, its path, and what is wrong with it."""
        known = ", ".join(sorted(self.asked))
        message = f"unknown key, expected one of {known}{suggest_nearest(name, self.asked)}"
        return self.entries[name][0].start_mark, self._field_path(name), message

    def has(self, key: str) -> bool:
        """Tells whether an optional key is there; messages about unknown keys then suggest it."""
        self.asked[key] = None
        return key in self.entries

    def is_word(self, key: str) -> bool:
        """Tells whether the key is there with a single word as its value."""
        node = self.entries[key][1] if key in self.entries else None
        return isinstance(node, yaml.ScalarNode) and bool(node.value)

    def node(self, key: str) -> yaml.Node:
        """Returns the node below ``key``, which has to be there, as it was written."""
        return self.entries[key][1]

    def get(self, key: str, read: Reader[T], default: T, expected: str | None = None) -> T:
        """Reads a key; returns ``default`` where it is absent, or wrong (which is reported).

        ``expected``: what to write where the key is absent and must be there; None: it need not be.
        """
        self.asked[key] = None
        if key not in self.entries:
            if expected is not None and not self._silent:
                message = f"missing, expected {expected}"
                self._document.report_problem(self._mark, self._field_path(key), message)
            return default
        try:
            return read(self.entries[key][1])
        except Mismatch as mismatch:
            self._document.report_problem(mismatch.node.start_mark, self._field_path(key), str(mismatch))
            return default

    def need_any(self, keys: Sequence[str], expected: str) -> None:
        """Reports a problem unless at least one of ``keys`` is there."""
        if not self._silent and self.entries.keys().isdisjoint(keys):
            self._document.report_problem(self._mark, self._path, f"missing, expected {expected}")

    def section(self, key: str, expected: str | None = None) -> Section:
        """Returns the mapping below ``key``, which must be there when ``expected`` says what to write."""
        self.asked[key] = None
        path = f"{self._path}.{key}" if self._path else key
        if key not in self.entries:
            if expected is not None and not self._silent:
                self._document.report_problem(self._mark, path, f"missing, expected {expected}")
            return Section(self._document, path, None, silent=expected is not None)
        node = self.entries[key][1]
        if not isinstance(node, yaml.MappingNode):
            message = f"found {describe_node(node)}, expected a mapping" + (
                f": {expected}" if expected else ""
            )
            self._document.report_problem(node.start_mark, path, message)
            return Section(self._document, path, None, silent=True)
        return Section(self._document, path, node, silent=False)

    def reject(self, key: str, message: str) -> None:
        """Reports a key that is known but cannot be there, or cannot have its value, beside the others."""
        self.rejected.add(key)
        mark = self.entries[key][1].start_mark if key in self.entries else self._mark
        self._document.report_problem(mark, self._field_path(key), message)


def open_document(text: str, file: str) -> tuple[Document, Section]:
    """Returns the document and its outermost mapping. Raises JobFileError where ``text`` is no YAML mapping.

    It uses PyYAML's own scanner, although libyaml's is faster: these files have a hundred lines, and the
    binding of libyaml overflows the C stack on deep nesting, which kills the process.
    """
    document = Document(file)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        context = f" {error.context}" if error.context else ""
        document.refuse(error.problem_mark, f"not YAML: {error.problem}{context}")
    except yaml.reader.ReaderError as error:
        mark = yaml.Mark(file, 0, text.count("\n", 0, error.position), 0, "", 0)
        document.refuse(mark, f"not YAML: found the control character {chr(error.character)!r}")
    except RecursionError:
        document.refuse(None, "nested too deeply, expected keys and values")
    if node is None:
        document.refuse(None, "found an empty file, expected keys and values")
    if not isinstance(node, yaml.MappingNode):
        document.refuse(node.start_mark, f"found {describe_node(node)}, expected keys and values")
    return document, Section(document, "", node, silent=False)


def read_text(path: Path) -> str:
    """Returns the whole of a small UTF-8 file. Raises UsageError that names the cause where it cannot."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        found = f"found byte {error.object[error.start]:#04x} at offset {error.start}"
        raise UsageError(f"{path}: {found}, expected text in UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def describe_node(node: yaml.Node) -> str:
    """Describes a node for a message."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if node.tag == _NULL:
        return "nothing"
    written = str(node.value)
    return repr(written if len(written) <= 40 else f"{written[:37]}...")


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """Returns ' (did you mean x?)' where one of ``known`` is near."""
    nearest = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


# ---- readers -----------------------------------------------------------------------------------


def _read_scalar(node: yaml.Node, expected: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL:
        raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
    if node.tag not in _UNTAGGED:
        raise Mismatch(node, f"found the tag {node.tag}, expected {expected} without a tag")
    return str(node.value)


def word(expected: str, pattern: str = r".*\S.*") -> Reader[str]:
    """Reads text that matches all of ``pattern``."""

    def read(node: yaml.Node) -> str:
        text = _read_scalar(node, expected)
        if re.fullmatch(pattern, text) is None:
            raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
        return text

    return read


def one_of(*choices: str) -> Reader[str]:
    def read(node: yaml.Node) -> str:
        expected = f"one of {', '.join(choices)}"
        text = _read_scalar(node, expected)
        if text not in choices:
            raise Mismatch(
                node, f"found {describe_node(node)}, expected {expected}{suggest_nearest(text, choices)}"
            )
        return text

    return read


def switch(yes: str = "true", no: str = "false") -> Reader[bool]:
    """Reads one of two words."""

    def read(node: yaml.Node) -> bool:
        text = _read_scalar(node, f"{yes} or {no}")
        if text not in (yes, no):
            raise Mismatch(node, f"found {describe_node(node)}, expected {yes} or {no}")
        return text == yes

    return read


def whole_number(least: int, most: int | None = None) -> Reader[int]:
    """Reads a whole number of at least ``least``, and at most ``most``."""

    def read(node: yaml.Node) -> int:
        expected = f"a whole number of at least {least}" + ("" if most is None else f" and at most {most}")
        text = _read_scalar(node, expected)
        if _TOO_LONG.fullmatch(text) is not None:
            raise Mismatch(node, f"found {describe_node(node)}, expected {expected} with at most 18 digits")
        fits = _WHOLE.fullmatch(text) is not None and least <= int(text)
        if not fits or (most is not None and int(text) > most):
            raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
        return int(text)

    return read


def number(
    expected: str, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> Reader[float]:
    """Reads a finite number above ``above``, from ``least`` to ``most``; ``expected`` says so in words."""

    def read(node: yaml.Node) -> float:
        text = _read_scalar(node, expected)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and above < value and least <= value <= most):
            raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
        return value

    return read


def duration(*, positive: bool = False) -> Reader[Seconds]:
    """Reads a time span with its unit. A bare number is refused: seconds and minutes look alike."""

    def read(node: yaml.Node) -> Seconds:
        expected = "a duration with its unit, like 90s, 2m, 6h or 1h30m"
        text = _read_scalar(node, expected)
        try:
            value = parse_duration(text)
        except ValueError:
            raise Mismatch(node, f"found {describe_node(node)}, expected {expected}") from None
        if positive and value <= 0:
            raise Mismatch(node, f"found {describe_node(node)}, expected a duration above zero")
        if value > _LONGEST_S:
            raise Mismatch(node, f"found {describe_node(node)}, expected at most ten years")
        return value

    return read


def size() -> Reader[int]:
    """Reads bytes, with their unit: of thousands (MB) or of 1024 (MiB)."""

    def read(node: yaml.Node) -> int:
        expected = "a size with its unit, like 500MB, 2GB or 1.5TB"
        match = _SIZE.fullmatch(_read_scalar(node, expected))
        if match is None:
            raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
        thousand = 1024.0 if match[3] else 1000.0
        power: int = _SIZE_UNITS.index(match[2])
        value = float(match[1]) * thousand**power
        if value > _LARGEST_BYTES:
            raise Mismatch(node, f"found {describe_node(node)}, expected at most 1000TB")
        return round(value)

    return read


def list_of(read_one: Reader[T], expected: str) -> Reader[tuple[T, ...]]:
    """Reads a list of at least one element, none of them twice."""

    def read(node: yaml.Node) -> tuple[T, ...]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            found = "an empty list" if isinstance(node, yaml.SequenceNode) else describe_node(node)
            raise Mismatch(node, f"found {found}, expected {expected}")
        values: list[T] = []
        for element in node.value:
            value = read_one(element)
            if value in values:
                raise Mismatch(element, f"found {describe_node(element)} a second time, expected it once")
            values.append(value)
        return tuple(values)

    return read
