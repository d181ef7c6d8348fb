"""Keeps checkpoints in any place fsspec can reach, whatever they are of; a half-written one is never used.

    ROOT/NAME/...               the files of one checkpoint; names sort as checkpoints do, the newest last
    ROOT/NAME/manifest.json     written last: without it the folder counts for nothing

No rename is needed, which object stores lack: a folder without a manifest is what a writer that was cut off
has left, and a manifest that was cut off is no JSON. A checkpoint is removed manifest first. What a manifest
says is the business of those who write it.
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
"""What fsspec calls object stores."""
_LOCAL: Final = "file"
"""What fsspec calls the file system of this computer."""


class CheckpointError(Exception):
    """A checkpoint cannot be read or written where it should be.

    The message says where, what was tried, and what the store answered or what to do.
    """


class ManifestStore:
    """A folder of checkpoints. ``location``: a local path, or any URL that fsspec understands."""

    def __init__(self, location: str) -> None:
        """Raises CheckpointError where nobody knows the kind of URL."""
        from fsspec.core import url_to_fs  # late: few processes come here

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
        """Returns a path below the root, as its file system has it."""
        return "/".join((self.root, *parts))

    def check_writable(self) -> None:
        """Raises CheckpointError unless files can be written, read and removed there. Leaves nothing."""
        with self.wrap_errors("written to"):
            probe = f"{self._first_existing()}/probe-{secrets.token_hex(4)}"
            self.files.pipe_file(probe, b"spotctl")
            found = self.files.cat_file(probe)
            self.files.rm_file(probe)
        if found != b"spotctl":
            raise CheckpointError(f"{self.location}: what was written there reads back as something else")

    # ---- checkpoints ------------------------------------------------------------------------

    def list_names(self) -> list[str]:
        """Returns all there is, whole or not, the newest first. Raises CheckpointError."""
        with self.wrap_errors("listed"):
            self.files.invalidate_cache()  # others write here too
            if not self.files.exists(self.root):
                return []
            entries = self.files.ls(self.root, detail=False)
        return sorted((PurePosixPath(str(entry)).name for entry in entries), reverse=True)

    def read_manifest(self, name: str) -> Any:
        """Returns what a manifest says; None where there is none, or it was not written to its end."""
        with self.wrap_errors(f"asked for {name}"):
            try:
                text = self.files.cat_file(self.path(name, _MANIFEST))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return parse_json(text)

    def seal(self, name: str, manifest: Mapping[str, Any]) -> None:
        """Makes the folder ``name`` a checkpoint, all at once. Raises CheckpointError."""
        with self.wrap_errors(f"given {name}"):
            self.make_folder(self.path(name))
            self.files.pipe_file(self.path(name, _MANIFEST), json.dumps(manifest).encode())

    def manifest_location(self, name: str) -> str:
        """Returns where a manifest is, as the reader of a report would look for it."""
        return f"{self.location.rstrip('/')}/{name}/{_MANIFEST}"

    def remove(self, name: str) -> None:
        """Removes a checkpoint, or what there is of one. Raises CheckpointError."""
        with self.wrap_errors(f"rid of {name}"):
            with suppress(FileNotFoundError):
                self.files.rm_file(self.path(name, _MANIFEST))
            with suppress(FileNotFoundError):
                self.files.rm(self.path(name), recursive=True)

    # ---- files ------------------------------------------------------------------------------

    @contextmanager
    def open_for_writing(self, name: str, file: str) -> Iterator[BinaryIO]:
        """Opens a file of the checkpoint ``name``. Raises what the block or the file system raises.

        An incomplete file is removed: else a later attempt would have no room on a full disk.
        """
        self.make_folder(self.path(name))
        place = self.path(name, file)
        try:
            with self.files.open(place, "wb") as out:
                yield out
        except BaseException:
            with suppress(Exception):
                self.files.rm_file(place)
            raise

    def open_for_reading(self, name: str, file: str) -> BinaryIO:
        opened: BinaryIO = self.files.open(self.path(name, file), "rb")
        return opened

    def upload(self, source: Path, name: str, file: str, goes_on: Callable[[], None]) -> None:
        """Copies a file into the checkpoint ``name``; calls ``goes_on`` as it gets further."""
        target = self.path(name, file)
        self.make_folder(str(PurePosixPath(target).parent))
        goes_on()
        if self.is_local:
            _copy_file(source, Path(target), goes_on)
        else:
            self.files.put_file(str(source), target, callback=_progress_callback(goes_on))

    def download(self, name: str, file: str, target: Path, goes_on: Callable[[], None]) -> None:
        """Copies a file out of the checkpoint ``name``; calls ``goes_on`` as it gets further."""
        source = self.path(name, file)
        goes_on()
        if self.is_local:
            _copy_file(Path(source), target, goes_on)
        else:
            self.files.get_file(source, str(target), callback=_progress_callback(goes_on))

    def make_folder(self, path: str) -> None:
        """Makes a folder, but not in object stores: there that would make the bucket, which is not ours to
        make.
        """
        if not _WITHOUT_FOLDERS & self._kinds:
            self.files.makedirs(path, exist_ok=True)

    @contextmanager
    def wrap_errors(self, what: str) -> Iterator[None]:
        """Turns whatever a file system raises (each has errors of its own) into a CheckpointError."""
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{self.location} could not be {what}: {reason}") from error

    def _first_existing(self) -> str:
        """Returns the root or, before it is made, the first folder above it that exists."""
        found = self.root
        if not _WITHOUT_FOLDERS & self._kinds:
            while not self.files.exists(found) and "/" in found.rstrip("/"):
                found = found.rsplit("/", 1)[0] or "/"
        return found


def parse_json(text: bytes) -> Any:
    """Returns the value of a JSON file; None where it was not written to its end."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _copy_file(source: Path, target: Path, goes_on: Callable[[], None]) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        while block := read.read(_BLOCK):
            written.write(block)
            goes_on()


def _progress_callback(goes_on: Callable[[], None]) -> Any:
    """Returns the callback by which fsspec's file systems that are not local report
    that a copy gets further.
    """
    from fsspec.callbacks import Callback

    return Callback(hooks={"goes on": lambda *_, **__: goes_on()})
