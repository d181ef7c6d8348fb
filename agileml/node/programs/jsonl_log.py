"""Keeps a journal in a file: one JSON object per line, numbered from 1, never changed once written.

A reader that starts again continues after the last number it has dealt with. An incomplete line does not
count: readers do not see it, and the next writer removes it first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class JsonlWriter:
    """The only writer of a file. ``durable``: each line is on the disk, and survives a power failure."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        self._durable = durable
        self._length = len(whole)
        self._file = path.open("ab", buffering=0)
        self._cut_off()
        self.sent = whole.count(b"\n")

    def send(self, content: dict[str, Any]) -> None:
        """Appends a line. Raises OSError if the disk is full or fails; then no reader sees anything new."""
        line = json.dumps(content).encode() + b"\n"
        # A failed write may have left a part of a line that could not be removed at the time.
        self._cut_off()
        try:
            self._write_line(line)
        except OSError:
            self._cut_off()
            raise
        self._length += len(line)
        self.sent += 1

    def close(self) -> None:
        self._file.close()

    def _write_line(self, line: bytes) -> None:
        # An unbuffered file may write less than it is given, as when the disk fills up.
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]
        if self._durable:
            os.fsync(self._file.fileno())

    def _cut_off(self) -> None:
        """Removes an incomplete line at the end."""
        if os.fstat(self._file.fileno()).st_size > self._length:
            self._file.truncate(self._length)


class JsonlReader:
    """Reads a file that may not exist yet, and grows. ``after``: skips lines up to this number."""

    def __init__(self, path: Path, after: int = 0) -> None:
        self._path = path
        self._skip = after
        self._offset = 0
        self._number = 0

    def receive(self) -> Iterator[tuple[int, Any]]:
        """Yields the new lines with their numbers. Raises ValueError if a line is not JSON."""
        for number, line in self.read_lines():
            yield number, json.loads(line)

    def read_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields the new lines as bytes, with their numbers."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.split(b"\n")[:-1]:
            self._number += 1
            if self._number > self._skip:
                yield self._number, line
