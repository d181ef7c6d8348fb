"""What can be wrong with price data as a whole. Single bad rows are findings (``quality.py``), not errors.

TraceError      a file cannot be read as the price file it claims to be
"""

from __future__ import annotations


class TraceError(Exception):
    """A price file is unusable. The message says where, what was found, what was expected, what to do."""

    def __init__(self, path: str, line: int | None, found: str, expected: str, advice: str) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: found {found}; expected {expected}. {advice}")
        self.path = path
        self.line = line
        self.found = found
        self.expected = expected
        self.advice = advice
