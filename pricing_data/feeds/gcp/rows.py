"""Turns GCP's answers into batches for the store.

Pure. A list price is a region's, so the region is also the zone of its market; capacityHistory gives zones.
Today's catalogue is what a poll saw; a past month's says from when each price held.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from pricing_data.feeds.base import AnyBatch
from pricing_data.feeds.gcp.answers import History
from pricing_data.feeds.gcp.client import Month
from pricing_data.feeds.gcp.skus import MachineShape, Timelines, Usage, needed_components, price_steps
from pricing_data.formats.batches import Batch, ListPrice, OnDemandBatch, Rate, RateBatch, TypeBatch, TypeRow
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import InstanceType, Market
from pricing_data.model.units import Instant, Seconds, UsdPerHour

CATALOGUE: Final = "gcp Cloud Billing Catalog"
"""The source of list prices as a poll finds them."""
CATALOGUE_MONTHS: Final = "gcp Cloud Billing Catalog by month"
"""The source of the same prices where the catalogue says since when they hold."""
HISTORY: Final = "gcp capacityHistory"
TYPES: Final = "gcp machineTypes"

_DAY_S: Final = Seconds(86_400.0)


@dataclass(frozen=True, slots=True)
class OfferedTypes:
    """Holds machine types by name, and where they are offered."""

    shapes: dict[str, MachineShape]
    zones: dict[str, tuple[str, ...]]
    """Names of its types, by zone."""
    missing: tuple[str, ...]

    @classmethod
    def from_rows(
        cls, rows: Iterable[tuple[str, MachineShape]], regions: tuple[str, ...], missing: tuple[str, ...]
    ) -> OfferedTypes:
        rows = [(zone, shape) for zone, shape in rows if not regions or _region_of(zone) in regions]
        by_zone: dict[str, set[str]] = {}
        for zone, shape in rows:
            by_zone.setdefault(zone, set()).add(shape.name)
        zones = {zone: tuple(sorted(names)) for zone, names in sorted(by_zone.items())}
        return cls({shape.name: shape for _, shape in rows}, zones, missing)

    def select(self, zones: Collection[str], types: Collection[str]) -> OfferedTypes:
        """Keeps these zones and types; all where none is named."""
        shapes = {name: shape for name, shape in self.shapes.items() if not types or name in types}
        kept = {
            zone: tuple(name for name in names if name in shapes)
            for zone, names in self.zones.items()
            if not zones or zone in zones
        }
        there = {name for names in kept.values() for name in names}
        return OfferedTypes(
            {name: shape for name, shape in shapes.items() if name in there},
            {zone: names for zone, names in kept.items() if names},
            self.missing,
        )

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(sorted({_region_of(zone) for zone in self.zones}))

    def zone_types(self, region: str) -> tuple[tuple[str, str], ...]:
        """Returns (zone, type) of one region."""
        mine = (zone for zone in self.zones if _region_of(zone) == region)
        return tuple((zone, name) for zone in mine for name in self.zones[zone])

    def region_types(self) -> tuple[tuple[str, MachineShape], ...]:
        """Returns (region, type), each once."""
        pairs = {(_region_of(zone), name) for zone, names in self.zones.items() for name in names}
        return tuple((region, self.shapes[name]) for region, name in sorted(pairs))


def _region_of(zone: str) -> str:
    return zone.rpartition("-")[0] or zone


def types_batch(offered: OfferedTypes, observed: Instant) -> TypeBatch:
    return TypeBatch(TYPES, tuple(_type_row(shape) for shape in offered.shapes.values()), observed)


def _type_row(shape: MachineShape) -> TypeRow:
    gpu_name = " ".join(name for name, _ in shape.gpus)
    found = InstanceType("gcp", shape.name, shape.vcpus, shape.memory_mib / 1024, shape.gpu_count)
    return TypeRow(found, gpu_name)


def has_price(shape: MachineShape, offered: OfferedTypes, known: Timelines) -> bool:
    return needed_components(shape) is not None and any(
        price_steps(shape, region, Usage.SPOT, known) for region in offered.regions
    )


def catalogue_batches(
    source: str, offered: OfferedTypes, known: Timelines, month: Month | None, observed: Instant
) -> tuple[AnyBatch, ...]:
    """Makes batches. Today's prices are what a poll saw; a month's carry the moment from which they held."""
    markets: list[Market] = []
    rows: list[tuple[int, Instant, UsdPerHour]] = []
    listed: list[ListPrice] = []
    for region, shape in offered.region_types():
        steps = price_steps(shape, region, Usage.SPOT, known)
        if steps:
            markets.append(Market("gcp", region, region, shape.name))
            seen = steps if month is not None else ((observed, steps[-1][1]),)
            rows.extend((len(markets) - 1, at, price) for at, price in seen)
        for at, price in price_steps(shape, region, Usage.ON_DEMAND, known):
            listed.append(ListPrice("gcp", region, shape.name, price, at))
    semantics = Semantics.POLLED if month is None else Semantics.EVENT_STREAM
    prices = _as_batch(source, semantics, tuple(markets), rows, observed)
    return (*prices, *((OnDemandBatch(source, tuple(listed), observed),) if listed else ()))


def history_batches(
    source: str, found: list[tuple[Market, History]], observed: Instant
) -> tuple[AnyBatch, ...]:
    rows: list[tuple[int, Instant, UsdPerHour]] = [
        (code, at, price) for code, (_, history) in enumerate(found) for at, price in _price_rows(history)
    ]
    rates = tuple(
        Rate(market, begin, end, rate, rate, _DAY_S, observed)
        for market, history in found
        for begin, end, rate in history.rates
        # Today's rate still changes; a day counts once it is over.
        if end <= observed
    )
    markets = tuple(market for market, _ in found)
    prices = _as_batch(source, Semantics.EVENT_STREAM, markets, rows, observed)
    return (*prices, *((RateBatch(source, rates),) if rates else ()))


def _price_rows(history: History) -> Iterator[tuple[Instant, UsdPerHour]]:
    """Yields the starts of the intervals; where one ends before the next begins, no price held in between."""
    ordered = sorted(history.prices)
    for (begin, end, price), following in itertools.zip_longest(ordered, ordered[1:]):
        yield begin, price
        # NaN marks the gap: no price was listed in between.
        if following is not None and end < following[0]:
            yield end, UsdPerHour(math.nan)


def _as_batch(
    source: str,
    semantics: Semantics,
    markets: tuple[Market, ...],
    rows: list[tuple[int, Instant, UsdPerHour]],
    observed: Instant,
) -> tuple[Batch, ...]:
    """Returns one batch, or none where there are no rows."""
    if not rows:
        return ()
    codes, times, prices = zip(*rows, strict=True)
    seen = np.full(len(rows), observed, np.int64)
    columns = np.array(codes, np.int64), np.array(times, np.int64), np.array(prices, np.float64)
    return (Batch(source, semantics, markets, *columns, seen),)
