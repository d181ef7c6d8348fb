"""Opens a YAML file, and collects the problems of it with the place of each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

import yaml

from spotctl.errors import JobFileError, Problem, UsageError

NULL_TAG: Final = "tag:yaml.org,2002:null"


class Mismatch(Exception):
    """Reports a node that does not hold what was expected. ``node`` is the innermost one at fault."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        super().__init__(message)
        self.node = node


class Document:
    """Collects the problems of one file until the whole of it has been seen. Paths start from ``folder``."""

    def __init__(self, file: str, folder: Path) -> None:
        self.file = file
        self.folder = folder
        self._problems: list[Problem] = []

    def report_problem(self, mark: yaml.Mark | None, field: str, message: str) -> None:
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        self._problems.append(Problem(self.file, line, column, field, message))

    def refuse(self, mark: yaml.Mark | None, message: str) -> NoReturn:
        """Reports a problem that makes reading on pointless. Raises JobFileError with all problems so far."""
        self.report_problem(mark, "", message)
        raise JobFileError(self._problems)

    def raise_if_wrong(self) -> None:
        """Raises JobFileError with all problems reported so far."""
        if self._problems:
            raise JobFileError(self._problems)


def open_document(text: str, file: str, folder: Path) -> tuple[Document, yaml.MappingNode]:
    """Returns the document and its outermost mapping. Raises JobFileError where ``text`` is no YAML mapping.

    It uses PyYAML's own scanner, although libyaml's is faster: these files have a hundred lines, and the
    binding of libyaml overflows the C stack on deep nesting, which kills the process.
    """
    document = Document(file, folder)
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
    return document, node


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
    if node.tag == NULL_TAG:
        return "nothing"
    written = str(node.value)
    return repr(written if len(written) <= 40 else f"{written[:37]}...")


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """Returns ' (did you mean x?)' where one of ``known`` is near."""
    nearest = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""
