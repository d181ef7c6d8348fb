"""Holds what ``status`` and ``report`` show of one run, as plain values; stored once the run has ended.

A summary is made of the fold of the ledger and of nothing else (``summarize``). Reading it back needs none of
the code that decides, so verbs that only show runs import little. Bump ``VERSION`` with every change of
its content or meaning: summaries of other versions are made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

VERSION: Final = 1

MONEY: Final = "nominal"
"""Machines of this version are this computer's: their cost is what the trace's machines would have cost."""

AS_FAST: Final = "as_fast"
CHEAPEST: Final = "cheapest"
MEANINGS: Final[Mapping[str, str]] = {
    AS_FAST: "the same work as fast, on demand",
    CHEAPEST: "the cheapest way on demand",
}
"""What users read, by the names that are in JSON."""


@dataclass(frozen=True, slots=True)
class MarketSums:
    """Holds what a run paid in one market, in integer micro-dollars, and for how many machine-seconds."""

    market: str
    cloud: str
    paid_s: int
    """Spot machine-seconds that were paid for."""
    free_s: int
    """Spot machine-seconds that were refunded."""
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
    """Describes one run. Sums of money are integer micro-dollars."""

    job: str
    run: str
    began: float
    """Wall clock of its first entry, in seconds since the epoch."""
    outcome: str | None
    """None while it has not ended; its sums are then as of its last entry."""
    markets: tuple[MarketSums, ...]
    as_fast: int | None
    """Cost of the same work as fast, on demand; None where nothing is as fast."""
    cheapest: int | None
    """Cost of the cheapest way on demand; None where no work was done that could be compared."""
    no_savings_reason: str | None
    clocks_redone: int
    seconds_redone: int
    """Seconds that a command's programs ran in vain."""
    progress: str
    """Progress in words, like "clock 3 of 40"."""
    status: Mapping[str, Any]
    """The run's object of ``status --json``."""

    @property
    def total(self) -> int:
        return sum(sums.total for sums in self.markets)

    @property
    def baseline(self) -> int | None:
        """Returns the cheaper of the two, to which savings are relative."""
        # A saving is stated against the harder of the two.
        return min((way for way in (self.as_fast, self.cheapest) if way is not None), default=None)

    @property
    def is_compared(self) -> bool:
        """Tells whether savings are given for it."""
        return self.baseline is not None and self.no_savings_reason is None

    def to_document(self) -> dict[str, Any]:
        """Returns the summary as JSON stores it."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        markets = [{name: getattr(sums, name) for name in sums.__slots__} for sums in self.markets]
        return {**plain, "markets": markets}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Reads the summary that ``to_document`` gave. Raises TypeError for anything else."""
        markets = tuple(MarketSums(**sums) for sums in document["markets"])
        return cls(**{**document, "markets": markets})
