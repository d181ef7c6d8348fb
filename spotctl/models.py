"""What came of a job: its model, put where the job wants it, or its newest checkpoint."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from agileml.hosts.job import JobFolder
from agileml.places import Place
from spotctl.command.store import CheckpointStore, Stored, StoreError
from spotctl.errors import JobError


class NotKept(Exception):
    """A model that is trained cannot be put where its job wants it; the message says where it is instead."""


def check_output(output: str) -> None:
    """Raises JobError unless files can be written to ``output``: afterwards the work has been paid for."""
    try:
        Place(output).check()
    except Exception as error:  # of any file system's own kind
        raise JobError("output", f"{output} cannot be written to: {_told(error)}") from error


def keep_model(training: JobFolder, output: str, instead: Path) -> str:
    """Write ``model.npz`` to ``output``; its path. Raises NotKept where that cannot be.

    Then it is in the folder ``instead``, if that can be.
    """
    try:
        return write_model(training, output)
    except Exception as error:  # of any file system's own kind
        why = f"the work is done, but its model cannot be written to {output} ({_told(error)})"
        try:
            kept = write_model(training, str(instead))
        except OSError as also:
            raise NotKept(f"{why}; its parts stay in {training.path}") from also
        raise NotKept(f"{why}; it is in {kept}") from error


def write_model(training: JobFolder, output: str) -> str:
    """Write ``output``/model.npz: ``model`` (rows, columns) float32, and what its rows mean.

    ``output``: a folder or any URL that fsspec knows. The file appears whole or not at all; one that is
    there is replaced.
    """
    cut = training.cut_input()
    model = training.load_model(cut.shape, training.job().setup.partitions)
    arrays: dict[str, Any] = {"model": model, **cut.index()}
    with Place(output).writing("model.npz") as out:
        np.savez(out, **arrays)
    return f"{output}/model.npz"


def keep_checkpoint(location: str, output: str) -> str:
    """Where the newest whole checkpoint of the store at ``location`` is, "" where it has none.

    It is there, or in ``output`` (a folder or a URL) where that is set. A copy that cannot be made leaves the
    one in the store, and says so. Raises NotKept where the store cannot be read any more.
    """
    try:
        store = CheckpointStore(location)
        stored = next(iter(store.whole()), None)
    except StoreError as error:
        raise NotKept(f"the program has ended, but its checkpoints cannot be found: {error}") from error
    if stored is None:
        return ""
    kept = store.manifest_of(stored)
    if not output:
        return kept
    try:
        return copy_checkpoint(store, stored, output)
    except Exception as error:  # of any file system's own kind
        return f"{kept} (not copied to {output}: {_told(error)})"


def copy_checkpoint(store: CheckpointStore, stored: Stored, output: str) -> str:
    """``output``/step-N as the program wrote it. Raises what the store and ``output`` do."""
    if "://" not in output:
        Path(output).mkdir(parents=True, exist_ok=True)
        return str(store.restore(stored, Path(output)).path)
    from fsspec.core import url_to_fs

    with TemporaryDirectory(prefix="spotctl-") as folder:
        found = store.restore(stored, Path(folder))
        files, root = url_to_fs(output)
        files.put(str(found.path), f"{root}/{stored.name}", recursive=found.path.is_dir())
    return f"{output.rstrip('/')}/{stored.name}"


def _told(error: Exception) -> str:
    """A system's own words, where there are any, without the file's name: the caller says it."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
