"""Manages the store's folder: what is committed, what is being written, and the locks.

    <root>/cloud=aws/region=us-east-1/month=2016-05/rows.parquet         believed rows of one month
                                                    quarantine.parquet   the others, with reasons
    <root>/incoming/<id>/...                                             committed, not merged yet
    <root>/incoming/<id>.writing/...                                     not committed

Files appear whole, by renaming. The commit of a batch is one rename, of its folder in ``incoming``: a process
killed before it leaves nothing, and one killed after it leaves all that a merge needs. The system frees both
locks when their process dies. ``merging`` is shared by readers and exclusive to a merging process, so no
reader sees half a batch. ``writing`` is shared by every process that fills a folder, which distinguishes the
folders of live processes from those of dead ones. Does not know what is in the files.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pricing_data.model.units import Instant, format_instant

ROWS: Final = "rows.parquet"
QUARANTINE: Final = "quarantine.parquet"
_NAME_LENGTH: Final = 60
_WRITING: Final = ".writing"


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """Names a month of a region: the unit in which rows are kept and merged."""

    cloud: str
    region: str
    month: str

    @property
    def folder(self) -> str:
        """Returns a path of three levels, relative to the root and always below it."""
        return (
            f"cloud={_path_part(self.cloud)}/region={_path_part(self.region)}/month={_path_part(self.month)}"
        )

    @property
    def flat_name(self) -> str:
        """Returns the path as one name, for a file in ``incoming``."""
        return self.folder.replace("/", ",")


def _path_part(text: str) -> str:
    """Returns a part of a path for ``text``; two texts never share one."""
    # Names come from files and APIs: quoting keeps slashes from leaving the store.
    part = quote(text, safe="")
    if len(part) <= _NAME_LENGTH:
        return part
    return f"{part[:_NAME_LENGTH]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """Finds the store's files below ``root``, and holds its locks; writes none of the files."""

    root: Path

    @property
    def incoming(self) -> Path:
        return self.root / "incoming"

    def month_files(self, name: str, cloud: str | None = None, region: str | None = None) -> tuple[Path, ...]:
        """Returns the files called ``name`` of every month, by cloud, region and month."""
        clouds = "cloud=*" if cloud is None else f"cloud={_path_part(cloud)}"
        regions = "region=*" if region is None else f"region={_path_part(region)}"
        return tuple(sorted(self.root.glob(f"{clouds}/{regions}/month=*/{name}")))

    def months_since(self, cloud: str, region: str, since: Instant) -> tuple[Path, ...]:
        """Returns the folders of a region's months, from the month of ``since`` on."""
        first = f"month={format_instant(since)[:7]}"
        found = {file.parent for name in (ROWS, QUARANTINE) for file in self.month_files(name, cloud, region)}
        # "month=none", of rows with unusable times, sorts behind all months and is included.
        return tuple(sorted(folder for folder in found if folder.name >= first))

    def committed_entries(self) -> tuple[Path, ...]:
        """Returns the batches that are committed and not yet merged."""
        if not self.incoming.is_dir():
            return ()
        return tuple(sorted(path for path in self.incoming.iterdir() if path.suffix != _WRITING))

    @contextmanager
    def lock_for_reading(self) -> Iterator[None]:
        """Prevents merges until the block ends."""
        with self._hold_lock("merging", fcntl.LOCK_SH):
            yield

    @contextmanager
    def lock_for_merging(self) -> Iterator[None]:
        """Prevents all other reads and merges until the block ends."""
        with self._hold_lock("merging", fcntl.LOCK_EX):
            yield

    @contextmanager
    def _hold_lock(self, name: str, kind: int) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, kind)
            yield

    @contextmanager
    def new_batch_folder(self) -> Iterator[Path]:
        """Provides a folder to fill; unless committed, it is removed when the block ends."""
        with self._hold_lock("writing", fcntl.LOCK_SH):
            folder = self.incoming / (uuid.uuid4().hex + _WRITING)
            folder.mkdir(parents=True)
            try:
                yield folder
            finally:
                # After a commit the folder has another name and nothing is removed.
                shutil.rmtree(folder, ignore_errors=True)

    def commit(self, folder: Path) -> Path:
        """Makes the batch in ``folder`` a part of the store. Its files must be on the disk already."""
        sync_folder(folder)
        entry = folder.with_suffix("")
        # The commit: before this rename nothing of the batch counts, after it everything does.
        folder.rename(entry)
        # A rename is durable only once the folder that holds the name is.
        sync_folder(self.incoming)
        return entry

    def remove_abandoned(self) -> None:
        """Removes what dead processes began to write, unless some process is writing now."""
        if not self.incoming.is_dir():
            return
        with (self.root / "writing.lock").open("w") as lock:
            try:
                # Fails while any live process holds the shared lock; dead ones hold none.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            for folder in self.incoming.glob(f"*{_WRITING}"):
                shutil.rmtree(folder)


def staged_files(entry: Path) -> dict[str, list[str]]:
    """Returns the month folders that an entry goes to, each with the names of its files."""
    found: dict[str, list[str]] = {}
    for path in sorted(entry.iterdir()):
        flat, _, name = path.name.rpartition(",")
        found.setdefault(flat.replace(",", "/"), []).append(name)
    return found


def replace_file(new: Path, old: Path) -> None:
    """Replaces ``old`` by ``new``, atomically and durably."""
    os.replace(new, old)
    sync_folder(old.parent)


def sync_folder(folder: Path) -> None:
    """Flushes the names in ``folder`` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
