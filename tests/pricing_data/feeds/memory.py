"""A price store that lives as long as a test: what the fetch engine asks of a store, and nothing judged."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TypeVar

from pricing_data.formats.batches import (
    Batch,
    ListPrice,
    OnDemandBatch,
    Rate,
    RateBatch,
    TypeBatch,
    TypeRow,
    UnreadableBatch,
)
from pricing_data.formats.quality import UnreadableRow
from pricing_data.model.market import Market
from pricing_data.model.units import Instant

_Key = TypeVar("_Key")
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Added:
    new: int = 0
    known: int = 0
    quarantined: int = 0


@dataclass
class MemoryStore:
    """Rows by (source, market, time); a second one of a kind is known."""

    prices: dict[tuple[str, Market, int], float] = field(default_factory=dict)
    rates: dict[tuple[Market, Instant], Rate] = field(default_factory=dict)
    types: dict[str, TypeRow] = field(default_factory=dict)
    on_demand: dict[tuple[str, str, Instant], ListPrice] = field(default_factory=dict)
    unreadable: dict[tuple[str, UnreadableRow], UnreadableRow] = field(default_factory=dict)
    fails: BaseException | None = None
    """Raised by the next ``add_prices``."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_prices(self, batch: Batch) -> Added:
        if self.fails is not None:
            raise self.fails
        rows = zip(batch.codes.tolist(), batch.times.tolist(), batch.prices.tolist(), strict=True)
        keyed = {(batch.source, batch.markets[code], at): price for code, at, price in rows}
        return self._put(self.prices, keyed, len(batch))

    def add_rates(self, batch: RateBatch) -> Added:
        return self._put(self.rates, {(one.market, one.end): one for one in batch.rates}, len(batch.rates))

    def add_types(self, batch: TypeBatch) -> Added:
        return self._put(self.types, {one.instance_type.name: one for one in batch.types}, len(batch.types))

    def add_on_demand(self, batch: OnDemandBatch) -> Added:
        keyed = {(one.region, one.instance_type, one.valid_from): one for one in batch.prices}
        return self._put(self.on_demand, keyed, len(batch.prices))

    def add_unreadable(self, batch: UnreadableBatch) -> Added:
        keyed = {(batch.source, row): row for row in batch.rows}
        added = self._put(self.unreadable, keyed, len(batch.rows))
        return Added(known=added.known, quarantined=added.new)

    def newest_time(self, source: str, cloud: str, region: str) -> Instant | None:
        """The newest stored time of ``source`` in ``region``."""
        with self._lock:
            times = [
                at
                for said, market, at in self.prices
                if (said, market.cloud, market.region) == (source, cloud, region)
            ]
        return Instant(max(times)) if times else None

    def _put(self, where: dict[_Key, _Row], what: dict[_Key, _Row], rows: int) -> Added:
        with self._lock:
            new = len(what.keys() - where.keys())
            where.update(what)
        return Added(new=new, known=rows - new)
