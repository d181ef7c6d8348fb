"""Holds decision points as arrays: all that a strategy sees of n jobs at once, or of one running job.

    n    decision points, each of a job of its own
    m    markets
    a    allocations of one footprint, padded with empty places (count 0)

Arrays have the axis of decision points in front. A strategy cannot look ahead through them: they hold no
history, no clock, and no price after their own now.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Flags, Floats
from bidbrain.model import Limits, ReliableMachines, ScalingModel
from pricing_data.model.market import Market, MarketRules

Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MarketSetup:
    """Holds what stays the same for as long as a job runs. Market codes are positions in ``markets``."""

    markets: tuple[Market, ...]
    cores: Floats
    """(m,): per instance."""
    on_demand: Floats
    """(m,): list prices, dollars per instance-hour."""
    rules: MarketRules
    reliable: ReliableMachines
    limits: Limits
    scaling: ScalingModel

    def __post_init__(self) -> None:
        if not len(self.markets) == len(self.cores) == len(self.on_demand):
            raise ValueError("a setting needs cores and an on-demand price for each of its markets")


class SurvivalBatch(Protocol):
    """Answers questions about evictions in bulk, as known at n decision points (see ``eviction.base``)."""

    def known_markets(self) -> Flags:
        """Returns, (n, m) or (1, m), which markets anything is known of; others get pessimistic answers."""
        ...

    def select(self, rows: Codes) -> SurvivalBatch:
        """Returns the answers for the decision points ``rows``, in that order; rows may repeat."""
        ...

    def survival_and_uptime(
        self, market: Codes, delta: Floats, age_s: Floats, horizon_s: Floats
    ) -> tuple[Floats, Floats]:
        """Returns the probability of running ``horizon_s`` longer, and E[min(time to eviction, horizon)].

        Arguments broadcast together, their first axis being n or 1. Negative deltas give 0 and 0.
        """
        ...


@runtime_checkable
class BulkMarkets(Protocol):
    """Marks fitted markets that can answer in bulk."""

    def survival_batch(self, markets: tuple[Market, ...]) -> SurvivalBatch:
        """Returns answers about ``markets``; from here on codes are positions in it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FootprintBatch:
    """Holds n footprints of transient allocations, requested or running; each array (n, a).

    Excludes the reliable machines, and allocations that were warned or given up.
    """

    market: Codes
    count: Codes
    """0 in an empty place."""
    bid: Floats
    """Infinite on demand."""
    price: Floats
    """Dollars per instance-hour, locked at the start of the billing hour; the current price while pending."""
    left_s: Floats
    """Seconds left of the hour it is held for; more than an hour once it was renewed."""
    age_s: Floats
    """Seconds it has run; 0 while it is pending."""
    on_demand: Flags

    @property
    def live_count(self) -> Codes:
        """Returns, (n,), the instances that are alive and unwarned, requested ones included."""
        total: Codes = self.count.sum(axis=1)
        return total

    def select(self, rows: Codes) -> FootprintBatch:
        """Returns the footprints at ``rows``."""
        return FootprintBatch(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class DecisionBatch:
    """Holds n decision points."""

    now: Codes
    """(n,): instants."""
    prices: Floats
    """(n, m): in force; NaN where no price is known."""
    open: Flags
    """(n, m): whether more can be requested there now."""
    held: FootprintBatch
    work_left: Floats
    """(n,): core-seconds left to do; infinite where unknown."""
    survivals: SurvivalBatch

    def __len__(self) -> int:
        return len(self.now)

    def select(self, rows: Codes) -> DecisionBatch:
        """Returns the decision points at ``rows``."""
        return DecisionBatch(
            self.now[rows],
            self.prices[rows],
            self.open[rows],
            self.held.select(rows),
            self.work_left[rows],
            self.survivals.select(rows),
        )
