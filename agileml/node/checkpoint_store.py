"""Keeps checkpoints of any kind wherever fsspec can write, and never returns a half-written one.

    ROOT/NAME/...               the files of one checkpoint; names sort by age, the newest last
    ROOT/NAME/manifest.json     written last: without it the folder is no checkpoint

Object stores cannot rename, so the manifest makes a checkpoint appear at once. A writer that is cut off
leaves a folder without a manifest, or with one that is no JSON. A checkpoint is removed manifest first. The
content of a manifest is up to its writer.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

_MANIFEST: Final = "manifest.json"
_BLOCK: Final = 1 << 20
_WITHOUT_FOLDERS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})
"""fsspec's protocols of object stores."""
_LOCAL: Final = "file"
"""fsspec's protocol of this computer's file system."""


class CheckpointError(Exception):
    """A checkpoint cannot be read or written.

    The message says where, what was tried, and what the store answered or what to do.
    """


class ManifestStore:
    """A folder of checkpoints. ``location``: a local path, or any URL that fsspec understands."""

    def __init__(self, location: str) -> None:
        """Raises CheckpointError for an unknown kind of URL."""
        from fsspec.core import url_to_fs  # late, as few processes open a store

        self.location = location
        with self.wrap_errors("opened"):
            self.files, root = url_to_fs(location)
            self.root = str(root).rstrip("/")
        kinds = self.files.protocol
        self._kinds = frozenset(kinds if isinstance(kinds, tuple) else (kinds,))

    @property
    def is_local(self) -> bool:
        return _LOCAL in self._kinds

    def path(self, *parts: str) -> str:
        """Returns a path below the root, in the notation of its file system."""
        return "/".join((self.root, *parts))

    def check_writable(self) -> None:
        """Raises CheckpointError unless files can be written, read and removed there."""
        with self.wrap_errors("written to"):
            probe = f"{self._first_existing()}/probe-{secrets.token_hex(4)}"
            self.files.pipe_file(probe, b"spotctl")
            found = self.files.cat_file(probe)
            self.files.rm_file(probe)
        if found != b"spotctl":
            raise CheckpointError(f"{self.location}: a test file reads back with another content")

    # ---- checkpoints ------------------------------------------------------------------------

    def list_names(self) -> list[str]:
        """Returns the names of all checkpoints, complete or not, the newest first. Raises CheckpointError."""
        with self.wrap_errors("listed"):
            self.files.invalidate_cache()  # other processes write here as well
            if not self.files.exists(self.root):
                return []
            entries = self.files.ls(self.root, detail=True)
        # A file beside the folders is no checkpoint, and none of ours to remove.
        folders = [str(entry["name"]) for entry in entries if entry["type"] != "file"]
        return sorted((PurePosixPath(folder).name for folder in folders), reverse=True)

    def read_manifest(self, name: str) -> Any:
        """Returns the content of a manifest; None if it is missing or incomplete. Raises CheckpointError."""
        with self.wrap_errors(f"asked for {name}"):
            try:
                text = self.files.cat_file(self.path(name, _MANIFEST))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return parse_json(text)

    def seal(self, name: str, manifest: Mapping[str, Any]) -> None:
        """Makes the folder ``name`` a checkpoint, by writing its manifest. Raises CheckpointError."""
        with self.wrap_errors(f"given {name}"):
            self.make_folder(self.path(name))
            self.files.pipe_file(self.path(name, _MANIFEST), json.dumps(manifest).encode())

    def manifest_location(self, name: str) -> str:
        """Returns the location of a manifest, for reports."""
        return f"{self.location.rstrip('/')}/{name}/{_MANIFEST}"

    def remove(self, name: str) -> None:
        """Removes a checkpoint, or the remains of one. Raises CheckpointError."""
        with self.wrap_errors(f"rid of {name}"):
            # The manifest first: a removal that is cut off leaves no checkpoint that lacks files.
            with suppress(FileNotFoundError):
                self.files.rm_file(self.path(name, _MANIFEST))
            with suppress(FileNotFoundError):
                self.files.rm(self.path(name), recursive=True)

    # ---- files ------------------------------------------------------------------------------

    @contextmanager
    def open_for_writing(self, name: str, file: str) -> Iterator[BinaryIO]:
        """Opens a file of the checkpoint ``name``. Raises what the block or the file system raises."""
        self.make_folder(self.path(name))
        place = self.path(name, file)
        try:
            with self.files.open(place, "wb") as out:
                yield out
        except BaseException:
            # On a full disk an incomplete file would take the room of the next attempt.
            with suppress(Exception):
                self.files.rm_file(place)
            raise

    def open_for_reading(self, name: str, file: str) -> BinaryIO:
        opened: BinaryIO = self.files.open(self.path(name, file), "rb")
        return opened

    def upload(self, source: Path, name: str, file: str, note_progress: Callable[[], None]) -> None:
        """Copies a file into the checkpoint ``name``, and calls ``note_progress`` at each step."""
        target = self.path(name, file)
        self.make_folder(str(PurePosixPath(target).parent))
        note_progress()
        if self.is_local:
            _copy_file(source, Path(target), note_progress)
        else:
            self.files.put_file(str(source), target, callback=_progress_callback(note_progress))

    def download(self, name: str, file: str, target: Path, note_progress: Callable[[], None]) -> None:
        """Copies a file out of the checkpoint ``name``, and calls ``note_progress`` at each step."""
        source = self.path(name, file)
        note_progress()
        if self.is_local:
            _copy_file(Path(source), target, note_progress)
        else:
            self.files.get_file(source, str(target), callback=_progress_callback(note_progress))

    def make_folder(self, path: str) -> None:
        """Makes a folder, except in object stores."""
        # Object stores have no folders, and fsspec would make the bucket instead.
        if not _WITHOUT_FOLDERS & self._kinds:
            self.files.makedirs(path, exist_ok=True)

    @contextmanager
    def wrap_errors(self, what: str) -> Iterator[None]:
        """Turns whatever a file system raises into a CheckpointError: "... could not be" ``what``."""
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # each of fsspec's file systems has its own types of errors
            reason = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{self.location} could not be {what}: {reason}") from error

    def _first_existing(self) -> str:
        """Returns the root if it exists, otherwise the nearest folder above it that does."""
        found = self.root
        if not _WITHOUT_FOLDERS & self._kinds:
            while not self.files.exists(found) and "/" in found.rstrip("/"):
                found = found.rsplit("/", 1)[0] or "/"
        return found


def parse_json(text: bytes) -> Any:
    """Returns the value of a JSON file; None if the file is incomplete."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _copy_file(source: Path, target: Path, note_progress: Callable[[], None]) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        while block := read.read(_BLOCK):
            written.write(block)
            note_progress()


def _progress_callback(note_progress: Callable[[], None]) -> Any:
    """Returns a callback by which fsspec's remote file systems report progress."""
    from fsspec.callbacks import Callback

    return Callback(hooks={"goes on": lambda *_, **__: note_progress()})
