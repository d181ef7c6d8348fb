"""What ``status`` and ``report`` show of one run, as plain values; kept once the run has ended.

A summary is made of the fold of the ledger and of nothing else (``summarize``). Reading it back needs none of
the program that decides, so verbs that only show runs import little. Bump ``VERSION`` with every change of
what it holds or means: summaries of other versions are made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

VERSION: Final = 1

MONEY: Final = "nominal"
"""Machines of this version are this computer's: what they cost is what the trace's would have cost."""

AS_FAST: Final = "as_fast"
CHEAPEST: Final = "cheapest"
MEANINGS: Final[Mapping[str, str]] = {
    AS_FAST: "the same work as fast, on demand",
    CHEAPEST: "the cheapest way on demand",
}
"""What people read, by the names that are in JSON."""


@dataclass(frozen=True, slots=True)
class MarketSums:
    """What a run paid in one market, in integer micro-dollars, and for how many machine-seconds."""

    market: str
    cloud: str
    paid_s: int
    """On spot machines that were paid for."""
    free_s: int
    """On spot machines that were given back."""
    on_demand_s: int
    spot: int
    """Net of ``refunded``."""
    on_demand: int
    refunded: int
    egress: int
    """For checkpoints that left its region."""
    evictions: int
    """Allocations that were warned."""
    evicted: int
    """Instances that the provider took back."""

    @property
    def total(self) -> int:
        return self.spot + self.on_demand + self.egress


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run. Sums of money are integer micro-dollars."""

    job: str
    run: str
    began: float
    """Wall clock of its first entry, in seconds since the epoch."""
    outcome: str | None
    """None while it has not ended; its sums are then as of its last entry."""
    markets: tuple[MarketSums, ...]
    as_fast: int | None
    """The same work as fast, on demand; None where nothing is."""
    cheapest: int | None
    """The cheapest way on demand; None where no work was done that could be compared."""
    no_savings_reason: str | None
    clocks_redone: int
    seconds_redone: int
    """For how long a command's programs ran for nothing."""
    progress: str
    """ "clock 3 of 40"."""
    status: Mapping[str, Any]
    """The run's object of ``status --json``."""

    @property
    def total(self) -> int:
        return sum(sums.total for sums in self.markets)

    @property
    def baseline(self) -> int | None:
        """The cheaper of the two, which savings are of."""
        return min((way for way in (self.as_fast, self.cheapest) if way is not None), default=None)

    @property
    def compared(self) -> bool:
        """Whether anything is said of what it saved."""
        return self.baseline is not None and self.no_savings_reason is None

    def document(self) -> dict[str, Any]:
        """As JSON keeps it."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        markets = [{name: getattr(sums, name) for name in sums.__slots__} for sums in self.markets]
        return {**plain, "markets": markets}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """What ``document`` gave. Raises TypeError where it is something else."""
        markets = tuple(MarketSums(**sums) for sums in document["markets"])
        return cls(**{**document, "markets": markets})
