"""Stores the complete checkpoints of a program, file by file, and detects damaged ones.

    ROOT/STEP-TOKEN/files/...   the files of one checkpoint, or ``file`` if it is a single file
    ROOT/STEP-TOKEN/manifest.json   written last: every file's length and SHA-256
    ROOT/ended.json             when the work was done, for a supervisor that missed the report

A checkpoint counts if its manifest is complete and every file that it names is there. Nothing here knows
programs or machines.
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
from agileml.node.programs.checkpoint_folder import STEP_DIGITS, Checkpoint

KEPT: Final = 2
"""The number of checkpoints to keep: the newest, and another in case the newest is damaged."""
_SCHEMA: Final = "spotctl.checkpoint/2"
_END: Final = "ended.json"
_BLOCK: Final = 1 << 20


def _ignore_progress() -> None:
    """Ignores progress, for callers that wait without a limit."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A file of a checkpoint. ``path``: inside of the checkpoint; empty if that is a single file."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint in the store. ``machine``: the one that wrote it; ``name``: the checkpoint's folder."""

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
    """Holds when the work was done (seconds since the epoch), and the last reported step if there was one."""

    at: float
    steps: int | None


class CheckpointStore:
    """The store of one run. ``location``: a folder or an fsspec URL that no other run uses."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._store = ManifestStore(location)
        self._uploading: set[str] = set()

    def check_writable(self) -> None:
        """Raises CheckpointError unless files can be written, read and removed there."""
        self._store.check_writable()

    def publish(
        self, checkpoint: Checkpoint, machine: str = "", note_progress: NoteProgress = _ignore_progress
    ) -> StoredCheckpoint:
        """Stores a complete checkpoint that ``machine`` wrote.

        Then removes all but the newest ``KEPT`` checkpoints, and the remains of uploads that were cut off.
        Raises CheckpointError, and FileNotFoundError if the program has removed the checkpoint.
        """
        name = f"{checkpoint.step:0{STEP_DIGITS}}-{secrets.token_hex(4)}"
        files = tuple(_describe_files(checkpoint.path, note_progress))
        stored = StoredCheckpoint(checkpoint.step, name, files, machine)
        # An abandoned upload may still be writing in another thread: pruning leaves its folder alone.
        self._uploading.add(name)
        try:
            with self._store.wrap_errors(f"given {stored.folder_name}"):
                self._prune_old(note_progress)  # first, as remains of uploads may fill the store
                for file in files:
                    self._store.upload(checkpoint.path / file.path, name, _remote_path(file), note_progress)
                note_progress()
                content = {"schema": _SCHEMA, "step": stored.step, "machine": machine}
                self._store.seal(name, {**content, "files": [asdict(file) for file in files]})
                self._uploading.discard(name)  # it counts from now on
                self._prune_old(note_progress)
        finally:
            self._uploading.discard(name)
        return stored

    def list_complete(self, note_progress: NoteProgress = _ignore_progress) -> Iterator[StoredCheckpoint]:
        """Yields the complete checkpoints, the newest first. Raises CheckpointError."""
        for name in self._store.list_names():
            stored = self._read_stored(name)
            if stored is not None and self._is_complete(stored, note_progress):
                yield stored

    def manifest_of(self, stored: StoredCheckpoint) -> str:
        """Returns the location of a checkpoint's manifest, for reports."""
        return self._store.manifest_location(stored.name)

    def restore(
        self, stored: StoredCheckpoint, folder: Path, note_progress: NoteProgress = _ignore_progress
    ) -> Checkpoint:
        """Copies a checkpoint into a program's ``folder``, where it appears atomically.

        Raises CheckpointError if a file differs from what was stored.
        """
        partial, target = folder / f".restoring-{stored.folder_name}", folder / stored.folder_name
        _remove_path(partial)
        for file in stored.files:
            place = partial / file.path if file.path else partial
            place.parent.mkdir(parents=True, exist_ok=True)
            with self._store.wrap_errors(f"asked for {stored.folder_name}"):
                self._store.download(stored.name, _remote_path(file), place, note_progress)
            if _hash_file(place, note_progress) != file.sha256:
                _remove_path(partial)
                raise CheckpointError(
                    f"{self.location}: {stored.folder_name} is damaged: {file.path or 'its file'}"
                )
        if not stored.files:
            partial.mkdir()
        note_progress()
        _remove_path(target)
        partial.rename(target)
        return Checkpoint(stored.step, target)

    # ---- the end of the work ----------------------------------------------------------------

    def record_end(self, steps: int | None) -> None:
        """Records that the work is done now, and all of it stored. Raises CheckpointError.

        ``steps``: the last step that the program reported; None if it reports none.
        """
        with self._store.wrap_errors("given the end of the work"):
            self._store.make_folder(self._store.root)
            end = asdict(WorkEnd(time.time(), steps))
            self._store.files.pipe_file(self._store.path(_END), json.dumps(end).encode())

    def read_end(self) -> WorkEnd | None:
        """Returns the recorded end of the work; None if there is no record. Raises CheckpointError."""
        with self._store.wrap_errors("asked for the end of the work"):
            self._store.files.invalidate_cache()
            try:
                content = parse_json(self._store.files.cat_file(self._store.path(_END)))
            except FileNotFoundError:
                return None
        return None if content is None else WorkEnd(content["at"], content["steps"])

    # ---- manifests --------------------------------------------------------------------------

    def _read_stored(self, name: str) -> StoredCheckpoint | None:
        """Returns what a manifest describes; None if it is missing, incomplete or not of a program."""
        content = self._store.read_manifest(name)
        if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
            return None
        files = tuple(CheckpointFile(**file) for file in content["files"])
        # A manifest comes from a store that others may write to; ``restore`` writes to these paths.
        for file in files:
            if file.path.startswith("/") or ".." in PurePosixPath(file.path).parts:
                raise CheckpointError(
                    f"{self.location}: {name} names {file.path!r}, outside of its checkpoint"
                )
        return StoredCheckpoint(content["step"], name, files, content["machine"])

    def _is_complete(self, stored: StoredCheckpoint, note_progress: NoteProgress) -> bool:
        with self._store.wrap_errors(f"asked for {stored.folder_name}"):
            for file in stored.files:
                note_progress()
                place = self._store.path(stored.name, _remote_path(file))
                if not self._store.files.exists(place) or self._store.files.info(place)["size"] != file.bytes:
                    return False
        return True

    def _prune_old(self, note_progress: NoteProgress) -> None:
        kept = 0
        for name in self._store.list_names():
            if name in self._uploading:
                continue
            if kept < KEPT and self._read_stored(name) is not None:
                kept += 1
                continue
            note_progress()
            self._store.remove(name)


def _describe_files(path: Path, note_progress: NoteProgress) -> Iterator[CheckpointFile]:
    """Yields every file of a checkpoint, in order. Raises FileNotFoundError if the checkpoint is gone."""
    if path.is_file():
        yield CheckpointFile("", path.stat().st_size, _hash_file(path, note_progress))
        return
    if not path.is_dir():
        raise FileNotFoundError(path)
    for entry in sorted(path.rglob("*")):
        if entry.is_symlink() and entry.is_dir():
            raise CheckpointError(f"{entry} links to a folder; a checkpoint must contain all of its files")
        if entry.exists() and not (entry.is_dir() or entry.is_file()):
            raise CheckpointError(
                f"{entry} is a pipe, a socket or a device; a checkpoint can only hold files and folders"
            )
        if not entry.is_dir():
            yield CheckpointFile(
                entry.relative_to(path).as_posix(), entry.stat().st_size, _hash_file(entry, note_progress)
            )


def _remote_path(file: CheckpointFile) -> str:
    return f"files/{file.path}" if file.path else "file"


def _hash_file(path: Path, note_progress: NoteProgress) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
            note_progress()
    return found.hexdigest()


def _remove_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
