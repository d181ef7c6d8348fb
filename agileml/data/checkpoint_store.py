"""Keeps checkpoints in any folder or URL that fsspec knows.

    PLACE/RUN/CLOCK-ATTEMPT/partition-00000.npz ...   values, each file with the check sum that zip keeps
    PLACE/RUN/CLOCK-ATTEMPT/manifest.json             written last: without it the folder counts for nothing

A job writes below a RUN of its own, so that it never touches what it was resumed from. Nothing here knows
when a checkpoint is due, or which one is the newest of a running job: that is for
``agileml.controller.checkpoints``.
"""

from __future__ import annotations

import glob
import json
import re
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from agileml.model_shape import Shape
from agileml.node.arrays import Matrix
from agileml.protocol.events import Setup

_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_RUN: Final = re.compile(r"[0-9a-f]{8}")


class CheckpointError(Exception):
    """A checkpoint cannot be read or written where it should be. The message says what is there and what to
    do.
    """


@dataclass(frozen=True, slots=True)
class Manifest:
    """Describes a complete checkpoint: the model's shape, and how model and input were cut."""

    clock: int
    partitions: int
    shards: int
    rows: int
    columns: int
    format: int = _FORMAT


@dataclass(frozen=True, slots=True)
class CompleteCheckpoint:
    """A checkpoint that can be resumed from; ``folder`` is its URL."""

    folder: str
    manifest: Manifest


def write_partition(folder: str, partition: int, values: Matrix) -> None:
    """Writes a partition. An incomplete file is removed: else a later attempt would have no room on a full
    disk.
    """
    files, path = _open_place(folder)
    files.makedirs(path, exist_ok=True)
    file = _partition_path(path, partition)
    try:
        with files.open(file, "wb") as out:
            np.savez(out, values=values)
    except Exception:  # file systems have error types of their own
        with suppress(Exception):
            files.rm_file(file)
        raise


def read_partition(folder: str, partition: int) -> Matrix:
    """Reads a partition. Raises CheckpointError where it is missing or not what was written."""
    files, path = _open_place(folder)
    try:
        with (
            files.open(_partition_path(path, partition), "rb") as source,
            np.load(source, allow_pickle=False) as arrays,
        ):
            values: Matrix = arrays["values"]
    except Exception as error:  # file systems have error types of their own, and so has zip
        raise CheckpointError(f"partition {partition} of {folder}: {_format_error(error)}") from error
    return values


def seal_checkpoint(folder: str, manifest: Manifest) -> None:
    """Makes the folder a checkpoint, all at once."""
    files, path = _open_place(folder)
    unfinished = f"{path}/{_MANIFEST}.part"
    files.pipe_file(unfinished, json.dumps(asdict(manifest)).encode())
    # Renamed into place, so that no reader ever sees half of a manifest.
    files.mv(unfinished, f"{path}/{_MANIFEST}")


def drop_older(folder: str, attempt: int) -> None:
    """Removes what this job wrote in attempts before ``attempt``, whose checkpoint is in ``folder``."""
    files, path = _open_place(folder)
    files.invalidate_cache()
    for entry in files.ls(path.rsplit("/", 1)[0], detail=False):
        number = entry.rstrip("/").rsplit("-", 1)[-1]
        if number.isdigit() and int(number) < attempt:
            files.rm(entry, recursive=True)


def remove_checkpoints(place: str) -> None:
    """Removes what every run has kept below ``place``; harmless when repeated. Raises CheckpointError."""
    files, path = _open_place(_absolute_place(place))
    try:
        files.invalidate_cache()
        entries = files.ls(path, detail=False) if files.exists(path) else []
        for entry in entries:
            if _RUN.fullmatch(entry.rstrip("/").rsplit("/", 1)[-1]):
                files.rm(entry, recursive=True)
    except Exception as error:  # file systems have error types of their own
        raise CheckpointError(f"checkpoints in {place} cannot be removed: {_format_error(error)}") from error


