"""What the processes of a run wrote, as lines that name their file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


class LogFiles:
    """All ``*.log`` files below a folder; files may appear and grow between two looks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def news(self) -> Iterator[str]:
        """Whole lines that were not returned before, file by file. An unfinished line waits for its end."""
        for path in sorted(self._folder.rglob("*.log")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            name = path.relative_to(self._folder).with_suffix("")
            for line in whole.decode(errors="replace").splitlines():
                yield f"{name}: {line}"
