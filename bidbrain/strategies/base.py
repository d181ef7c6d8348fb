"""What a strategy is: one object that decides for a running job, or for n jobs of a backtest at once.

    n    decision points, each of a job of its own
    m    markets
    a    allocations of one footprint, padded with empty ones (count 0)

Batches are written in arrays with the axis of decision points in front; a live decision is a batch of one
(``live.py``). So the lines that were backtested are the lines that run. A strategy sees ``Moments`` and
nothing else: no history, no clock, and no price after its own now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from bidbrain.model import Decision, Limits, Observation, Reliable, Scaling
from bidbrain.strategies.recovery import Recovery
from pricing_data.market import Market, MarketRules

Floats: TypeAlias = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NOTHING = -1
"""The market code of no request."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What stays the same for as long as a job runs. Markets are sorted; their codes are positions."""

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
        if list(self.markets) != sorted(set(self.markets)):
            raise ValueError("the markets of a setting are sorted, each named once")
        if not len(self.markets) == len(self.cores) == len(self.on_demand):
            raise ValueError("a setting needs cores and an on-demand price for each of its markets")


class Chances(Protocol):
    """Evictions as they were known at n decision points, asked in bulk (``eviction.base`` has the terms)."""

    def known(self) -> Flags:
        """(n, m): whether anything is known of a market; where not, answers are pessimistic."""
        ...

    def outlook(self, market: Codes, delta: Floats, age_s: Floats, horizon_s: Floats) -> tuple[Floats, Floats]:
        """Probability of running ``horizon_s`` longer, and E[min(time to eviction, horizon)].

        Arguments have shape (n, ...) or broadcast to it; negative deltas answer 0, 0.
        """
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

    def cores(self, setting: Setting) -> Floats:
        """(n, a): nu of one instance; 0 in an empty place."""
        return np.where(self.count > 0, setting.cores[self.market], 0.0)


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


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """What n decisions ask for, each array (n,)."""

    market: Codes
    """``NOTHING`` where nothing is wanted."""
    count: Codes
    bid: Floats
    """Dollars per instance-hour; infinite: on demand."""

    @classmethod
    def none(cls, size: int) -> Requests:
        return cls(np.full(size, NOTHING), np.zeros(size, np.int64), np.full(size, np.nan))


class Strategy(Protocol):
    """See the module. The first two verbs are for batches, the last two for a running job; they agree."""

    @property
    def name(self) -> str: ...

    @property
    def recovery(self) -> Recovery: ...

    @property
    def uses_reliable(self) -> bool:
        """Whether it needs the reliable tier; without it every machine may go."""
        ...

    def request(self, setting: Setting, at: Moments) -> Requests:
        """What each of n footprints should grow by now: asked every two minutes and after evictions."""
        ...

    def renew(self, setting: Setting, at: Moments, place: Codes) -> Flags:
        """Whether the allocation at ``place`` (n,) of each footprint, whose hour is about to end, stays."""
        ...

    def decide(self, observation: Observation) -> Decision:
        """``request`` for one running job, with reasons."""
        ...

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """``renew`` for one running job, with reasons. Raises KeyError where there is no such holding."""
        ...
