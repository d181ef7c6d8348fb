"""Rows that are committed -> the months they belong to.

Everything here may be killed between any two lines and done again: a month becomes what is known of it and
what is to be added, settled together, and that is the same however often it is added.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pricing_data.store import parquet
from pricing_data.store.commit_log import QUARANTINE, ROWS, Disk, replace, staged, sync_folder
from pricing_data.store.validation import Caps, Pool, Settled, pooled, settle

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NEW: Final = "new,"


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that a month did not have before."""

    new: int
    quarantined: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.new + other.new, self.quarantined + other.quarantined)


@dataclass(frozen=True, slots=True)
class Months:
    """The months of a store. Only whoever holds the disk's ``merging`` lock may merge or settle anew."""

    disk: Disk
    database: DuckDBPyConnection

    def write(self, settled: Settled, folder: Path, prefix: str) -> Counts:
        """Write the files of a month, those that are not empty."""
        believed = settled.believed
        if believed.any():
            parquet.write(self.database, folder / f"{prefix}{ROWS}", settled.pool.take(believed))
        if not believed.all():
            others = settled.pool.take(~believed)
            path = folder / f"{prefix}{QUARANTINE}"
            parquet.write(self.database, path, others, settled.verdicts[~believed])
        return Counts(int(believed.sum()), int(np.sum(~believed)))

    def merge(self, entry: Path, caps: Caps, settled: Mapping[str, Counts]) -> Counts:
        """Merge a committed batch and remove it. What is for folders in ``settled`` was so by ``caps``."""
        total = Counts(0, 0)
        changed: set[Path] = set()
        for relative, names in staged(entry).items():
            files = [entry / f"{relative.replace('/', ',')},{name}" for name in names]
            folder = self.disk.root / relative
            changed.update((folder, *folder.parents[:3]))
            if relative in settled and not self._files(folder):
                total += settled[relative]
                self._take_over(folder, files)
            else:
                total += self._add(folder, parquet.read(self.database, files), caps)
            for file in files:
                file.unlink(missing_ok=True)
        for folder in changed:
            sync_folder(folder)
        entry.rmdir()
        return total

    def settle_anew(self, folder: Path, caps: Caps) -> None:
        """Judge a month again, now that more list prices are known."""
        self._add(folder, pooled(()), caps)

    def _files(self, folder: Path) -> list[Path]:
        return [path for path in (folder / ROWS, folder / QUARANTINE) if path.exists()]

    def _take_over(self, folder: Path, files: Sequence[Path]) -> None:
        """The first rows of a month: its files are put in place as they are."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            os.replace(file, folder / file.name.rpartition(",")[2])

    def _add(self, folder: Path, pool: Pool, caps: Caps) -> Counts:
        kept, aside = (self._read(folder / name) for name in (ROWS, QUARANTINE))
        before = len(kept) + len(aside)
        settled = settle(pooled((kept, aside, pool)), caps)
        known = np.zeros(len(settled.pool), np.bool_)
        known[settled.copies[:before]] = True
        believed = settled.believed
        counts = Counts(int(np.sum(believed & ~known)), int(np.sum(~believed & ~known)))
        seen = np.concatenate([kept.observed, aside.observed])
        if (
            known.all()
            and np.array_equal(settled.pool.observed[settled.copies[:before]], seen)
            and believed[settled.copies[: len(kept)]].all()
            and not believed[settled.copies[len(kept) : before]].any()
        ):
            return counts
        self._replace(
            folder, settled, aside, released=bool(believed[settled.copies[len(kept) : before]].any())
        )
        return counts

    def _read(self, file: Path) -> Pool:
        return parquet.read(self.database, [file] if file.exists() else [])

    def _replace(self, folder: Path, settled: Settled, aside: Pool, *, released: bool) -> None:
        """Put the files of a month in place, so that no row is ever in neither of them.

        A row that leaves the rows is first in the quarantine; where one leaves the quarantine, the old and
        the new quarantine together come first, and the new one alone comes last.
        """
        folder.mkdir(parents=True, exist_ok=True)
        written = self.write(settled, folder, _NEW)
        if released:
            both = settle(pooled((aside, settled.pool.take(~settled.believed))), lambda *_: ())
            everything = np.zeros(len(both.pool), np.int64)
            parquet.write(self.database, folder / f"{_NEW}both", both.pool, everything)
            replace(folder / f"{_NEW}both", folder / QUARANTINE)
            order = (ROWS, QUARANTINE)
        else:
            order = (QUARANTINE, ROWS)
        for name in order:
            if (written.new if name == ROWS else written.quarantined) > 0:
                replace(folder / f"{_NEW}{name}", folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
                sync_folder(folder)
