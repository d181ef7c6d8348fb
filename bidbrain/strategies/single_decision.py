"""Applies a batch strategy to one running job, and explains its answer as a ``Decision``."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from bidbrain.arrays import Flags
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, MarketSetup
from bidbrain.bidding.footprint import estimate_footprint, held_columns
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.model import Action, Decision, Observation
from bidbrain.strategies.base import NO_REQUEST, RequestBatch
from pricing_data.model.units import UsdPerHour


class BatchStrategy(Protocol):
    """Describes the batch half of a strategy (``Strategy`` has both)."""

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch: ...

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags: ...


def decide_one(strategy: BatchStrategy, observation: Observation, because: str) -> Decision:
    """Decides by ``choose_requests`` for a batch of one; ``because`` states the strategy's rule."""
    single = ObservationBatch.from_observation(observation)
    wanted = strategy.choose_requests(single.setting, single.at)
    if wanted.market[0] == NO_REQUEST:
        return _plain_decision(observation, single, Action.HOLD, f"Nothing to request: {because}.")
    market, count, bid = single.setting.markets[wanted.market[0]], int(wanted.count[0]), float(wanted.bid[0])
    # Batches mark on-demand requests by an infinite bid, decisions by None.
    on_demand = not np.isfinite(bid)
    terms = "on demand" if on_demand else f"bid ${bid:.4f}"
    return replace(
        _plain_decision(observation, single, Action.ACQUIRE, f"{count} x {market}, {terms}: {because}."),
        considered=len(single.setting.markets),
        market=market,
        count=count,
        bid=None if on_demand else UsdPerHour(bid),
    )


def renew_one(strategy: BatchStrategy, observation: Observation, holding_id: str, because: str) -> Decision:
    """Decides by ``choose_renewals`` for a batch of one. Raises KeyError for an unknown holding."""
    holding = observation.find_holding(holding_id)
    single = ObservationBatch.from_observation(observation)
    place = np.array([observation.footprint.index(holding)])
    stays = strategy.choose_renewals(single.setting, single.at, place)[0]
    action = Action.RENEW if stays else Action.TERMINATE
    return replace(
        _plain_decision(observation, single, action, f"{holding.market}, {action}: {because}."),
        considered=2,
        holding=holding.id,
        market=holding.market,
        count=holding.counts_for,
        bid=None if holding.on_demand else holding.bid,
    )


def _plain_decision(observation: Observation, single: ObservationBatch, action: Action, why: str) -> Decision:
    footprint = held_columns(single.setting, single.at)
    now = estimate_footprint(single.setting, footprint, single.at.work_left, changes=False)
    return Decision(observation.now, action, float(now.cost_per_work[0]), why, (), 0)
