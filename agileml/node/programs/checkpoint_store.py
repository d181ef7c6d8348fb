"""Stores complete checkpoints in any place fsspec can reach; a half-written one is never used.

    ROOT/data/STEP-TOKEN/...      the files of one checkpoint
    ROOT/manifests/STEP.json      written last: which data, and every file's length and SHA-256

A checkpoint exists when its manifest can be read and everything it names is there. So no rename is needed,
which object stores lack: data without a manifest is what an upload that was cut off has left, and a
manifest that was cut off is no JSON. Refuses to know programs and machines.

    ROOT/ended.json               when the work was done, for those who were not there to hear it
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from agileml.node.programs.background_copy import Abandoned, NoteProgress
from agileml.node.programs.checkpoint_folder import Checkpoint

KEPT: Final = 2
"""How many checkpoints are kept: the newest, and one to fall back on should it turn out damaged."""
_SCHEMA: Final = "spotctl.checkpoint/1"
_DIGITS: Final = 15
_END: Final = "ended.json"
_BLOCK: Final = 1 << 20
_WITHOUT_FOLDERS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})
"""What fsspec calls object stores."""


_LOCAL: Final = "file"
"""What fsspec calls the file system of this computer."""


def _ignore_progress() -> None:
    """Takes no notice of progress: for a caller that waits for as long as it takes."""


class StoreError(Exception):
    """The store cannot be read or written. The message says which, what was tried, and what it answered."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file of a checkpoint. ``path`` is relative to it, and empty where the checkpoint is that file."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint in the store, as its manifest describes it. ``machine`` wrote it."""

    step: int
    data: str
    files: tuple[CheckpointFile, ...]
    machine: str = ""

    @property
    def folder_name(self) -> str:
        """Its name in a program's checkpoint folder."""
        return f"step-{self.step}"

    @property
    def size_bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class WorkEnd:
    """When the work was done, in seconds since the epoch, and the last step that the program reported."""

    at: float
    steps: int | None


