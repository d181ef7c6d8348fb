"""Locates a field of a job in its file, for errors that only show when prices and machines are known.

``file.py`` locates errors of the file by itself. By now the job is a plain value, so the file is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from spotctl.errors import JobError, JobFileError, Problem
from spotctl.schema.document import read_text


@contextmanager
def locate_errors(path: Path) -> Iterator[None]:
    """Turns a JobError inside into a JobFileError, which says where in the job file ``path`` its field
    stands.
    """
    try:
        yield
    except JobError as error:
        line, column = find_field(read_text(path), error.field)
        raise JobFileError([Problem(str(path), line, column, error.field, error.message)]) from error


def find_field(text: str, field: str) -> tuple[int, int]:
    """Returns line and column, from 1, of the value at the dotted path ``field``; of a mapping, of its key.

    Where the path goes further than the file does, it is the last key found. ``text`` is valid YAML.
    """
    node, found = yaml.compose(text, Loader=yaml.SafeLoader), (1, 1)
    for name in field.split("."):
        keys = node.value if isinstance(node, yaml.MappingNode) else ()
        here = next(((key, value) for key, value in keys if key.value == name), None)
        if here is None:
            break
        key, node = here
        mark = (key if isinstance(node, yaml.MappingNode) else node).start_mark
        found = (mark.line + 1, mark.column + 1)
    return found
