"""Sends messages through a file, one JSON object per line, numbered from 1: written once, whole, never
changed.

The file is the transport and the record in one. A reader that starts again reads on from the number it has
dealt with, even if the writer of the line is long dead. An incomplete line was never sent: a reader does not
see it, and the next writer removes it first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class JsonlWriter:
    """The one writer of a file. ``durable``: what was sent is on the disk, and outlives the loss of power."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        self._durable = durable
        self._length = len(whole)
        self._file = path.open("ab", buffering=0)
        self._cut_off()
        self.sent = whole.count(b"\n")

    def send(self, content: dict[str, Any]) -> None:
        """Appends a message. Raises OSError where there is no room, or the disk fails:
        then nothing was sent.
        """
        line = json.dumps(content).encode() + b"\n"
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
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]
        if self._durable:
            os.fsync(self._file.fileno())

    def _cut_off(self) -> None:
        """Removes what comes after the last line that was sent."""
        if os.fstat(self._file.fileno()).st_size > self._length:
            self._file.truncate(self._length)


class JsonlReader:
    """Reads a file that may not exist yet, and grows. ``after``: the last number already dealt with."""

    def __init__(self, path: Path, after: int = 0) -> None:
        self._path = path
        self._skip = after
        self._offset = 0
        self._number = 0

    def receive(self) -> Iterator[tuple[int, Any]]:
        """Yields what is new, with its numbers. Raises ValueError where a line is no JSON."""
        for number, line in self.read_lines():
            yield number, json.loads(line)

    def read_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields the new lines as they stand, whatever they hold, with their numbers."""
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