def newest_checkpoint(place: str) -> CompleteCheckpoint | None:
    """Returns the complete checkpoint of the highest clock in, or below, ``place``; None where there is none.

    Raises CheckpointError where the place cannot be read.
    """
    try:
        files, path = _open_place(place)
        files.invalidate_cache()
        found = [
            CompleteCheckpoint(_format_location(files, name[: -len(_MANIFEST) - 1]), manifest)
            for depth in ("", "*/", "*/*/")
            for name in files.glob(f"{glob.escape(path)}/{depth}{_MANIFEST}")
            if (manifest := _parse_manifest(files.cat_file(name))) is not None
        ]
    except Exception as error:  # file systems have error types of their own
        raise CheckpointError(f"checkpoints in {place} cannot be read: {_format_error(error)}") from error
    return max(found, key=lambda whole: (whole.manifest.clock, whole.folder), default=None)


def with_checkpoint_folders(setup: Setup, resume: str, shape: Shape, *, timed: bool) -> Setup:
    """Returns ``setup`` with a run's own folder for checkpoints, starting from the newest one in ``resume``
    if given.

    ``timed``: whether checkpoints are due by time as well. Raises CheckpointError where the place cannot be
    written, no time was set, or the checkpoint cannot be read or is of another model or another cut of it.
    """
    if setup.checkpoints:
        if not (setup.checkpoint_clocks or timed):
            raise CheckpointError(
                f"checkpoints go to {setup.checkpoints}, but when? Set checkpoint_clocks or checkpoint_s"
            )
        setup = replace(setup, checkpoints=_own_folder(setup.checkpoints))
    elif timed:
        raise CheckpointError("checkpoint_s is set, but no place to keep checkpoints at")
    if not resume:
        return setup
    whole = newest_checkpoint(_absolute_place(resume))
    if whole is None:
        raise CheckpointError(f"there is no whole checkpoint in {resume}")
    wanted = Manifest(whole.manifest.clock, setup.partitions, setup.shards, shape.rows, shape.columns)
    if whole.manifest != wanted:
        raise CheckpointError(f"{whole.folder} holds {whole.manifest}, and this job is {wanted}")
    if whole.manifest.clock >= setup.clocks:
        raise CheckpointError(
            f"{whole.folder} is of clock {whole.manifest.clock}, and the job ends after {setup.clocks}: "
            "set more clocks to train on"
        )
    return replace(setup, start=whole.manifest.clock, resume=whole.folder)


def restart_setup(setup: Setup) -> Setup:
    """Returns ``setup`` for a job that lost all its machines, from its newest complete checkpoint on.

    Without one it starts from where it began before. It has a folder of its own beside that of the first
    attempt. Raises CheckpointError where the checkpoints cannot be read or the place not be written.
    """
    whole = newest_checkpoint(setup.checkpoints)
    again = replace(setup, checkpoints=_own_folder(setup.checkpoints.rpartition("/")[0]))
    return again if whole is None else replace(again, start=whole.manifest.clock, resume=whole.folder)


def _own_folder(place: str) -> str:
    folder = f"{_absolute_place(place).rstrip('/')}/{secrets.token_hex(4)}"
    try:
        files, path = _open_place(folder)
        files.makedirs(path, exist_ok=True)
    except Exception as error:  # file systems have error types of their own
        raise CheckpointError(f"checkpoints cannot be kept at {place}: {_format_error(error)}") from error
    if not _is_local(files) and glob.has_magic(path):  # fsspec moves and removes what would match
        raise CheckpointError(f"checkpoints cannot be kept at {place}: name a place without *, ? and [")
    return folder


def _absolute_place(place: str) -> str:
    """Makes a local path absolute: processes of a job do not share a working directory."""
    return place if "://" in place else str(Path(place).resolve())


def _open_place(place: str) -> tuple[Any, str]:
    """Returns fsspec's file system, and the path there."""
    from fsspec.core import url_to_fs  # late: few processes come here

    files, path = url_to_fs(place)
    return files, path.rstrip("/")


def _format_location(files: Any, path: str) -> str:
    """Returns a local path as it is, and else a URL: the name under which it was written."""
    return path if _is_local(files) else str(files.unstrip_protocol(path))


def _is_local(files: Any) -> bool:
    return "file" in files.protocol


def _partition_path(path: str, partition: int) -> str:
    return f"{path}/partition-{partition:05}.npz"


def _parse_manifest(content: bytes) -> Manifest | None:
    """Parses a manifest. None for what is none of this format: then the folder is no checkpoint of ours."""
    try:
        data: dict[str, Any] = json.loads(content)
        manifest = Manifest(**data)
    except (ValueError, TypeError):
        return None
    return manifest if manifest.format == _FORMAT else None


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
