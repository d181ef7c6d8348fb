"""What a strategy is: one object that decides for a running job, or for n jobs of a backtest at once.

Batches are arrays with the axis of decision points in front (``bidbrain.bidding.decision_batch``); a live
decision is a batch of one (``single_decision.py``). So the lines that were backtested are the lines that run.
A strategy sees ``Moments`` and nothing else: no history, no clock, and no price after its own now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, Held, Moments, Setting
from bidbrain.model import Decision, Observation
from bidbrain.strategies.recovery import Recovery

if TYPE_CHECKING:
    from bidbrain.strategies.reliable_tier import Placement, Restart

NOTHING: Final = -1
"""The market code of no request."""


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """What n decisions ask for, each array (n,)."""

    market: Codes
    """``NOTHING`` where nothing is wanted."""
    count: Codes
    bid: Floats
    """Dollars per instance-hour; infinite: on demand."""
    again: Flags
    """Where another request follows at the same moment."""

    @classmethod
    def of(cls, market: Codes, count: Codes, bid: Floats) -> Requests:
        """One request each and no more."""
        return cls(market, count, bid, np.zeros(len(market), np.bool_))


class Strategy(Protocol):
    """See the module. The first verbs are for batches, the last two for a running job; they agree."""

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

    def settled(self, setting: Setting, held: Held) -> Flags:
        """(n,): footprints beside which nothing will be requested while they stay as they are, at any price.

        Spares a backtest the asking; all false is always right.
        """
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


@runtime_checkable
class Exchanging(Protocol):
    """A strategy that may let machines go between two hours' ends, where seconds are billed."""

    def give_up(self, setting: Setting, at: Moments) -> Codes:
        """(n,): the place of each footprint whose machines go now, before anything is requested; ``NOTHING``
        where all stay.
        """
        ...


@runtime_checkable
class Placing(Protocol):
    """A strategy that says where the reliable machines run, where checkpoints stand behind them."""

    def place(self, setting: Setting, at: Moments, restart: Restart) -> Placement:
        """Asked whenever reliable machines are to be had, with nothing else held."""
        ...
