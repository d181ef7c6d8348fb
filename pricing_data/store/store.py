"""Implements the price store: years of prices of all clouds in a folder, added in whole batches.

Its content is a function of the set of rows that were ever added. The order does not matter, nor repetitions,
nor processes killed while adding them (``commit_log.py``, ``validation.py``). Every row keeps its source,
when it was seen and whether it was an event or a poll. Where sources disagree all are kept, and one is
believed when reading (``source_priority.py``). Reads no clock, and forgets nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.catalogue import Catalogue, bundled_gpu_names
from pricing_data.formats.batches import (
    Batch,
    LifetimeBatch,
    OnDemandBatch,
    ProbeBatch,
    Rate,
    RateBatch,
    TypeBatch,
    UnreadableBatch,
)
from pricing_data.formats.quality import Flaw
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import Instant
from pricing_data.store import findings, frames, parquet, queries, rate_queries, row_checks
from pricing_data.store import rows as records
from pricing_data.store.commit_log import StoreFolder
from pricing_data.store.findings import StoreFinding
from pricing_data.store.monthly_partitions import MonthlyPartitions
from pricing_data.store.partition_keys import split_by_month
from pricing_data.store.queries import MarketSummary, QuarantinedRow
from pricing_data.store.reference_tables import (
    LIFETIMES,
    ON_DEMAND,
    PROBES,
    RATES,
    SEEN,
    TYPES,
    UNREADABLE,
    ReferenceTables,
    Row,
    TableSchema,
)
from pricing_data.store.validation import judge_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Counts what became of the rows of a batch."""

    new: int
    """Believed, and not known before."""
    known: int
    """In the store before, or twice in the batch."""
    quarantined: int

    def __add__(self, other: AddedRows) -> AddedRows:
        return AddedRows(self.new + other.new, self.known + other.known, self.quarantined + other.quarantined)


