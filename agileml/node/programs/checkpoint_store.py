"""Stores the complete checkpoints of a program, file by file; one that is damaged is noticed.

    ROOT/STEP-TOKEN/files/...   the files of one checkpoint, or ``file`` where it is a single one
    ROOT/STEP-TOKEN/manifest.json   written last: every file's length and SHA-256
    ROOT/ended.json             when the work was done, for those who were not there to hear it

A checkpoint exists when its manifest can be read and everything it names is there. Refuses to know programs
and machines.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from agileml.node.checkpoint_store import CheckpointError, ManifestStore, parse_json
from agileml.node.programs.background_copy import NoteProgress
from agileml.node.programs.checkpoint_folder import Checkpoint

KEPT: Final = 2
"""How many checkpoints are kept: the newest, and one to fall back on should it turn out damaged."""
_SCHEMA: Final = "spotctl.checkpoint/2"
_DIGITS: Final = 15
_END: Final = "ended.json"
_BLOCK: Final = 1 << 20


def _ignore_progress() -> None:
    """Takes no notice of progress: for a caller that waits for as long as it takes."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file of a checkpoint. ``path`` is relative to it, and empty where the checkpoint is that file."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint in the store. ``machine`` wrote it; ``name`` is its folder."""

    step: int
    name: str
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
    """Holds when the work was done (seconds since the epoch) and the last step that was reported."""

    at: float
    steps: int | None


class CheckpointStore:
    """A run's store. ``location``: a folder, or any URL that fsspec understands, of that run's own."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._store = ManifestStore(location)
        self._uploading: set[str] = set()

    def check_writable(self) -> None:
        """Raises CheckpointError unless files can be written, read and removed there. Leaves nothing."""
        self._store.check_writable()

    def publish(
        self, checkpoint: Checkpoint, machine: str = "", goes_on: NoteProgress = _ignore_progress
    ) -> StoredCheckpoint:
        """Stores a complete checkpoint that ``machine`` wrote.

        Raises CheckpointError, and FileNotFoundError where its program removed it. Once it is there, all but
        the newest ``KEPT`` are removed, and what cut-off uploads have left. An abandoned upload may still be
        under way: it removes nothing, and what it wrote stays until it ends.
        """
        name = f"{checkpoint.step:0{_DIGITS}}-{secrets.token_hex(4)}"
        files = tuple(_describe_files(checkpoint.path, goes_on))
        stored = StoredCheckpoint(checkpoint.step, name, files, machine)
        self._uploading.add(name)
        try:
            with self._store.wrap_errors(f"given {stored.folder_name}"):
                self._prune_old(goes_on)  # remains of cut-off uploads may fill the store
                for file in files:
                    self._store.upload(checkpoint.path / file.path, name, _remote_path(file), goes_on)
                goes_on()
                content = {"schema": _SCHEMA, "step": stored.step, "machine": machine}
                self._store.seal(name, {**content, "files": [asdict(file) for file in files]})
                self._uploading.discard(name)  # it counts from now on
                self._prune_old(goes_on)
        finally:
            self._uploading.discard(name)
        return stored

    def list_complete(self, goes_on: NoteProgress = _ignore_progress) -> Iterator[StoredCheckpoint]:
        """Yields the complete checkpoints, the most steps first. Raises CheckpointError."""
        for name in self._store.list_names():
            stored = self._read_stored(name)
            if stored is not None and self._is_complete(stored, goes_on):
                yield stored

    def manifest_of(self, stored: StoredCheckpoint) -> str:
        """Returns the location of a checkpoint's manifest, as the reader of a report would look for it."""
        return self._store.manifest_location(stored.name)

    def restore(
        self, stored: StoredCheckpoint, folder: Path, goes_on: NoteProgress = _ignore_progress
    ) -> Checkpoint:
        """Brings a checkpoint into a program's ``folder``, where it appears complete or not at all.

        Raises CheckpointError where a file is not what was stored.
        """
        partial, target = folder / f".restoring-{stored.folder_name}", folder / stored.folder_name
        _remove_path(partial)
        for file in stored.files:
            place = partial / file.path if file.path else partial
            place.parent.mkdir(parents=True, exist_ok=True)
            with self._store.wrap_errors(f"asked for {stored.folder_name}"):
                self._store.download(stored.name, _remote_path(file), place, goes_on)
            if _hash_file(place, goes_on) != file.sha256:
                _remove_path(partial)
                raise CheckpointError(
                    f"{self.location}: {stored.folder_name} is damaged: {file.path or 'its file'}"
                )
        if not stored.files:
            partial.mkdir()
        goes_on()
        _remove_path(target)
        partial.rename(target)
        return Checkpoint(stored.step, target)

    # ---- the end of the work ----------------------------------------------------------------

    def record_end(self, steps: int | None) -> None:
        """Puts on record that the work is done now, and all of it stored. Raises CheckpointError.

        ``steps``: the last that the program reported; None where it reports none.
        """
        with self._store.wrap_errors("given the end of the work"):
            self._store.make_folder(self._store.root)
            end = asdict(WorkEnd(time.time(), steps))
            self._store.files.pipe_file(self._store.path(_END), json.dumps(end).encode())

    def read_end(self) -> WorkEnd | None:
        """Returns the end of the work; None while it is not on record. Raises CheckpointError."""
        with self._store.wrap_errors("asked for the end of the work"):
            self._store.files.invalidate_cache()
            try:
                content = parse_json(self._store.files.cat_file(self._store.path(_END)))
            except FileNotFoundError:
                return None
        return None if content is None else WorkEnd(content["at"], content["steps"])

    # ---- what the files are -----------------------------------------------------------------

    def _read_stored(self, name: str) -> StoredCheckpoint | None:
        """Returns what a manifest describes; None where it was not written to its end, or is of others."""
        content = self._store.read_manifest(name)
        if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
            return None
        files = tuple(CheckpointFile(**file) for file in content["files"])
        for file in files:
            if file.path.startswith("/") or ".." in PurePosixPath(file.path).parts:
                raise CheckpointError(
                    f"{self.location}: {name} names {file.path!r}, outside of its checkpoint"
                )
        return StoredCheckpoint(content["step"], name, files, content["machine"])

    def _is_complete(self, stored: StoredCheckpoint, goes_on: NoteProgress) -> bool:
        with self._store.wrap_errors(f"asked for {stored.folder_name}"):
            for file in stored.files:
                goes_on()
                place = self._store.path(stored.name, _remote_path(file))
                if not self._store.files.exists(place) or self._store.files.info(place)["size"] != file.bytes:
                    return False
        return True

    def _prune_old(self, goes_on: NoteProgress) -> None:
        kept = 0
        for name in self._store.list_names():
            if name == _END or name in self._uploading:
                continue
            if kept < KEPT and self._read_stored(name) is not None:
                kept += 1
                continue
            goes_on()
            self._store.remove(name)


def _describe_files(path: Path, goes_on: NoteProgress) -> Iterator[CheckpointFile]:
    """Yields every file of a checkpoint, in order. Raises FileNotFoundError where it is gone."""
    if path.is_file():
        yield CheckpointFile("", path.stat().st_size, _hash_file(path, goes_on))
        return
    if not path.is_dir():
        raise FileNotFoundError(path)
    for entry in sorted(path.rglob("*")):
        if entry.is_symlink() and entry.is_dir():
            raise CheckpointError(f"{entry} links to a folder; a checkpoint must hold what it needs itself")
        if entry.exists() and not (entry.is_dir() or entry.is_file()):
            raise CheckpointError(
                f"{entry} is a pipe, a socket or a device, whose content has no end to be kept"
            )
        if not entry.is_dir():
            yield CheckpointFile(
                entry.relative_to(path).as_posix(), entry.stat().st_size, _hash_file(entry, goes_on)
            )


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