class CheckpointStore:
    """A run's store. ``location``: a folder, or any URL that fsspec understands, of that run's own."""

    def __init__(self, location: str) -> None:
        from fsspec.core import url_to_fs

        self.location = location
        self._uploading: set[str] = set()
        with self._wrap_errors("opened"):
            self._fs, root = url_to_fs(location)
            self._root = str(root).rstrip("/")

    def check_writable(self) -> None:
        """Raises StoreError unless files can be written there, read and removed. Leaves nothing behind."""
        with self._wrap_errors("written to"):
            probe = f"{self._first_existing()}/probe-{secrets.token_hex(4)}"
            self._fs.pipe_file(probe, b"spotctl")
            found = self._fs.cat_file(probe)
            self._fs.rm_file(probe)
        if found != b"spotctl":
            raise StoreError(f"{self.location}: what was written there reads back as something else")

    def publish(
        self, checkpoint: Checkpoint, machine: str = "", goes_on: NoteProgress = _ignore_progress
    ) -> StoredCheckpoint:
        """Stores a complete checkpoint that ``machine`` wrote.

        Raises StoreError, and FileNotFoundError where its program removed it. Once it is there, all but the
        newest ``KEPT`` are removed, and what cut-off uploads have left. An abandoned upload may still be
        under way: it removes nothing, and what it wrote stays until it ends.
        """
        data = f"{checkpoint.step}-{secrets.token_hex(4)}"
        files = tuple(_describe_files(checkpoint.path, goes_on))
        self._uploading.add(data)
        try:
            with self._wrap_errors(f"given step-{checkpoint.step}"):
                self._prune_old(goes_on)  # remains of cut-off uploads may fill the store
                for file in files:
                    self._upload_file(
                        checkpoint.path / file.path, f"{self._root}/data/{data}/{_remote_path(file)}", goes_on
                    )
                stored = StoredCheckpoint(checkpoint.step, data, files, machine)
                goes_on()
                self._write_manifest(stored)
                self._prune_old(goes_on)
        finally:
            self._uploading.discard(data)
        return stored

    def list_complete(self, goes_on: NoteProgress = _ignore_progress) -> Iterator[StoredCheckpoint]:
        """Yields the complete checkpoints, the most steps first. Raises StoreError."""
        with self._wrap_errors("listed"):
            manifests = self._list_names("manifests")
        for name in sorted(manifests, reverse=True):
            stored = self._read_manifest(name)
            if stored is not None and self._is_complete(stored, goes_on):
                yield stored

    def manifest_of(self, stored: StoredCheckpoint) -> str:
        """Returns the location of a checkpoint's manifest, as the reader of a report would look for it."""
        return f"{self.location}/{_manifest_path(stored.step)}"

    def restore(
        self, stored: StoredCheckpoint, folder: Path, goes_on: NoteProgress = _ignore_progress
    ) -> Checkpoint:
        """Brings a checkpoint into a program's ``folder``, where it appears complete or not at all.

        Raises StoreError where a file is not what was stored.
        """
        partial, target = folder / f".restoring-{stored.folder_name}", folder / stored.folder_name
        _remove_path(partial)
        for file in stored.files:
            place = partial / file.path if file.path else partial
            place.parent.mkdir(parents=True, exist_ok=True)
            with self._wrap_errors(f"asked for {stored.folder_name}"):
                self._download_file(f"{self._root}/data/{stored.data}/{_remote_path(file)}", place, goes_on)
            if _hash_file(place, goes_on) != file.sha256:
                _remove_path(partial)
                raise StoreError(
                    f"{self.location}: {stored.folder_name} is damaged: {file.path or 'its file'}"
                )
        if not stored.files:
            partial.mkdir()
        goes_on()
        _remove_path(target)
        partial.rename(target)
        return Checkpoint(stored.step, target)

    def record_end(self, steps: int | None) -> None:
        """Puts on record that the work is done now, and all of it stored. Raises StoreError.

        ``steps``: the last that the program reported; None where it reports none.
        """
        with self._wrap_errors("given the end of the work"):
            self._make_folder(self._root)
            self._fs.pipe_file(
                f"{self._root}/{_END}", json.dumps(asdict(WorkEnd(time.time(), steps))).encode()
            )

    def read_end(self) -> WorkEnd | None:
        """Returns the end of the work; None while it is not on record.

        Raises StoreError.
        """
        with self._wrap_errors("asked for the end of the work"):
            self._fs.invalidate_cache()
            if not self._fs.exists(f"{self._root}/{_END}"):
                return None
            text = self._fs.cat_file(f"{self._root}/{_END}")
        try:
            return WorkEnd(**json.loads(text))
        except (ValueError, TypeError):
            return None  # it was cut off

    # ---- what the files are -----------------------------------------------------------------

    def _write_manifest(self, stored: StoredCheckpoint) -> None:
        files = [{"path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in stored.files]
        content = {
            "schema": _SCHEMA,
            "step": stored.step,
            "machine": stored.machine,
            "data": stored.data,
            "files": files,
        }
        self._make_folder(f"{self._root}/manifests")
        self._fs.pipe_file(f"{self._root}/{_manifest_path(stored.step)}", json.dumps(content).encode())

    def _read_manifest(self, name: str) -> StoredCheckpoint | None:
        """Reads a manifest; None where it was not written to its end."""
        with self._wrap_errors(f"asked for manifests/{name}"):
            text = self._fs.cat_file(f"{self._root}/manifests/{name}")
        try:
            content = json.loads(text)
            files = tuple(
                CheckpointFile(str(f["path"]), int(f["bytes"]), str(f["sha256"])) for f in content["files"]
            )
            by = str(content.get("machine", ""))
            stored = StoredCheckpoint(int(content["step"]), str(content["data"]), files, by)
        except (ValueError, KeyError, TypeError):
            return None
        for path in (stored.data, *(file.path for file in files)):
            if path.startswith("/") or ".." in PurePosixPath(path).parts:
                raise StoreError(
                    f"{self.location}: manifests/{name} names {path!r}, outside of its checkpoint"
                )
        return stored

    def _is_complete(self, stored: StoredCheckpoint, goes_on: NoteProgress) -> bool:
        with self._wrap_errors(f"asked for {stored.folder_name}"):
            for file in stored.files:
                goes_on()
                place = f"{self._root}/data/{stored.data}/{_remote_path(file)}"
                if not self._fs.exists(place) or self._fs.info(place)["size"] != file.bytes:
                    return False
        return True

    def _upload_file(self, source: Path, target: str, goes_on: NoteProgress) -> None:
        self._make_folder(str(PurePosixPath(target).parent))
        goes_on()
        if _LOCAL in self._protocols:
            _copy_file(source, Path(target), goes_on)
        else:
            self._fs.put_file(str(source), target, callback=_progress_callback(goes_on))

    def _download_file(self, source: str, target: Path, goes_on: NoteProgress) -> None:
        goes_on()
        if _LOCAL in self._protocols:
            _copy_file(Path(source), target, goes_on)
        else:
            self._fs.get_file(source, str(target), callback=_progress_callback(goes_on))

    @property
    def _protocols(self) -> tuple[str, ...]:
        return self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,)

    def _first_existing(self) -> str:
        """Returns the store's folder or, before it is made, the first one above it that exists."""
        found = self._root
        if not _WITHOUT_FOLDERS.intersection(self._protocols):
            while not self._fs.exists(found) and "/" in found.rstrip("/"):
                found = found.rsplit("/", 1)[0] or "/"
        return found

    def _make_folder(self, path: str) -> None:
        """Makes a folder, but not in object stores: there that would make the bucket, which is not ours to
        make.
        """
        if not _WITHOUT_FOLDERS.intersection(self._protocols):
            self._fs.makedirs(path, exist_ok=True)

    def _prune_old(self, goes_on: NoteProgress) -> None:
        """Removes old checkpoints, manifests first: what has none is not used while it is being removed."""
        names = sorted(self._list_names("manifests"), reverse=True)
        for name in names[KEPT:]:
            goes_on()
            self._fs.rm_file(f"{self._root}/manifests/{name}")
        kept = {s.data for name in names[:KEPT] if (s := self._read_manifest(name)) is not None}
        for data in self._list_names("data"):
            if data not in kept and data not in self._uploading:
                goes_on()
                self._fs.rm(f"{self._root}/data/{data}", recursive=True)

    def _list_names(self, folder: str) -> list[str]:
        self._fs.invalidate_cache()  # others write here too
        place = f"{self._root}/{folder}"
        if not self._fs.exists(place):
            return []
        return [PurePosixPath(str(entry)).name for entry in self._fs.ls(place, detail=False)]

    @contextmanager
    def _wrap_errors(self, what: str) -> Iterator[None]:
        """Turns whatever a file system raises (each has errors of its own) into a StoreError."""
        try:
            yield
        except (StoreError, Abandoned):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise StoreError(f"{self.location} could not be {what}: {reason}") from error


def _copy_file(source: Path, target: Path, goes_on: NoteProgress) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        while block := read.read(_BLOCK):
            written.write(block)
            goes_on()


def _progress_callback(goes_on: NoteProgress) -> Any:
    """Returns the callback by which fsspec's file systems that are not local report
    that a copy gets further.
    """
    from fsspec.callbacks import Callback

    return Callback(hooks={"goes on": lambda *_, **__: goes_on()})


def _describe_files(path: Path, goes_on: NoteProgress) -> Iterator[CheckpointFile]:
    """Yields every file of a checkpoint, in order. Raises FileNotFoundError where it is gone."""
    if path.is_file():
        yield CheckpointFile("", path.stat().st_size, _hash_file(path, goes_on))
        return
    if not path.is_dir():
        raise FileNotFoundError(path)
    for entry in sorted(path.rglob("*")):
        if entry.is_symlink() and entry.is_dir():
            raise StoreError(f"{entry} links to a folder; a checkpoint must hold what it needs itself")
        if entry.exists() and not (entry.is_dir() or entry.is_file()):
            raise StoreError(f"{entry} is a pipe, a socket or a device, whose content has no end to be kept")
        if not entry.is_dir():
            yield CheckpointFile(
                entry.relative_to(path).as_posix(), entry.stat().st_size, _hash_file(entry, goes_on)
            )


def _manifest_path(step: int) -> str:
    """Returns the manifest's path, with so many digits that names sort as their steps do."""
    return f"manifests/{step:0{_DIGITS}}.json"


def _remote_path(file: CheckpointFile) -> str:
    return f"files/{file.path}" if file.path else "file"


def _hash_file(path: Path, goes_on: NoteProgress) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
            goes_on()
    return found.hexdigest()


def _remove_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
