"""Reads and writes folders that every machine can reach: on this disk, or behind any URL that fsspec knows
(``s3://...``).

A file appears complete or not at all. Local folders never import fsspec, since every process of a job comes
through here and most jobs have nothing but local folders.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO


class ObjectFolder:
    """A folder. ``location``: a local path, or a URL; made when something is first written."""

    def __init__(self, location: str | Path) -> None:
        self.location = str(location)

    def __str__(self) -> str:
        return self.location

    @contextmanager
    def open_for_writing(self, name: str) -> Iterator[BinaryIO]:
        """Opens the file ``name``, which is replaced when the block ends well. Raises OSError.

        Behind a URL the bytes are gathered in memory: object stores take files whole.
        """
        if self._is_url:
            gathered = io.BytesIO()
            yield gathered
            self._filesystem.makedirs(self._root, exist_ok=True)
            self._filesystem.pipe_file(f"{self._root}/{name}", gathered.getvalue())
            return
        folder = Path(self.location)
        folder.mkdir(parents=True, exist_ok=True)
        # The process number keeps two writers of a name apart: each replaces the file as a whole.
        unfinished = folder / f"{name}.{os.getpid()}.part"
        try:
            with unfinished.open("wb") as out:
                yield out
            unfinished.replace(folder / name)
        finally:
            unfinished.unlink(missing_ok=True)

    def check_writable(self) -> None:
        """Raises OSError, or what its file system raises, unless files can be written there.

        Leaves nothing behind. A folder that does not exist yet is tried in the first one above it that does.
        """
        probe = f"probe-{secrets.token_hex(4)}"
        place = self if self._is_url else ObjectFolder(_first_existing(Path(self.location)))
        with place.open_for_writing(probe) as out:
            out.write(b"agileml")
        if self._is_url:
            self._filesystem.rm_file(f"{self._root}/{probe}")
        else:
            (Path(place.location) / probe).unlink()

    def open_for_reading(self, name: str) -> BinaryIO:
        """Opens a file. Raises FileNotFoundError, or another OSError."""
        if self._is_url:
            return io.BytesIO(self._filesystem.cat_file(f"{self._root}/{name}"))
        return (Path(self.location) / name).open("rb")

    @property
    def _is_url(self) -> bool:
        return "://" in self.location

    @cached_property
    def _resolved_url(self) -> tuple[Any, str]:
        # Imported late: most processes have local folders alone, and never need it.
        from fsspec.core import url_to_fs

        filesystem, root = url_to_fs(self.location)
        return filesystem, root.rstrip("/")

    @property
    def _filesystem(self) -> Any:
        return self._resolved_url[0]

    @property
    def _root(self) -> str:
        return self._resolved_url[1]


def _first_existing(path: Path) -> Path:
    """Returns ``path``, or the first of the folders above it that exists."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())
