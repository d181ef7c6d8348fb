"""Stores years of prices of all clouds in a folder, added in whole batches.

Its content is a function of the set of rows that were ever added. The order does not matter, nor repetitions,
nor processes killed while adding them (``commit_log.py``, ``validation.py``). Every row keeps its source,
when it was seen and whether it was an event or a poll. Where sources disagree all rows are kept, and readers
get those of one source (``source_priority.py``). Reads no clock, and forgets nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.catalogue import Catalogue
from pricing_data.formats.batches import (
    Batch,
    LifetimeBatch,
    OnDemandBatch,
    ProbeBatch,
    RateBatch,
    TypeBatch,
    UnreadableBatch,
)
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import Instant
from pricing_data.store import frames, queries, row_checks
from pricing_data.store import rows as records
from pricing_data.store.content import StoreContent
from pricing_data.store.evictions import EvictionFigures
from pricing_data.store.findings import StoreQuality
from pricing_data.store.partition_keys import split_by_month
from pricing_data.store.queries import MarketSummary
from pricing_data.store.reference_tables import (
    LIFETIMES,
    ON_DEMAND,
    PROBES,
    RATES,
    SEEN,
    TYPES,
    UNREADABLE,
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
    """Rows that are believed and were not in the store before."""
    known: int
    """Rows that were in the store before, or are in the batch twice."""
    quarantined: int

    def __add__(self, other: AddedRows) -> AddedRows:
        return AddedRows(self.new + other.new, self.known + other.known, self.quarantined + other.quarantined)


class PriceStore:
    """Adds batches to a store and reads what they say. Many processes and threads may use it at once."""

    def __init__(self, root: Path) -> None:
        """Opens the store at ``root``, which need not exist yet."""
        self.root = root
        self._content = StoreContent(root)
        self.evictions = EvictionFigures(self._content)
        """Current eviction rates, and how much was observed."""
        self.quality = StoreQuality(self._content)
        """The quarantine, and what stands out among the believed rows."""

    def add_prices(self, batch: Batch) -> AddedRows:
        """Stores ``batch``, all of it or nothing. When this returns it is on the disk."""
        if len(batch) == 0:
            return AddedRows(0, 0, 0)
        disk, months = self._content.disk, self._content.months
        catalogue = self.catalogue()
        with disk.new_batch_folder() as folder:
            # Judging and writing take long, and need no lock: only the merge below keeps readers waiting.
            settled = {
                place.folder: months.write_month(
                    judge_rows(pool, catalogue.list_price_caps), folder, f"{place.flat_name},"
                )
                for place, pool in split_by_month(batch)
            }
            with disk.lock_for_merging():
                now = self._content.catalogue()
                entry = disk.commit(folder)
                # New list prices since the judgement may change verdicts: then all rows are judged again.
                found = months.merge_entry(entry, now.list_price_caps, settled if now is catalogue else {})
                self._content.tables.add_rows(SEEN, records.seen_rows(batch))
        return AddedRows(found.new, len(batch) - found.new - found.quarantined, found.quarantined)

    def add_rates(self, batch: RateBatch) -> AddedRows:
        """Stores eviction rates; a later observation of the same interval replaces the one before."""
        return self._add_rows(RATES, batch.source, records.rate_rows(batch), row_checks.check_rate)

    def add_types(self, batch: TypeBatch) -> AddedRows:
        """Stores instance types; the catalogue shows the newest description of a type."""
        return self._add_rows(TYPES, batch.source, records.type_rows(batch), row_checks.check_instance_type)

    def add_on_demand(self, batch: OnDemandBatch) -> AddedRows:
        """Stores list prices, and judges again the spot prices that they cap."""
        return self._add_rows(
            ON_DEMAND, batch.source, records.list_price_rows(batch), row_checks.check_list_price
        )

    def add_probes(self, batch: ProbeBatch) -> AddedRows:
        """Stores how many instances probes found available."""
        return self._add_rows(PROBES, batch.source, records.probe_rows(batch), row_checks.check_probe)

    def add_lifetimes(self, batch: LifetimeBatch) -> AddedRows:
        """Stores how long machines ran, and whether they were lost."""
        return self._add_rows(
            LIFETIMES, batch.source, records.lifetime_rows(batch), row_checks.check_lifetime
        )

    def add_unreadable(self, batch: UnreadableBatch) -> AddedRows:
        """Stores the text of rows that could not be read."""
        rows = [
            (batch.source, row.line, str(row.reason), row_checks.storable_text(row.text), batch.observed)
            for row in batch.rows
        ]
        with self._content.disk.lock_for_merging():
            new = self._content.tables.add_rows(UNREADABLE, rows)
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
        with self._content.disk.lock_for_merging():
            # Before the list prices are stored: see there what a kill in between would leave.
            if kind is ON_DEMAND and good:
                self._content.judge_months_again(good)
            new = self._content.tables.add_rows(kind, good)
            aside = self._content.tables.add_rows(UNREADABLE, bad)
        return AddedRows(new, len(rows) - new - aside, aside)

    def markets(self, cloud: str | None = None, region: str | None = None) -> tuple[MarketSummary, ...]:
        """Summarises every market with believed prices: its current price, and all of its sources."""
        with self._content.lock_for_reading():
            return queries.summarize_markets(self._content.database, self._content.disk, cloud, region)

    def history(
        self, markets: Collection[Market] | None = None, until: Instant | None = None
    ) -> PriceHistory:
        """Returns the believed price steps of ``markets`` (or all), up to ``until`` inclusive."""
        with self._content.lock_for_reading():
            return queries.read_history(self._content.database, self._content.disk, markets, until)

    def series(self, market: Market) -> Series:
        """Returns the believed price steps of one market."""
        return self.history([market]).series(market)

    def last_seen(self) -> dict[tuple[str, str, str], Instant]:
        """Returns when each source last mentioned a region, with old rows or new.

        Keys are (source, cloud, region).
        """
        with self._content.lock_for_reading():
            rows = self._content.tables.read_rows(SEEN)
        return {(source, cloud, region): Instant(at) for source, cloud, region, at in rows}

    def newest_time(self, source: str, cloud: str, region: str) -> Instant | None:
        """Returns the time of the newest row of ``source`` in a region: fetching continues from there."""
        with self._content.lock_for_reading():
            return queries.newest_time(self._content.database, self._content.disk, source, cloud, region)

    def observations(self, markets: Collection[Market] | None = None, nodes: int = 1) -> Observations:
        """Returns the observed spells of ``markets`` (or all): of available capacity, and of machines.

        Capacity counts as available where a probe found ``nodes`` instances.
        """
        with self._content.lock_for_reading():
            probed, lived = (self._content.tables.read_rows(kind) for kind in (PROBES, LIFETIMES))
        return records.read_observations(probed, lived, markets, nodes)

    def frame(
        self,
        markets: Collection[Market] | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> pd.DataFrame:
        """Returns the believed rows of all sources in [since, until]; ``frames.py`` has the columns."""
        with self._content.lock_for_reading():
            return frames.read_frame(self._content.database, self._content.disk, markets, since, until)

    def export_rows(self, path: Path, markets: Collection[Market] | None = None) -> int:
        """Writes the rows of ``frame`` to ``path``, CSV or Parquet by its suffix; returns how many.

        Raises ExportRefused for another suffix, and where the store has no prices.
        """
        with self._content.lock_for_reading():
            return frames.export_rows(self._content.database, self._content.disk, path, markets)

    def catalogue(self) -> Catalogue:
        """Returns the bundled catalogue, overlaid with the types and list prices of the store."""
        with self._content.lock_for_reading():
            return self._content.catalogue()
