"""The price store: years of prices of all clouds in a folder, added to whole batches at a time.

What it holds is a function of the set of rows that were ever added: not of their order, of how often they
came, of who was killed while adding them (``commit_log.py``, ``validation.py``). Every row keeps its source,
when it was seen and whether it was an event or a poll. Where sources disagree they are all kept, and one is
believed when reading (``source_priority.py``). Refuses to read a clock, and to forget.
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
from pricing_data.store.commit_log import Disk
from pricing_data.store.findings import StoreFinding
from pricing_data.store.monthly_partitions import Months
from pricing_data.store.partition_keys import placed
from pricing_data.store.queries import MarketSummary, Quarantined
from pricing_data.store.reference_tables import (
    LIFETIMES,
    ON_DEMAND,
    PROBES,
    RATES,
    SEEN,
    TYPES,
    UNREADABLE,
    Kind,
    Row,
    Tables,
)
from pricing_data.store.validation import settle

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Added:
    """What became of the rows of a batch."""

    new: int
    """Believed, and not known before."""
    known: int
    """In the store before, or twice in the batch."""
    quarantined: int

    def __add__(self, other: Added) -> Added:
        return Added(self.new + other.new, self.known + other.known, self.quarantined + other.quarantined)


class PriceStore:
    """A store in a folder of its own. Any number of processes and threads may use it at once."""

    def __init__(self, root: Path) -> None:
        """Open the store at ``root``, there or not yet, and finish what killed processes left."""
        self._disk = Disk(root)
        self._database = parquet.connect()
        self._months = Months(self._disk, self._database)
        self._tables = Tables(root, self._database)
        self._catalogue: tuple[object, Catalogue] | None = None
        self._disk.sweep()
        self._finish()

    @property
    def root(self) -> Path:
        return self._disk.root

    def add(self, batch: Batch) -> Added:
        """Store ``batch``, all of it or nothing. When this returns it is on the disk."""
        if len(batch) == 0:
            return Added(0, 0, 0)
        catalogue = self.catalogue()
        with self._disk.writing() as folder:
            settled = {
                place.folder: self._months.write(settle(pool, catalogue.caps), folder, f"{place.flat},")
                for place, pool in placed(batch)
            }
            with self._disk.merging():
                now = self._learned()
                entry = self._disk.commit(folder)
                found = self._months.merge(entry, now.caps, settled if now is catalogue else {})
                self._tables.add(SEEN, records.spoken(batch))
        return Added(found.new, len(batch) - found.new - found.quarantined, found.quarantined)

    def add_rates(self, batch: RateBatch) -> Added:
        """Store eviction rates; a later observation of the same interval replaces the one before."""
        return self._add_rows(RATES, batch.source, records.rates(batch), row_checks.rate)

    def add_types(self, batch: TypeBatch) -> Added:
        """Store instance types; the newest description of a type is the one the catalogue shows."""
        return self._add_rows(TYPES, batch.source, records.types(batch), row_checks.instance_type)

    def add_on_demand(self, batch: OnDemandBatch) -> Added:
        """Store list prices, and judge the prices of the months since anew that they are a cap for."""
        return self._add_rows(ON_DEMAND, batch.source, records.list_prices(batch), row_checks.list_price)

    def add_probes(self, batch: ProbeBatch) -> Added:
        """Store what was seen of markets' capacity."""
        return self._add_rows(PROBES, batch.source, records.probes(batch), row_checks.probe)

    def add_lifetimes(self, batch: LifetimeBatch) -> Added:
        """Store for how long machines ran."""
        return self._add_rows(LIFETIMES, batch.source, records.lifetimes(batch), row_checks.lifetime)

    def add_unreadable(self, batch: UnreadableBatch) -> Added:
        """Keep what says nothing anybody understands, as it came."""
        rows = [
            (batch.source, row.line, str(row.reason), row_checks.storable(row.text), batch.observed)
            for row in batch.rows
        ]
        with self._disk.merging():
            new = self._tables.add(UNREADABLE, rows)
        return Added(0, len(rows) - new, new)

    def _add_rows(self, kind: Kind, source: str, rows: Sequence[Row], check: row_checks.Check) -> Added:
        good, bad = [], []
        for row in rows:
            reason = check(row)
            if reason is None:
                good.append(row)
            else:
                bad.append((source, 0, reason, row_checks.storable(repr(row[:-1])), row[-1]))
        with self._disk.merging():
            if kind is ON_DEMAND and good:
                self._settle_anew(good)
            new = self._tables.add(kind, good)
            aside = self._tables.add(UNREADABLE, bad)
        return Added(new, len(rows) - new - aside, aside)

    def _settle_anew(self, rows: Sequence[Row]) -> None:
        """Before the list prices are stored: if we are killed they are still news, and this is done again."""
        known = self._tables.rows(ON_DEMAND)
        news = self._tables.news(ON_DEMAND, rows)
        changed = {row[:5] for row in news} - {row[:5] for row in known}
        if not changed:
            return
        since: dict[tuple[str, str], int] = {}
        for cloud, region, _, valid_from, _ in changed:
            since[cloud, region] = min(valid_from, since.get((cloud, region), valid_from))
        catalogue = frames.catalogue((), [*known, *news])
        for (cloud, region), begin in since.items():
            for folder in self._disk.months(cloud, region, Instant(begin)):
                self._months.settle_anew(folder, catalogue.caps)

    def _finish(self) -> None:
        """Merge what was committed by processes that did not live to do it."""
        if self._disk.entries():
            with self._disk.merging():
                caps = self._learned().caps
                for entry in self._disk.entries():
                    self._months.merge(entry, caps, {})

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """While this lasts there are whole batches in the months, and nothing changes."""
        if not self._disk.root.is_dir():
            yield
            return
        while True:
            self._finish()
            with self._disk.reading():
                if not self._disk.entries():
                    yield
                    return

    def markets(self, cloud: str | None = None, region: str | None = None) -> tuple[MarketSummary, ...]:
        """Every market there are believed prices of, with the current one and who says so."""
        with self._reading():
            return queries.summaries(self._database, self._disk, cloud, region)

    def history(
        self, markets: Collection[Market] | None = None, until: Instant | None = None
    ) -> PriceHistory:
        """The believed price steps of ``markets`` (or all), without those after ``until``."""
        with self._reading():
            return queries.history(self._database, self._disk, markets, until)

    def series(self, market: Market) -> Series:
        """The believed price steps of one market."""
        return self.history([market]).series(market)

    def seen(self) -> dict[tuple[str, str, str], Instant]:
        """When each source last spoke of a region, by (source, cloud, region): with old rows or with new."""
        with self._reading():
            return {(row[0], row[1], row[2]): Instant(row[3]) for row in self._tables.rows(SEEN)}

    def last(self, source: str, cloud: str, region: str) -> Instant | None:
        """The time of the newest row of ``source`` in a region: fetching goes on from there."""
        with self._reading():
            return queries.last(self._database, self._disk, source, cloud, region)

    def rates(self, cloud: str | None = None) -> tuple[tuple[str, Rate], ...]:
        """All eviction rates, each with its source: every day of every market."""
        with self._reading():
            rows = self._tables.rows(RATES)
        return tuple(
            (row[4], Rate(Market(*row[:4]), *row[5:11])) for row in rows if cloud is None or row[0] == cloud
        )

    def newest_rates(self, window_s: int) -> tuple[tuple[str, Rate], ...]:
        """What is said of each market now, and by whom: a band, or the mean of ``window_s`` of figures."""
        with self._reading():
            return rate_queries.newest(self._database, self._tables.path(RATES), window_s)

    def rate_counts(self) -> dict[str, int]:
        """How many eviction rates there are, by cloud."""
        with self._reading():
            return rate_queries.counts(self._database, self._tables.path(RATES))

    def observations(self, markets: Collection[Market] | None = None, nodes: int = 1) -> Observations:
        """The spells of ``markets`` (or all): where ``nodes`` instances were there, and of machines."""
        with self._reading():
            probed, lived = self._tables.rows(PROBES), self._tables.rows(LIFETIMES)
        return records.seen(probed, lived, markets, nodes)

    def files_of_capacity(self) -> tuple[Path, ...]:
        """Where what was seen and published of evictions is kept, as far as there is any."""
        paths = (self._tables.path(kind) for kind in (LIFETIMES, PROBES, RATES))
        return tuple(path for path in paths if path.exists())

    def sighting_counts(self) -> dict[str, tuple[int, int]]:
        """How many probes and how many lifetimes there are, by cloud."""
        with self._reading():
            probes, lives = (
                rate_queries.counts(self._database, self._tables.path(k)) for k in (PROBES, LIFETIMES)
            )
        return {cloud: (probes.get(cloud, 0), lives.get(cloud, 0)) for cloud in sorted({*probes, *lives})}

    def findings(self) -> tuple[StoreFinding, ...]:
        """Bad rows, gaps and approximate times: counted by source, with examples."""
        with self._reading():
            return findings.findings(self._database, self._disk, self._tables.path(UNREADABLE))

    def quarantined(self, most: int | None = None) -> tuple[Quarantined, ...]:
        """The rows that are not believed, and why; ``most`` of them at most. ``findings`` counts them."""
        with self._reading():
            return queries.quarantined(self._database, self._disk, self._tables.rows(UNREADABLE), most)

    def newest_failures(self, but: Collection[Flaw] = ()) -> dict[Market, tuple[Instant, Flaw]]:
        """Of each market with quarantined rows, the newest that has none of the flaws ``but``."""
        with self._reading():
            return queries.newest_failures(self._database, self._disk, but)

    def frame(
        self,
        markets: Collection[Market] | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> pd.DataFrame:
        """All believed rows in [since, until] of all sources; the columns are ``frames.ROWS``."""
        with self._reading():
            return frames.rows(self._database, self._disk, markets, since, until)

    def catalogue(self) -> Catalogue:
        """The bundled catalogue, and what was fetched since."""
        with self._reading():
            return self._learned()

    def gpu_names(self) -> dict[tuple[str, str], str]:
        """By (cloud, instance type), of the bundled types that have GPUs and those that were fetched."""
        with self._reading():
            fetched = {(row[0], row[1]): row[5] for row in self._tables.rows(TYPES) if row[5]}
        return bundled_gpu_names() | fetched

    def export(self, path: Path, markets: Collection[Market] | None = None) -> int:
        """Write all believed rows to ``path``, CSV or Parquet as its name ends, or nothing; how many."""
        with self._reading():
            return frames.export(self._database, self._disk, path, markets)

    def _learned(self) -> Catalogue:
        signature = self._tables.signature(TYPES, ON_DEMAND)
        if self._catalogue is None or self._catalogue[0] != signature:
            known = frames.catalogue(self._tables.rows(TYPES), self._tables.rows(ON_DEMAND))
            self._catalogue = (signature, known)
        return self._catalogue[1]
