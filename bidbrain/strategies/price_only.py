"""Implements strategies that look only at current prices: on demand, standard bidding, failover.

All three request their whole footprint at once, and nothing more until all of it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup
from bidbrain.model import Decision, Observation
from bidbrain.strategies.base import NO_REQUEST, RequestBatch
from bidbrain.strategies.recovery import ELASTIC, Recovery
from bidbrain.strategies.single_decision import decide_one, renew_one


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Rents on-demand machines that make up ``cores``, of the type with the least list price per core."""

    cores: float
    name: str = "on-demand"
    recovery: Recovery = ELASTIC
    uses_reliable: bool = False

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests all of them at once, where nothing is held."""
        cheapest = int(np.argmin(setting.on_demand / setting.cores))
        market = np.full(len(at), cheapest)
        return _request_together(setting, at, market, self.cores, np.full(len(at), np.inf))

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """See ``Strategy.needs_nothing``."""
        return held.live_count > 0

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Always renews."""
        return np.ones(len(at), np.bool_)

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        return decide_one(self, observation, "all machines on demand until the job is done")

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        return renew_one(self, observation, holding_id, "all machines on demand until the job is done")


@dataclass(frozen=True, slots=True)
class StandardBidding:
    """Implements standard bidding (Harlap 4.5.2): the cheapest market, bid at its list price, until evicted.

    The cheapest is the lowest price per core among markets at or below their list price. Where all are above,
    it waits.
    """

    cores: float
    """It requests as many machines as make up this number."""
    recovery: Recovery
    name: str
    uses_reliable: bool = False

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests all machines at once, where nothing is held."""
        market, found = _cheapest_market(setting, at)
        bid = setting.on_demand[market]
        return _request_together(setting, at, np.where(found, market, NO_REQUEST), self.cores, bid)

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """See ``Strategy.needs_nothing``."""
        return held.live_count > 0

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Always renews."""
        return np.ones(len(at), np.bool_)

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        return decide_one(self, observation, "the cheapest market at its on-demand price, until evicted")

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        return renew_one(self, observation, holding_id, "kept until it is evicted")


@dataclass(frozen=True, slots=True)
class Failover:
    """Bids as ``StandardBidding``, and rents on demand while every market is above its list price.

    It gives up on-demand machines at the end of an hour, once a market is below its list price again.
    """

    cores: float
    recovery: Recovery
    name: str = "failover"
    uses_reliable: bool = False

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests all machines at once, where nothing is held."""
        market, found = _cheapest_market(setting, at)
        on_demand = int(np.argmin(setting.on_demand / setting.cores))
        bid = np.where(found, setting.on_demand[market], np.inf)
        return _request_together(setting, at, np.where(found, market, on_demand), self.cores, bid)

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """See ``Strategy.needs_nothing``."""
        return held.live_count > 0

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Renews all but on-demand machines that a spot market can replace."""
        on_demand = np.take_along_axis(at.held.on_demand, place[:, None], axis=1)[:, 0]
        return ~(on_demand & _cheapest_market(setting, at)[1])

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        return decide_one(self, observation, "the cheapest zone, or on demand where none is below it")

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        return renew_one(self, observation, holding_id, "kept until evicted, on demand until spot is back")


def _cheapest_market(setting: MarketSetup, at: DecisionBatch) -> tuple[Codes, Flags]:
    """Returns the open market with the lowest price per core, and whether there is one; each (n,).

    Only markets at or below their list price count.
    """
    # A market that is not traded yet has price NaN, which is never fair.
    fair = at.open & (at.prices <= setting.on_demand)
    per_core = np.where(fair, at.prices / setting.cores, np.inf)
    return per_core.argmin(axis=1), per_core.min(axis=1) < np.inf


def _request_together(
    setting: MarketSetup, at: DecisionBatch, market: Codes, cores: float, bid: Floats
) -> RequestBatch:
    """Requests ``cores`` of ``market`` (n,), within the limits on instances, where nothing is held."""
    count = np.minimum(np.ceil(cores / setting.cores).astype(np.int64), setting.limits.max_instances)[market]
    # All or nothing: the papers' baselines do not top up a footprint that was partly evicted.
    wanted = (at.held.live_count == 0) & (market != NO_REQUEST) & (count > 0)
    return RequestBatch.one_each(np.where(wanted, market, NO_REQUEST), np.where(wanted, count, 0), bid)
