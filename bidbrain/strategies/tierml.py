"""Implements TierML's policy: run where machines fail least, and move before they do (CMU-PDL-16-102, 3.4).

    rate    1 / MTTF, failures per second (``mttf.py``)
    factor  a move needs machines that fail this many times less often

It bids the on-demand price. A move requests machines of the better class. Those held work on until their hour
ends: the hour is paid, and free if they are evicted within it. While every class costs more than on demand,
it rents. It does not trade dollars against failures: in the auctions it was made for, the class that fails
least is usually the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup
from bidbrain.model import Decision, Observation
from bidbrain.strategies.base import NO_REQUEST, RequestBatch
from bidbrain.strategies.mttf import HORIZON_S
from bidbrain.strategies.recovery import ELASTIC, Recovery
from bidbrain.strategies.single_decision import decide_one, renew_one

MOVE_FACTOR: Final = 2.0
"""The paper says "significantly higher"; costs hardly depend on the figure (decision record 0011)."""
_PER_DOLLAR: Final = 1e-12
"""Failures per second that a dollar per core-hour adds: it orders machines of equal rate by price."""


def worth_a_move(rate: Floats, elsewhere: Floats, factor: float) -> Flags:
    """Returns whether machines fail at least ``factor`` times less often elsewhere; any shape."""
    worth: Flags = elsewhere * factor < rate
    return worth


@dataclass(frozen=True, slots=True)
class TierML:
    """Holds ``cores`` in one market at a time, and in two while it moves."""

    cores: float
    factor: float = MOVE_FACTOR
    """Infinite: a running job never moves, and chooses again only after it lost its machines."""
    recovery: Recovery = ELASTIC
    name: str = "tierml"
    uses_reliable: bool = True

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests machines for jobs that hold none, and a class that fails far less often for the others."""
        offered = _offered_rates(setting, at)
        best, least = offered.argmin(axis=1), offered.min(axis=1)
        fair = least < np.inf
        rented, spot = at.held.on_demand & (at.held.count > 0), ~at.held.on_demand & (at.held.count > 0)
        # While two classes are held the better one decides, or a move would start over and over.
        held = np.where(spot, _held_rates(setting, at), np.inf).min(axis=1, initial=np.inf)
        moves = spot.any(axis=1) & fair & worth_a_move(held, least, self.factor)
        returns = fair & ~spot.any(axis=1)
        rents = ~fair & ~spot.any(axis=1) & ~rented.any(axis=1)
        on_demand = int(np.argmin(setting.on_demand / setting.cores))
        # A job that holds nothing takes the best class, a running one only a significantly better one.
        market = np.where(moves | returns, best, np.where(rents, on_demand, NO_REQUEST))
        room = np.maximum(setting.limits.max_instances - at.held.live_count, 0)
        count = np.minimum(np.ceil(self.cores / setting.cores).astype(np.int64)[market], room)
        wanted = (market != NO_REQUEST) & (count > 0)
        bid = np.where(rents, np.inf, setting.on_demand[market])
        return RequestBatch.one_each(np.where(wanted, market, NO_REQUEST), np.where(wanted, count, 0), bid)

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """Returns false for all: failure rates change even while a footprint stays the same."""
        return np.zeros(len(held.count), np.bool_)

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Renews, unless the job holds better machines too, or rents while a spot class is available."""
        rates = np.where(at.held.count > 0, _held_rates(setting, at), np.inf)
        # On-demand machines never fail, but must not make TierML drop the spot machines it moves to.
        rates = np.where(at.held.on_demand, np.inf, rates)
        column = place[:, None]
        best = np.take_along_axis(rates, column, axis=1)[:, 0] <= rates.min(axis=1)
        on_demand = np.take_along_axis(at.held.on_demand, column, axis=1)[:, 0]
        fair = (_offered_rates(setting, at) < np.inf).any(axis=1)
        return np.where(on_demand, ~fair, best)

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        return decide_one(self, observation, "run where machines fail least, on demand while spot costs more")

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        return renew_one(self, observation, holding_id, "kept unless the job holds machines that fail less")


def _offered_rates(setting: MarketSetup, at: DecisionBatch) -> Floats:
    """Returns failures per second (n, m) of new machines bid at their on-demand price.

    Infinite where the market is closed or costs more than on demand.
    """
    fair = at.open & (at.prices <= setting.on_demand)
    # A negative delta stands for "evicted already": its rate is not looked up in any history.
    delta = np.where(fair, setting.on_demand - at.prices, -1.0)
    market = np.broadcast_to(np.arange(len(setting.markets)), delta.shape)
    per_core = np.where(fair, at.prices, 0.0) / setting.cores
    rates = _failure_rates(at, market, delta, np.zeros(delta.shape)) + _PER_DOLLAR * per_core
    return np.where(fair, rates, np.inf)


def _held_rates(setting: MarketSetup, at: DecisionBatch) -> Floats:
    """Returns failures per second (n, a) of machines held, at their age and bid; meaningless on demand."""
    market, now = at.held.market, np.take_along_axis(at.prices, at.held.market, axis=1)
    delta = np.where(at.held.on_demand | (at.held.count == 0), 0.0, at.held.bid - now)
    per_core = np.nan_to_num(now) / setting.cores[market]
    return _failure_rates(at, market, np.nan_to_num(delta, nan=-1.0), at.held.age_s) + _PER_DOLLAR * per_core


def _failure_rates(at: DecisionBatch, market: Codes, delta: Floats, age_s: Floats) -> Floats:
    """Returns beta / E[min(T, h)] per second; infinite if nothing is known or an eviction is under way."""
    survival, uptime_s = at.survivals.survival_and_uptime(
        market, delta, age_s, np.full(delta.shape, float(HORIZON_S))
    )
    lives = uptime_s > 0
    return np.where(lives, (1 - survival) / np.where(lives, uptime_s, 1.0), np.inf)
