"""Merges committed rows into their months.

A process may be killed between any two lines here, and the next one does the work again. Known and new rows
of a month are judged together, so the result is the same however often rows are added.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pricing_data.store import parquet
from pricing_data.store.commit_log import (
    QUARANTINE,
    ROWS,
    StoreFolder,
    replace_file,
    staged_files,
    sync_folder,
)
from pricing_data.store.validation import Caps, JudgedRows, RowPool, judge_rows, pool_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NEW: Final = "new,"


@dataclass(frozen=True, slots=True)
class MonthCounts:
    """Counts rows that a month did not have before."""

    new: int
    quarantined: int

    def __add__(self, other: MonthCounts) -> MonthCounts:
        return MonthCounts(self.new + other.new, self.quarantined + other.quarantined)


@dataclass(frozen=True, slots=True)
class MonthlyPartitions:
    """Manages a store's months. Only a holder of the ``merging`` lock may merge or judge again."""

    disk: StoreFolder
    database: DuckDBPyConnection

    def write_month(self, settled: JudgedRows, folder: Path, prefix: str) -> MonthCounts:
        """Writes the believed rows and the quarantine of a month to ``folder``; no file for none."""
        believed = settled.is_believed
        if believed.any():
            parquet.write_pool(self.database, folder / f"{prefix}{ROWS}", settled.pool.take_rows(believed))
        if not believed.all():
            others = settled.pool.take_rows(~believed)
            path = folder / f"{prefix}{QUARANTINE}"
            parquet.write_pool(self.database, path, others, settled.verdicts[~believed])
        return MonthCounts(int(believed.sum()), int(np.sum(~believed)))

    def merge_entry(self, entry: Path, caps: Caps, settled: Mapping[str, MonthCounts]) -> MonthCounts:
        """Merges a committed batch into its months and removes it; returns how many rows are new.

        ``settled``: the counts of months whose files were judged by these same ``caps``.
        """
        total = MonthCounts(0, 0)
        changed: set[Path] = set()
        for relative, names in staged_files(entry).items():
            files = [entry / f"{relative.replace('/', ',')},{name}" for name in names]
            folder = self.disk.root / relative
            # A month's folder may be new on each of its three levels, so the names above it are flushed too.
            changed.update((folder, *folder.parents[:3]))
            # A new month needs no merge: the files were judged when they were written.
            if relative in settled and not self._existing_files(folder):
                total += settled[relative]
                self._take_over(folder, files)
            else:
                total += self._add_rows(folder, parquet.read_pool(self.database, files), caps)
            for file in files:
                # Missing where the file itself was moved into place.
                file.unlink(missing_ok=True)
        for folder in changed:
            sync_folder(folder)
        # Last: as long as the entry is there, the next process merges it again.
        entry.rmdir()
        return total

    def judge_again(self, folder: Path, caps: Caps) -> None:
        """Judges a month again by new list prices."""
        self._add_rows(folder, pool_rows(()), caps)

    def _existing_files(self, folder: Path) -> list[Path]:
        return [path for path in (folder / ROWS, folder / QUARANTINE) if path.exists()]

    def _take_over(self, folder: Path, files: Sequence[Path]) -> None:
        """Moves the files of a month's first rows into place."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            os.replace(file, folder / file.name.rpartition(",")[2])

    def _add_rows(self, folder: Path, pool: RowPool, caps: Caps) -> MonthCounts:
        kept, aside = (self._read_file(folder / name) for name in (ROWS, QUARANTINE))
        before = len(kept) + len(aside)
        settled = judge_rows(pool_rows((kept, aside, pool)), caps)
        known = np.zeros(len(settled.pool), np.bool_)
        # The first ``before`` rows of the pool are those the month had; ``copies`` says where they are now.
        known[settled.copies[:before]] = True
        believed = settled.is_believed
        counts = MonthCounts(int(np.sum(believed & ~known)), int(np.sum(~believed & ~known)))
        # Repeated fetches mostly bring known rows. Nothing is rewritten where no row is new, no verdict
        # changed and no observation became earlier.
        seen = np.concatenate([kept.observed, aside.observed])
        if (
            known.all()
            and np.array_equal(settled.pool.observed[settled.copies[:before]], seen)
            and believed[settled.copies[: len(kept)]].all()
            and not believed[settled.copies[len(kept) : before]].any()
        ):
            return counts
        self._replace_month(
            folder, settled, aside, released=bool(believed[settled.copies[len(kept) : before]].any())
        )
        return counts

    def _read_file(self, file: Path) -> RowPool:
        return parquet.read_pool(self.database, [file] if file.exists() else [])

    def _replace_month(self, folder: Path, settled: JudgedRows, aside: RowPool, *, released: bool) -> None:
        """Replaces the files of a month in an order that never leaves a row in neither of them.

        ``released``: whether rows leave the quarantine ``aside``, now that they are believed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        written = self.write_month(settled, folder, _NEW)
        if released:
            both = judge_rows(pool_rows((aside, settled.pool.take_rows(~settled.is_believed))), lambda *_: ())
            everything = np.zeros(len(both.pool), np.int64)
            parquet.write_pool(self.database, folder / f"{_NEW}both", both.pool, everything)
            replace_file(folder / f"{_NEW}both", folder / QUARANTINE)
            # The quarantine holds old and new rows now, so rows come next, and the new quarantine alone last.
            order = (ROWS, QUARANTINE)
        else:
            # A row may leave the believed ones only once it is in the quarantine.
            order = (QUARANTINE, ROWS)
        for name in order:
            if (written.new if name == ROWS else written.quarantined) > 0:
                replace_file(folder / f"{_NEW}{name}", folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
                sync_folder(folder)
