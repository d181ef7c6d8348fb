"""Stores a job's result where its job file says: the model, or the newest checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from agileml.node.object_folder import ObjectFolder
from spotctl.errors import JobError

if TYPE_CHECKING:  # a plan only checks here whether files can be written, and needs neither
    from agileml.job import JobFolder
    from agileml.node.programs.checkpoint_store import CheckpointStore, StoredCheckpoint

LATEST: Final = "latest"
"""The link within an output to the newest run's result."""


class OutputNotStored(Exception):
    """Reports that a result could not be stored where its job wants it; the message says where it is."""


def check_output(output: str) -> None:
    """Raises JobError unless files can be written to ``output``."""
    # Checked before the launch: an error afterwards would come when the work is paid for.
    try:
        ObjectFolder(output).check_writable()
    except Exception as error:  # file systems raise errors of their own
        raise JobError("output", f"{output} cannot be written to: {_reason(error)}") from error
    if "://" not in output and (Path(output) / LATEST).is_dir() and not (Path(output) / LATEST).is_symlink():
        raise JobError(
            "output",
            f"{output}/{LATEST} is a folder, not a link to the newest model; name another output, or move it",
        )


def keep_model(training: JobFolder, output: str, run: str, instead: Path) -> str:
    """Writes the model of ``run`` below ``output``; returns its path.

    Raises OutputNotStored where that fails. The model is then in the folder ``instead``, if that can be
    written. ``output``/latest leads to the model before it until this one is complete.
    """
    place = f"{output.rstrip('/')}/{run}"
    try:
        kept = write_model(training, place)
    except Exception as error:  # file systems raise errors of their own
        why = f"the work is done, but its model cannot be written to {place} ({_reason(error)})"
        try:
            kept = write_model(training, str(instead))
        except OSError as also:
            raise OutputNotStored(f"{why}; its parts stay in {training.path}") from also
        raise OutputNotStored(f"{why}; it is in {kept}") from error
    try:
        point_latest(output, run)
    except Exception as error:  # file systems raise errors of their own
        latest = f"{output.rstrip('/')}/{LATEST}"
        raise OutputNotStored(
            f"the work is done and its model is in {kept}, but {latest} still leads to an earlier one, if to "
            f"any: it cannot be replaced ({_reason(error)})"
        ) from error
    return kept


def write_model(training: JobFolder, place: str) -> str:
    """Writes ``place``/model.npz: ``model``, float32 of shape (rows, columns), and what its rows mean.

    ``place``: a folder or any URL that fsspec knows. The file appears complete or not at all.
    """
    cut = training.open_input()
    model = training.load_model(cut.shape, training.read_job().setup.partitions)
    arrays: dict[str, Any] = {"model": model, **cut.read_index()}
    with ObjectFolder(place).open_for_writing("model.npz") as out:
        np.savez(out, **arrays)
    return f"{place}/model.npz"


def point_latest(output: str, run: str) -> None:
    """Makes ``output``/latest lead to the result of ``run``.

    It is a link. Behind a URL, and on a file system without links, it is a file with the run's name.
    """
    # A new link replaces the old one in one step, so that ``latest`` leads somewhere at every moment.
    link = Path(output) / f"{LATEST}.{os.getpid()}"
    try:
        if "://" not in output:
            link.unlink(missing_ok=True)  # left by a killed process with the same number
            link.symlink_to(run)
    except OSError:
        link.unlink(missing_ok=True)
    if not link.is_symlink():
        with ObjectFolder(output).open_for_writing(LATEST) as out:
            out.write(run.encode())
        return
    try:
        link.replace(Path(output) / LATEST)
    finally:
        link.unlink(missing_ok=True)


def keep_checkpoint(location: str, output: str, run: str) -> str:
    """Returns the place of the newest complete checkpoint in the store at ``location``; "" if there is none.

    ``output``: a folder or a URL to copy it to, below a folder of ``run``; "": it stays in the store alone.
    Where the copy fails, the result names the store's checkpoint and the reason. Raises OutputNotStored where
    the store cannot be read.
    """
    from agileml.node.checkpoint_store import CheckpointError
    from agileml.node.programs.checkpoint_store import CheckpointStore

    try:
        store = CheckpointStore(location)
        stored = next(iter(store.list_complete()), None)
    except CheckpointError as error:
        raise OutputNotStored(
            f"the program has ended, but its checkpoints cannot be found: {error}"
        ) from error
    if stored is None:
        return ""
    kept = store.manifest_of(stored)
    if not output:
        return kept
    try:
        copied = copy_checkpoint(store, stored, f"{output.rstrip('/')}/{run}")
        point_latest(output, run)
        return copied
    except Exception as error:  # file systems raise errors of their own
        return f"{kept} (not copied to {output}: {_reason(error)})"


def copy_checkpoint(store: CheckpointStore, stored: StoredCheckpoint, output: str) -> str:
    """Copies a checkpoint to ``output``/step-N as the program wrote it. Raises what either place raises."""
    if "://" not in output:
        Path(output).mkdir(parents=True, exist_ok=True)
        return str(store.restore(stored, Path(output)).path)
    from fsspec.core import url_to_fs

    with TemporaryDirectory(prefix="spotctl-") as folder:
        found = store.restore(stored, Path(folder))
        files, root = url_to_fs(output)
        files.put(str(found.path), f"{root}/{stored.folder_name}", recursive=found.path.is_dir())
    return f"{output.rstrip('/')}/{stored.folder_name}"


def _reason(error: Exception) -> str:
    # The system's words, without the file name that ``str`` of an OSError adds: the caller names the file.
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