class PriceStore:
    """Stores prices in a folder of its own. Any number of processes and threads may use it at once."""

    def __init__(self, root: Path) -> None:
        """Opens the store at ``root``, which need not exist yet, and finishes what killed processes left."""
        self._disk = StoreFolder(root)
        self._database = parquet.open_database()
        self._months = MonthlyPartitions(self._disk, self._database)
        self._tables = ReferenceTables(root, self._database)
        self._catalogue: tuple[object, Catalogue] | None = None
        self._disk.remove_abandoned()
        self._finish_merges()

    @property
    def root(self) -> Path:
        return self._disk.root

    def add_prices(self, batch: Batch) -> AddedRows:
        """Stores ``batch``, all of it or nothing. When this returns it is on the disk."""
        if len(batch) == 0:
            return AddedRows(0, 0, 0)
        catalogue = self.catalogue()
        with self._disk.new_batch_folder() as folder:
            settled = {
                place.folder: self._months.write_month(
                    judge_rows(pool, catalogue.list_price_caps), folder, f"{place.flat_name},"
                )
                for place, pool in split_by_month(batch)
            }
            with self._disk.lock_for_merging():
                now = self._fetched_catalogue()
                entry = self._disk.commit(folder)
                found = self._months.merge_entry(
                    entry, now.list_price_caps, settled if now is catalogue else {}
                )
                self._tables.add_rows(SEEN, records.seen_rows(batch))
        return AddedRows(found.new, len(batch) - found.new - found.quarantined, found.quarantined)

    def add_rates(self, batch: RateBatch) -> AddedRows:
        """Stores eviction rates; a later observation of the same interval replaces the one before."""
        return self._add_rows(RATES, batch.source, records.rate_rows(batch), row_checks.check_rate)

    def add_types(self, batch: TypeBatch) -> AddedRows:
        """Stores instance types; the catalogue shows the newest description of a type."""
        return self._add_rows(TYPES, batch.source, records.type_rows(batch), row_checks.check_instance_type)

    def add_on_demand(self, batch: OnDemandBatch) -> AddedRows:
        """Stores list prices, and judges again the prices of the months since that they cap."""
        return self._add_rows(
            ON_DEMAND, batch.source, records.list_price_rows(batch), row_checks.check_list_price
        )

    def add_probes(self, batch: ProbeBatch) -> AddedRows:
        """Stores what was seen of markets' capacity."""
        return self._add_rows(PROBES, batch.source, records.probe_rows(batch), row_checks.check_probe)

    def add_lifetimes(self, batch: LifetimeBatch) -> AddedRows:
        """Stores for how long machines ran."""
        return self._add_rows(
            LIFETIMES, batch.source, records.lifetime_rows(batch), row_checks.check_lifetime
        )

    def add_unreadable(self, batch: UnreadableBatch) -> AddedRows:
        """Keeps rows that could not be understood, as they came."""
        rows = [
            (batch.source, row.line, str(row.reason), row_checks.storable_text(row.text), batch.observed)
            for row in batch.rows
        ]
        with self._disk.lock_for_merging():
            new = self._tables.add_rows(UNREADABLE, rows)
        return AddedRows(0, len(rows) - new, new)

    def _add_rows(
        self, kind: TableSchema, source: str, rows: Sequence[Row], check: row_checks.Check
    ) -> AddedRows:
        good, bad = [], []
        for row in rows:
            reason = check(row)
            if reason is None:
                good.append(row)
            else:
                bad.append((source, 0, reason, row_checks.storable_text(repr(row[:-1])), row[-1]))
        with self._disk.lock_for_merging():
            if kind is ON_DEMAND and good:
                self._judge_again(good)
            # List prices come after the prices that they cap were judged, see ``_judge_again``.
            new = self._tables.add_rows(kind, good)
            aside = self._tables.add_rows(UNREADABLE, bad)
        return AddedRows(new, len(rows) - new - aside, aside)

    def _judge_again(self, rows: Sequence[Row]) -> None:
        """Judges prices before the list prices are stored.

        If the process is killed meanwhile, the list prices are still news, and this is done again.
        """
        # Only list prices that are news can change a verdict.
        known = self._tables.read_rows(ON_DEMAND)
        news = self._tables.new_rows(ON_DEMAND, rows)
        changed = {row[:5] for row in news} - {row[:5] for row in known}
        if not changed:
            return
        since: dict[tuple[str, str], int] = {}
        for cloud, region, _, valid_from, _ in changed:
            since[cloud, region] = min(valid_from, since.get((cloud, region), valid_from))
        catalogue = frames.overlay_catalogue((), [*known, *news])
        for (cloud, region), begin in since.items():
            for folder in self._disk.months_since(cloud, region, Instant(begin)):
                self._months.judge_again(folder, catalogue.list_price_caps)

    def _finish_merges(self) -> None:
        """Merges what was committed by processes that died before they did."""
        # Another process may have died between its commit and its merge.
        if self._disk.committed_entries():
            with self._disk.lock_for_merging():
                caps = self._fetched_catalogue().list_price_caps
                for entry in self._disk.committed_entries():
                    self._months.merge_entry(entry, caps, {})

    @contextmanager
    def _lock_for_reading(self) -> Iterator[None]:
        """Holds the months still, with whole batches in them, while it lasts."""
        if not self._disk.root.is_dir():
            yield
            return
        while True:
            self._finish_merges()
            with self._disk.lock_for_reading():
                # A batch may be committed between the merge and the lock: then it is merged first.
                if not self._disk.committed_entries():
                    yield
                    return

    def markets(self, cloud: str | None = None, region: str | None = None) -> tuple[MarketSummary, ...]:
        """Summarises every market with believed prices, with the current one and its source."""
        with self._lock_for_reading():
            return queries.summarize_markets(self._database, self._disk, cloud, region)

    def history(
        self, markets: Collection[Market] | None = None, until: Instant | None = None
    ) -> PriceHistory:
        """Returns the believed price steps of ``markets`` (or all), without those after ``until``."""
        with self._lock_for_reading():
            return queries.read_history(self._database, self._disk, markets, until)

    def series(self, market: Market) -> Series:
        """Returns the believed price steps of one market."""
        return self.history([market]).series(market)

    def last_seen(self) -> dict[tuple[str, str, str], Instant]:
        """Returns when each source last mentioned a region, with old rows or new.

        Keys are (source, cloud, region).
        """
        with self._lock_for_reading():
            return {(row[0], row[1], row[2]): Instant(row[3]) for row in self._tables.read_rows(SEEN)}

    def newest_time(self, source: str, cloud: str, region: str) -> Instant | None:
        """Returns the time of the newest row of ``source`` in a region: fetching continues from there."""
        with self._lock_for_reading():
            return queries.newest_time(self._database, self._disk, source, cloud, region)

    def rates(self, cloud: str | None = None) -> tuple[tuple[str, Rate], ...]:
        """Returns all eviction rates, each with its source: every day of every market."""
        with self._lock_for_reading():
            rows = self._tables.read_rows(RATES)
        return tuple(
            (row[4], Rate(Market(*row[:4]), *row[5:11])) for row in rows if cloud is None or row[0] == cloud
        )

    def newest_rates(self, window_s: int) -> tuple[tuple[str, Rate], ...]:
        """Returns each market's current rate and its source.

        A band, or the mean of ``window_s`` of figures.
        """
        with self._lock_for_reading():
            return rate_queries.newest_rates(self._database, self._tables.table_path(RATES), window_s)

    def rate_counts(self) -> dict[str, int]:
        """Returns how many eviction rates there are, by cloud."""
        with self._lock_for_reading():
            return rate_queries.count_by_cloud(self._database, self._tables.table_path(RATES))

    def observations(self, markets: Collection[Market] | None = None, nodes: int = 1) -> Observations:
        """Returns the spells of ``markets`` (or all), of their capacity and of machines.

        Capacity was there where ``nodes`` instances were available.
        """
        with self._lock_for_reading():
            probed, lived = self._tables.read_rows(PROBES), self._tables.read_rows(LIFETIMES)
        return records.read_observations(probed, lived, markets, nodes)

    def files_of_capacity(self) -> tuple[Path, ...]:
        """Returns the existing files of what was seen and published of evictions."""
        paths = (self._tables.table_path(kind) for kind in (LIFETIMES, PROBES, RATES))
        return tuple(path for path in paths if path.exists())

    def sighting_counts(self) -> dict[str, tuple[int, int]]:
        """Returns how many probes and how many lifetimes there are, by cloud."""
        with self._lock_for_reading():
            probes, lives = (
                rate_queries.count_by_cloud(self._database, self._tables.table_path(k))
                for k in (PROBES, LIFETIMES)
            )
        return {cloud: (probes.get(cloud, 0), lives.get(cloud, 0)) for cloud in sorted({*probes, *lives})}

    def findings(self) -> tuple[StoreFinding, ...]:
        """Returns bad rows, gaps and approximate times: counted by source, with examples."""
        with self._lock_for_reading():
            return findings.collect_findings(self._database, self._disk, self._tables.table_path(UNREADABLE))

    def list_quarantined(self, most: int | None = None) -> tuple[QuarantinedRow, ...]:
        """Returns the rows that are not believed, and why; at most ``most`` of them.

        ``findings`` counts them.
        """
        with self._lock_for_reading():
            return queries.list_quarantined(
                self._database, self._disk, self._tables.read_rows(UNREADABLE), most
            )

    def newest_failures(self, but: Collection[Flaw] = ()) -> dict[Market, tuple[Instant, Flaw]]:
        """Returns, of each market with quarantined rows, the newest that has none of the flaws ``but``."""
        with self._lock_for_reading():
            return queries.newest_failures(self._database, self._disk, but)

    def frame(
        self,
        markets: Collection[Market] | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> pd.DataFrame:
        """Returns all believed rows in [since, until] of all sources; the columns are ``frames.ROWS``."""
        with self._lock_for_reading():
            return frames.read_frame(self._database, self._disk, markets, since, until)

    def catalogue(self) -> Catalogue:
        """Returns the bundled catalogue, overlaid with what was fetched since."""
        with self._lock_for_reading():
            return self._fetched_catalogue()

    def gpu_names(self) -> dict[tuple[str, str], str]:
        """Returns GPU names by (cloud, instance type), of bundled and of fetched types that have GPUs."""
        with self._lock_for_reading():
            fetched = {(row[0], row[1]): row[5] for row in self._tables.read_rows(TYPES) if row[5]}
        return bundled_gpu_names() | fetched

    def export_rows(self, path: Path, markets: Collection[Market] | None = None) -> int:
        """Writes all believed rows to ``path``, CSV or Parquet by its suffix, or nothing.

        Returns how many.
        """
        with self._lock_for_reading():
            return frames.export_rows(self._database, self._disk, path, markets)

    def _fetched_catalogue(self) -> Catalogue:
        signature = self._tables.signature(TYPES, ON_DEMAND)
        if self._catalogue is None or self._catalogue[0] != signature:
            known = frames.overlay_catalogue(self._tables.read_rows(TYPES), self._tables.read_rows(ON_DEMAND))
            # Building it takes long; the signature changes when another process adds to a table.
            self._catalogue = (signature, known)
        return self._catalogue[1]
