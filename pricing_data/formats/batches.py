"""Defines what feeds and importers hand to the store: rows of one source, in columns, not judged yet.

Seven kinds: prices (``Batch``), eviction rates (``RateBatch``), instance types (``TypeBatch``), on-demand
list prices (``OnDemandBatch``), sightings of capacity (``ProbeBatch``, ``LifetimeBatch``) and rows that could
not be read (``UnreadableBatch``). A batch is stored whole or not at all. Does not know where it will be kept,
and drops no rows: the store sets aside what cannot be believed, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Ints, Mask, UnreadableRow
from pricing_data.model.market import InstanceType, Market, Prices, Times
from pricing_data.model.units import Instant, Seconds, UsdPerHour


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Holds prices of many markets from one source. All columns have shape (n,)."""

    source: str
    """The source, in words that stay the same: "aws DescribeSpotPriceHistory"."""
    semantics: Semantics
    markets: tuple[Market, ...]
    codes: Ints
    """Each row's position in ``markets``."""
    times: Times
    """Seconds since 1970, UTC: from when the price holds, or when a poller saw it."""
    prices: Prices
    """Dollars per hour; NaN where the market was seen to be no longer listed."""
    observed: Times
    """The moment at which we, or another poller, saw the row."""
    approximate: Mask | None = None
    """Marks approximate times; None where there are none."""

    def __post_init__(self) -> None:
        shapes = {column.shape for column in (self.codes, self.times, self.prices, self.observed)}
        if self.approximate is not None:
            shapes.add(self.approximate.shape)
        if len(shapes) > 1 or self.codes.ndim != 1:
            raise ValueError(
                f"the columns of a batch have shapes {sorted(shapes)}; expected one (n,) for all"
            )
        if len(self.codes) and not 0 <= int(self.codes.min()) <= int(self.codes.max()) < len(self.markets):
            raise ValueError(f"a code of the batch names none of its {len(self.markets)} markets")

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def approximate_column(self) -> Mask:
        """Returns ``approximate`` as a column, always."""
        return np.zeros(len(self), np.bool_) if self.approximate is None else self.approximate


@dataclass(frozen=True, slots=True, order=True)
class Rate:
    """States how often instances of ``market`` were evicted in [begin, end).

    ``low`` and ``high`` are the ends of the published band, as fractions of instances lost per ``per_s``
    seconds (equal where one figure was published). A figure for a whole region has the region as its zone.
    """

    market: Market
    begin: Instant
    end: Instant
    low: float
    high: float
    per_s: Seconds
    observed: Instant


@dataclass(frozen=True, slots=True)
class RateBatch:
    """Holds eviction rates from one source, which is named as in ``Batch``."""

    source: str
    rates: tuple[Rate, ...]


@dataclass(frozen=True, slots=True, order=True)
class Probe:
    """States that at ``at`` ``available`` instances of ``market`` could be had."""

    market: Market
    at: Instant
    available: int


@dataclass(frozen=True, slots=True)
class ProbeBatch:
    """Holds probes from one source, which is named as in ``Batch``."""

    source: str
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True, order=True)
class MachineLifetime:
    """States that a machine of ``market`` ran from ``begin`` to ``end``.

    It was ``lost`` then, or watched no further.
    """

    market: Market
    begin: Instant
    end: Instant
    lost: bool


@dataclass(frozen=True, slots=True)
class LifetimeBatch:
    """Holds lifetimes from one source. Machines have no names: equal lifetimes are as many machines.

    A later batch of the same source replaces the ends of machines that began when those of an earlier batch
    did.
    """

    source: str
    lifetimes: tuple[MachineLifetime, ...]


@dataclass(frozen=True, slots=True)
class TypeRow:
    """Describes one instance type; ``gpu_name`` is empty where it has no GPU."""

    instance_type: InstanceType
    gpu_name: str = ""


@dataclass(frozen=True, slots=True)
class TypeBatch:
    """Holds instance types as one source described them when it was ``observed``."""

    source: str
    types: tuple[TypeRow, ...]
    observed: Instant


@dataclass(frozen=True, slots=True, order=True)
class ListPrice:
    """States the on-demand price of a type in a region, Linux, from ``valid_from`` on."""

    cloud: str
    region: str
    instance_type: str
    price: UsdPerHour
    valid_from: Instant


@dataclass(frozen=True, slots=True)
class OnDemandBatch:
    """Holds list prices as one source stated them when it was ``observed``."""

    source: str
    prices: tuple[ListPrice, ...]
    observed: Instant


@dataclass(frozen=True, slots=True)
class UnreadableBatch:
    """Holds rows of one source's answers that could not be parsed; for the quarantine."""

    source: str
    rows: tuple[UnreadableRow, ...]
    observed: Instant
