"""Decision points as arrays: what a strategy sees of n jobs at once, or of one that runs.

    n    decision points, each of a job of its own
    m    markets
    a    allocations of one footprint, padded with empty places (count 0)

Arrays have the axis of decision points in front. There is nothing here to look further with: no history,
no clock, and no price after its own now.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Flags, Floats
from bidbrain.model import Limits, Reliable, Scaling
from pricing_data.model.market import Market, MarketRules

Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What stays the same for as long as a job runs. The codes of markets are their positions here."""

    markets: tuple[Market, ...]
    cores: Floats
    """(m,): per instance."""
    on_demand: Floats
    """(m,): list prices, dollars per instance-hour."""
    rules: MarketRules
    reliable: Reliable
    limits: Limits
    scaling: Scaling

    def __post_init__(self) -> None:
        if not len(self.markets) == len(self.cores) == len(self.on_demand):
            raise ValueError("a setting needs cores and an on-demand price for each of its markets")


class Chances(Protocol):
    """Evictions as they were known at n decision points, asked in bulk (``eviction.base`` has the terms)."""

    def known(self) -> Flags:
        """(n, m) or (1, m): whether anything is known of a market; where not, answers are pessimistic."""
        ...

    def only(self, rows: Codes) -> Chances:
        """Those of the decision points ``rows``, in that order and as often."""
        ...

    def outlook(
        self, market: Codes, delta: Floats, age_s: Floats, horizon_s: Floats
    ) -> tuple[Floats, Floats]:
        """Probability of running ``horizon_s`` longer, and E[min(time to eviction, horizon)].

        Arguments broadcast together, their first axis being n or 1. Negative deltas answer 0 and 0.
        """
        ...


@runtime_checkable
class BulkMarkets(Protocol):
    """Fitted markets that need not be asked one by one."""

    def chances(self, markets: tuple[Market, ...]) -> Chances:
        """Of ``markets``, which codes stand for from here on."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Footprints beside the reliable machines, each array (n, a): requested or running, staying."""

    market: Codes
    count: Codes
    """0 in an empty place."""
    bid: Floats
    """Infinite on demand."""
    price: Floats
    """Locked at the start of the billing hour; the current one while it is pending."""
    left_s: Floats
    """Of the hour it is held for; more than an hour once it was renewed."""
    age_s: Floats
    """0 while it is pending."""
    on_demand: Flags

    @property
    def live(self) -> Codes:
        """(n,): instances that live and are not warned, requested ones included."""
        total: Codes = self.count.sum(axis=1)
        return total

    def only(self, rows: Codes) -> Held:
        """The footprints ``rows``."""
        return Held(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """n decision points."""

    now: Codes
    """(n,): instants."""
    prices: Floats
    """(n, m): in force; NaN where none is known."""
    open: Flags
    """(n, m): whether more may be requested there now."""
    held: Held
    work_left: Floats
    """(n,): core-seconds to go; infinite where that is not known."""
    chances: Chances

    def __len__(self) -> int:
        return len(self.now)

    def only(self, rows: Codes) -> Moments:
        """The decision points ``rows``."""
        return Moments(
            self.now[rows],
            self.prices[rows],
            self.open[rows],
            self.held.only(rows),
            self.work_left[rows],
            self.chances.only(rows),
        )
