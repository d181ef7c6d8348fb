"""Merges committed rows into the months they belong to.

Everything here may be killed between any two lines and done again. A month becomes what is known of it and
what is to be added, judged together, and that is the same however often it is added.
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
        """Writes the files of a month, those that are not empty."""
        believed = settled.is_believed
        if believed.any():
            parquet.write_pool(self.database, folder / f"{prefix}{ROWS}", settled.pool.take_rows(believed))
        if not believed.all():
            others = settled.pool.take_rows(~believed)
            path = folder / f"{prefix}{QUARANTINE}"
            parquet.write_pool(self.database, path, others, settled.verdicts[~believed])
        return MonthCounts(int(believed.sum()), int(np.sum(~believed)))

    def merge_entry(self, entry: Path, caps: Caps, settled: Mapping[str, MonthCounts]) -> MonthCounts:
        """Merges a committed batch and removes it.

        Folders in ``settled`` were judged by the same ``caps``.
        """
        total = MonthCounts(0, 0)
        changed: set[Path] = set()
        for relative, names in staged_files(entry).items():
            files = [entry / f"{relative.replace('/', ',')},{name}" for name in names]
            folder = self.disk.root / relative
            # New names may appear on all three levels above a month, so all are flushed.
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
        """Judges a month again, now that more list prices are known."""
        self._add_rows(folder, pool_rows(()), caps)

    def _existing_files(self, folder: Path) -> list[Path]:
        return [path for path in (folder / ROWS, folder / QUARANTINE) if path.exists()]

    def _take_over(self, folder: Path, files: Sequence[Path]) -> None:
        """Puts the files of a month's first rows in place as they are."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            os.replace(file, folder / file.name.rpartition(",")[2])

    def _add_rows(self, folder: Path, pool: RowPool, caps: Caps) -> MonthCounts:
        kept, aside = (self._read_file(folder / name) for name in (ROWS, QUARANTINE))
        before = len(kept) + len(aside)
        settled = judge_rows(pool_rows((kept, aside, pool)), caps)
        known = np.zeros(len(settled.pool), np.bool_)
        # Rows of the result that the month had before.
        known[settled.copies[:before]] = True
        believed = settled.is_believed
        counts = MonthCounts(int(np.sum(believed & ~known)), int(np.sum(~believed & ~known)))
        # Nothing is rewritten where no row is new, no verdict changed and no observation became earlier.
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
        """Puts the files of a month in place, so that no row is ever in neither of them.

        A row that leaves the rows is first in the quarantine; where one leaves the quarantine, the old and
        the new quarantine together come first, and the new one alone comes last.
        """
        folder.mkdir(parents=True, exist_ok=True)
        written = self.write_month(settled, folder, _NEW)
        if released:
            both = judge_rows(pool_rows((aside, settled.pool.take_rows(~settled.is_believed))), lambda *_: ())
            everything = np.zeros(len(both.pool), np.int64)
            parquet.write_pool(self.database, folder / f"{_NEW}both", both.pool, everything)
            replace_file(folder / f"{_NEW}both", folder / QUARANTINE)
            # The quarantine already holds both, so the rows come next and the final quarantine last.
            order = (ROWS, QUARANTINE)
        else:
            # A row may only leave the rows once it is in the quarantine.
            order = (QUARANTINE, ROWS)
        for name in order:
            if (written.new if name == ROWS else written.quarantined) > 0:
                replace_file(folder / f"{_NEW}{name}", folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
                sync_folder(folder)
