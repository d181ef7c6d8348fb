"""Strategies that look at the prices of now alone: on-demand, standard bidding, failover between zones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, Held, Moments, Setting
from bidbrain.model import Decision, Observation
from bidbrain.strategies.base import NOTHING, Requests
from bidbrain.strategies.recovery import ELASTIC, Recovery
from bidbrain.strategies.single_decision import decide_one, renew_one


@dataclass(frozen=True, slots=True)
class OnDemand:
    """As many machines on demand as make up ``cores``, of the type whose list price per core is least."""

    cores: float
    name: str = "on-demand"
    recovery: Recovery = ELASTIC
    uses_reliable: bool = False

    def request(self, setting: Setting, at: Moments) -> Requests:
        """All of them at once, where nothing is held."""
        cheapest = int(np.argmin(setting.on_demand / setting.cores))
        market = np.full(len(at), cheapest)
        return _together(setting, at, market, self.cores, np.full(len(at), np.inf))

    def settled(self, setting: Setting, held: Held) -> Flags:
        """See ``Strategy.settled``."""
        return held.live > 0

    def renew(self, setting: Setting, at: Moments, place: Codes) -> Flags:
        """Always."""
        return np.ones(len(at), np.bool_)

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        return decide_one(self, observation, "all machines on demand until the job is done")

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        return renew_one(self, observation, holding_id, "all machines on demand until the job is done")


@dataclass(frozen=True, slots=True)
class Standard:
    """Standard bidding (Harlap 4.5.2): the market with the lowest price per core, bid at its list price.

    Kept until it is evicted, then the cheapest again. Markets above their list price are not asked; where
    all are, it waits.
    """

    cores: float
    """As many instances as make them up."""
    recovery: Recovery
    name: str
    uses_reliable: bool = False

    def request(self, setting: Setting, at: Moments) -> Requests:
        """All machines at once, where nothing is held."""
        market, found = _cheapest(setting, at)
        bid = setting.on_demand[market]
        return _together(setting, at, np.where(found, market, NOTHING), self.cores, bid)

    def settled(self, setting: Setting, held: Held) -> Flags:
        """See ``Strategy.settled``."""
        return held.live > 0

    def renew(self, setting: Setting, at: Moments, place: Codes) -> Flags:
        """Always."""
        return np.ones(len(at), np.bool_)

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        return decide_one(self, observation, "the cheapest market at its on-demand price, until evicted")

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        return renew_one(self, observation, holding_id, "kept until it is evicted")


@dataclass(frozen=True, slots=True)
class Failover:
    """As ``Standard`` over all zones, and on demand while every market is above its list price.

    Machines on demand are given up at the end of an hour in which spot machines can be had again.
    """

    cores: float
    recovery: Recovery
    name: str = "failover"
    uses_reliable: bool = False

    def request(self, setting: Setting, at: Moments) -> Requests:
        """All machines at once, where nothing is held."""
        market, found = _cheapest(setting, at)
        on_demand = int(np.argmin(setting.on_demand / setting.cores))
        bid = np.where(found, setting.on_demand[market], np.inf)
        return _together(setting, at, np.where(found, market, on_demand), self.cores, bid)

    def settled(self, setting: Setting, held: Held) -> Flags:
        """See ``Strategy.settled``."""
        return held.live > 0

    def renew(self, setting: Setting, at: Moments, place: Codes) -> Flags:
        """Unless it is on demand and a spot market can be had."""
        on_demand = np.take_along_axis(at.held.on_demand, place[:, None], axis=1)[:, 0]
        return ~(on_demand & _cheapest(setting, at)[1])

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        return decide_one(self, observation, "the cheapest zone, or on demand where none is below it")

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        return renew_one(self, observation, holding_id, "kept until evicted, on demand until spot is back")


def _cheapest(setting: Setting, at: Moments) -> tuple[Codes, Flags]:
    """The open market with the lowest price per core (n,), and whether any is at or below its list price."""
    fair = at.open & (at.prices <= setting.on_demand)
    per_core = np.where(fair, at.prices / setting.cores, np.inf)
    return per_core.argmin(axis=1), per_core.min(axis=1) < np.inf


def _together(setting: Setting, at: Moments, market: Codes, cores: float, bid: Floats) -> Requests:
    """``cores`` of ``market`` (n,), within the limits on instances, where nothing is held."""
    count = np.minimum(np.ceil(cores / setting.cores).astype(np.int64), setting.limits.max_instances)[market]
    wanted = (at.held.live == 0) & (market != NOTHING) & (count > 0)
    return Requests.of(np.where(wanted, market, NOTHING), np.where(wanted, count, 0), bid)
