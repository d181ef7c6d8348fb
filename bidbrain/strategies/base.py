"""Defines what a strategy is: one object that decides for a running job, or for n jobs of a backtest at once.

Batches are arrays with the axis of decision points in front (``bidbrain.bidding.decision_batch``); a live
decision is a batch of one (``single_decision.py``). So the lines that were backtested are the lines that run.
A strategy sees a ``DecisionBatch`` and nothing else: no history, no clock, and no price after its own now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup
from bidbrain.model import Decision, Observation
from bidbrain.strategies.recovery import Recovery

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
    """Decides for batches and for a running job; see the module.

    The first methods are for batches, the last two for a running job; they agree.
    """

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
        """Returns, (n,), footprints beside which nothing will be requested while they stay as they are.

        This must hold at any price. It spares a backtest the question; all false is always right.
        """
        ...

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Returns whether the allocation at ``place`` (n,) of each footprint stays.

        Its hour is about to end.
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
        """Returns, (n,), the place in each footprint whose machines to release now, before any request.

        ``NO_REQUEST`` where all stay.
        """
        ...


@runtime_checkable
class PlacingStrategy(Protocol):
    """Marks a strategy that chooses where the reliable machines run, for jobs that keep checkpoints."""

    def place_reliable(self, setting: MarketSetup, at: DecisionBatch, restart: Restart) -> TierPlacement:
        """Chooses a market whenever reliable machines are needed; nothing else is held then."""
        ...
