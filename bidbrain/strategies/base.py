"""Defines what a strategy is: one object that decides for a running job, or for n jobs of a backtest at once.

Batches are arrays with the axis of decision points in front (``bidbrain.bidding.decision_batch``); a live
decision is a batch of one (``single_decision.py``). So a live run executes the lines that were backtested. A
strategy sees a ``DecisionBatch`` and nothing else: no history, no clock, and no price after its own now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup
from bidbrain.model import Decision, Observation
from bidbrain.strategies.recovery import Recovery

# ``reliable_tier`` imports ``NO_REQUEST`` from here, so an import at run time would be a circle.
if TYPE_CHECKING:
    from bidbrain.strategies.reliable_tier import Restart, TierPlacement

NO_REQUEST: Final = -1
"""The market code that stands for no request."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestBatch:
    """Holds what n decisions request, each array (n,)."""

    market: Codes
    """``NO_REQUEST`` where nothing is wanted."""
    count: Codes
    bid: Floats
    """Dollars per instance-hour; infinite means on demand."""
    again: Flags
    """Whether another request follows at the same moment."""

    @classmethod
    def one_each(cls, market: Codes, count: Codes, bid: Floats) -> RequestBatch:
        """Makes one request for each decision, and no more."""
        return cls(market, count, bid, np.zeros(len(market), np.bool_))


class Strategy(Protocol):
    """Decides for batches (the ``choose_`` methods) and for one running job (the last two), alike."""

    @property
    def name(self) -> str: ...

    @property
    def recovery(self) -> Recovery: ...

    @property
    def uses_reliable(self) -> bool:
        """Says whether it needs the reliable tier; without it every machine may be evicted."""
        ...

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Chooses what each of n footprints should grow by now.

        Called every two minutes and after evictions.
        """
        ...

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """Returns, (n,), which footprints rule out any request for as long as they stay as they are.

        A true answer must hold at any price. A backtest then skips the decision; all false is always correct.
        """
        ...

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Returns, (n,), whether to keep the allocation at ``place`` (n,) of each footprint.

        Called shortly before its billing hour ends.
        """
        ...

    def decide(self, observation: Observation) -> Decision:
        """Decides for one running job as ``choose_requests`` does, with reasons."""
        ...

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """Decides for one running job as ``choose_renewals`` does, with reasons.

        Raises KeyError where there is no such holding.
        """
        ...


@runtime_checkable
class ExchangingStrategy(Protocol):
    """Marks a strategy that may release machines in the middle of an hour, where seconds are billed."""

    def give_up(self, setting: MarketSetup, at: DecisionBatch) -> Codes:
        """Returns, (n,), the place in each footprint to release now, before any request.

        ``NO_REQUEST`` means that all machines stay.
        """
        ...


@runtime_checkable
class PlacingStrategy(Protocol):
    """Marks a strategy that chooses where the reliable machines run, for jobs that keep checkpoints."""

    def place_reliable(self, setting: MarketSetup, at: DecisionBatch, restart: Restart) -> TierPlacement:
        """Chooses a market for the reliable machines. The job holds nothing else at that moment."""
        ...
