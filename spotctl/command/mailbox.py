"""Messages in a file, one JSON object per line, numbered from 1: written once, whole, never changed.

The file is the transport and the record in one: a reader that starts again reads on from the number it
has dealt with, whoever wrote the line may be long dead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Outbox:
    """The one writer of a file. A line that a killed writer left unfinished was never sent."""

    def __init__(self, path: Path) -> None:
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        self._file = path.open("ab")
        self._file.truncate(len(whole))
        self.sent = whole.count(b"\n")

    def send(self, content: dict[str, Any]) -> None:
        self._file.write(json.dumps(content).encode() + b"\n")
        self._file.flush()
        self.sent += 1

    def close(self) -> None:
        self._file.close()


class Inbox:
    """Reads a file that may not exist yet, and grows. ``after``: the last number already dealt with."""

    def __init__(self, path: Path, after: int = 0) -> None:
        self._path = path
        self._skip = after
        self._offset = 0
        self._number = 0

    def receive(self) -> Iterator[tuple[int, Any]]:
        """What is new, with its numbers. Raises ValueError where a line is no JSON."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._number += 1
            if self._number > self._skip:
                yield self._number, json.loads(line)
