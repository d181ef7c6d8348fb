"""Opens the months and tables of a store, and holds them still while they are read.

A batch counts from its commit on, and is merged into its months afterwards, by whichever process comes first.
So every reader merges what is committed before it reads, under a lock that keeps further merges out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pricing_data.catalogue import Catalogue
from pricing_data.model.units import Instant
from pricing_data.store import frames, parquet
from pricing_data.store.commit_log import StoreFolder
from pricing_data.store.monthly_partitions import MonthlyPartitions
from pricing_data.store.reference_tables import ON_DEMAND, TYPES, ReferenceTables, Row


class StoreContent:
    """Provides the months and tables of one store, and the catalogue that they add up to."""

    def __init__(self, root: Path) -> None:
        """Opens the store at ``root``, which need not exist, and finishes what killed processes left."""
        self.disk = StoreFolder(root)
        self.database = parquet.open_database()
        self.months = MonthlyPartitions(self.disk, self.database)
        self.tables = ReferenceTables(root, self.database)
        self._catalogue: tuple[object, Catalogue] | None = None
        self.disk.remove_abandoned()
        self._finish_merges()

    @contextmanager
    def lock_for_reading(self) -> Iterator[None]:
        """Keeps the months as they are, with every committed batch merged, until the block ends."""
        # Taking the lock would create the folder; a reader leaves no trace.
        if not self.disk.root.is_dir():
            yield
            return
        while True:
            self._finish_merges()
            with self.disk.lock_for_reading():
                # A batch may be committed between the merge and the lock: then it is merged first.
                if not self.disk.committed_entries():
                    yield
                    return

    def _finish_merges(self) -> None:
        """Merges batches whose process died, or has not come to it, after the commit."""
        # Checked without the lock first: usually nothing is left, and readers need not wait for each other.
        if self.disk.committed_entries():
            with self.disk.lock_for_merging():
                caps = self.catalogue().list_price_caps
                for entry in self.disk.committed_entries():
                    self.months.merge_entry(entry, caps, {})

    def catalogue(self) -> Catalogue:
        """Returns the bundled catalogue, overlaid with stored types and prices. The caller holds a lock."""
        signature = self.tables.signature(TYPES, ON_DEMAND)
        if self._catalogue is None or self._catalogue[0] != signature:
            known = frames.overlay_catalogue(self.tables.read_rows(TYPES), self.tables.read_rows(ON_DEMAND))
            # Building it takes long; the signature changes when another process adds to a table.
            self._catalogue = (signature, known)
        return self._catalogue[1]

    def judge_months_again(self, list_prices: Sequence[Row]) -> None:
        """Judges the prices that rows of ``ON_DEMAND`` cap, before those rows are stored.

        The caller holds the lock for merging.
        """
        # Only list prices that are news can change a verdict. They are stored last: if the process is killed
        # before, they are still news next time, and all of this is done again.
        known = self.tables.read_rows(ON_DEMAND)
        news = self.tables.new_rows(ON_DEMAND, list_prices)
        changed = {row[:5] for row in news} - {row[:5] for row in known}
        if not changed:
            return
        since: dict[tuple[str, str], int] = {}
        for cloud, region, _, valid_from, _ in changed:
            since[cloud, region] = min(valid_from, since.get((cloud, region), valid_from))
        catalogue = frames.overlay_catalogue((), [*known, *news])
        for (cloud, region), begin in since.items():
            for folder in self.disk.months_since(cloud, region, Instant(begin)):
                self.months.judge_again(folder, catalogue.list_price_caps)
