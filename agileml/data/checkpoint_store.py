"""Keeps checkpoints in any folder or URL that fsspec knows.

    PLACE/RUN/CLOCK-ATTEMPT/partition-00000.npz ...   values, each file with the check sum that zip keeps
    PLACE/RUN/CLOCK-ATTEMPT/manifest.json             written last: without it the folder counts for nothing

A job writes below a RUN of its own, so that it never touches what it was resumed from. Nothing here knows
when a checkpoint is due, or which one is the newest of a running job: that is for
``agileml.controller.checkpoints``.
"""

from __future__ import annotations

import glob
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from agileml.model_shape import Shape
from agileml.node.arrays import Matrix
from agileml.node.checkpoint_store import CheckpointError, ManifestStore, parse_json
from agileml.protocol.events import Setup

_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_RUN: Final = re.compile(r"[0-9a-f]{8}")


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
    """Writes a partition into the checkpoint ``folder``. Raises what its file system raises."""
    store, name = _split_folder(folder)
    with store.open_for_writing(name, _partition_file(partition)) as out:
        np.savez(out, values=values)


def read_partition(folder: str, partition: int) -> Matrix:
    """Reads a partition. Raises CheckpointError where it is missing or not what was written."""
    try:
        store, name = _split_folder(folder)
        with (
            store.open_for_reading(name, _partition_file(partition)) as source,
            np.load(source, allow_pickle=False) as arrays,
        ):
            values: Matrix = arrays["values"]
    except Exception as error:  # file systems have error types of their own, and so has zip
        raise CheckpointError(f"partition {partition} of {folder}: {_format_error(error)}") from error
    return values


def seal_checkpoint(folder: str, manifest: Manifest) -> None:
    """Makes the folder a checkpoint, all at once. Raises CheckpointError."""
    store, name = _split_folder(folder)
    store.seal(name, asdict(manifest))


def drop_older(folder: str, attempt: int) -> None:
    """Removes what this job wrote in attempts before ``attempt``, whose checkpoint is in ``folder``.

    Raises CheckpointError.
    """
    store, _ = _split_folder(folder)
    for name in store.list_names():
        number = name.rsplit("-", 1)[-1]
        # Names without an attempt's number are not of this job.
        if number.isdigit() and int(number) < attempt:
            store.remove(name)


def remove_checkpoints(place: str) -> None:
    """Removes what every run has kept below ``place``; harmless when repeated. Raises CheckpointError."""
    store = ManifestStore(_absolute_place(place))
    for name in store.list_names():
        # Only folders named as runs are: a user may keep other files at the place.
        if _RUN.fullmatch(name):
            store.remove(name)


def newest_checkpoint(place: str) -> CompleteCheckpoint | None:
    """Returns the complete checkpoint of the highest clock in, or below, ``place``; None where there is none.

    Raises CheckpointError where the place cannot be read.
    """
    store = ManifestStore(place)
    with store.wrap_errors("read"):
        store.files.invalidate_cache()
        found = [
            CompleteCheckpoint(_format_location(store, name[: -len(_MANIFEST) - 1]), manifest)
            # A checkpoint, a run with checkpoints, or a place with runs: a user may name any of them.
            for depth in ("", "*/", "*/*/")
            for name in store.files.glob(f"{glob.escape(store.root)}/{depth}{_MANIFEST}")
            if (manifest := _parse_manifest(store.files.cat_file(name))) is not None
        ]
    # Two attempts may have stored one clock: either will do.
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
    # Another number of shards or partitions would assign rows to the wrong files.
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
    store = ManifestStore(folder)
    with store.wrap_errors("made"):
        store.make_folder(store.root)
    if not store.is_local and glob.has_magic(store.root):  # fsspec moves and removes what would match
        raise CheckpointError(f"checkpoints cannot be kept at {place}: name a place without *, ? and [")
    return folder


def _absolute_place(place: str) -> str:
    """Makes a local path absolute: processes of a job do not share a working directory."""
    return place if "://" in place else str(Path(place).resolve())


def _split_folder(folder: str) -> tuple[ManifestStore, str]:
    """Returns the store that a checkpoint's folder is in, and its name there."""
    place, _, name = folder.rpartition("/")
    return ManifestStore(place), name


def _format_location(store: ManifestStore, path: str) -> str:
    """Returns a local path as it is, and else a URL: the name under which it was written."""
    return path if store.is_local else str(store.files.unstrip_protocol(path))


def _partition_file(partition: int) -> str:
    return f"partition-{partition:05}.npz"


def _parse_manifest(content: bytes) -> Manifest | None:
    """Parses a manifest. None for what is none of this format: then the folder is no checkpoint of ours."""
    try:
        manifest = Manifest(**parse_json(content))
    except TypeError:
        return None
    return manifest if manifest.format == _FORMAT else None


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
