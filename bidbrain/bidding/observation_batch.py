"""Presents one running job as a batch of one: turns an ``Observation`` into the arrays of strategies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.bidding.decision_batch import (
    BulkMarkets,
    DecisionBatch,
    FootprintBatch,
    MarketSetup,
    SurvivalBatch,
)
from bidbrain.eviction.base import FittedMarkets
from bidbrain.eviction.scalar_adapter import ScalarAdapter
from bidbrain.model import Holding, Observation
from pricing_data.model.market import Market


@dataclass(frozen=True, slots=True, eq=False)
class ObservationBatch:
    """Holds a market setup, and one decision point in it."""

    setting: MarketSetup
    at: DecisionBatch

    @classmethod
    def from_observation(cls, observation: Observation) -> ObservationBatch:
        """Converts one observation; market codes follow the offers, places the footprint."""
        offers = observation.offers
        codes, elsewhere = _market_codes(observation)
        # An on-demand holding in a market without an offer gets a closed column without a spot price.
        unpriced = [np.nan] * len(elsewhere)
        setting = MarketSetup(
            markets=(*(offer.market for offer in offers), *(holding.market for holding in elsewhere)),
            cores=np.array([*(o.cores for o in offers), *(h.cores for h in elsewhere)], dtype=np.float64),
            on_demand=np.array([*(o.on_demand for o in offers), *(h.price for h in elsewhere)]),
            rules=observation.rules,
            reliable=observation.reliable,
            limits=observation.limits,
            scaling=observation.scaling,
        )
        at = DecisionBatch(
            now=np.array([observation.now]),
            prices=np.array([[*(o.price for o in offers), *unpriced]]),
            open=np.array([[*(o.open for o in offers), *(False for _ in elsewhere)]], dtype=np.bool_),
            held=_footprint_batch(observation, codes),
            work_left=np.array([observation.work_left]),
            survivals=_survival_batch(observation.evictions, setting.markets),
        )
        return cls(setting, at)


def _market_codes(observation: Observation) -> tuple[list[int], list[Holding]]:
    """Returns the footprint's market codes, and its on-demand holdings in markets without an offer."""
    # A holding's market is mostly the very object that was offered: among thousands of offers, a search by
    # identity is much quicker than one by equality.
    same = {id(offer.market): code for code, offer in enumerate(observation.offers)}
    codes: list[int] = []
    elsewhere: list[Holding] = []
    for holding in observation.footprint:
        code = same.get(id(holding.market), -1)
        if code < 0:
            equal = (n for n, offer in enumerate(observation.offers) if offer.market == holding.market)
            code = next(equal, len(observation.offers) + len(elsewhere))
        if code >= len(observation.offers):
            elsewhere.append(holding)
        codes.append(code)
    return codes, elsewhere


def _footprint_batch(observation: Observation, codes: list[int]) -> FootprintBatch:
    def as_row(values: list[float]) -> Floats:
        return np.array([values], dtype=np.float64)

    holdings, now = observation.footprint, observation.now
    return FootprintBatch(
        market=np.array([codes], dtype=np.int64),
        count=np.array([[h.counts_for for h in holdings]], dtype=np.int64),
        bid=as_row([np.inf if h.on_demand else h.bid for h in holdings]),
        price=as_row([h.price for h in holdings]),
        left_s=as_row([max(h.hour_ends - now, 0) for h in holdings]),
        age_s=as_row([h.age_s(now) for h in holdings]),
        on_demand=np.array([[h.on_demand for h in holdings]], dtype=np.bool_),
    )


def _survival_batch(evictions: FittedMarkets, markets: tuple[Market, ...]) -> SurvivalBatch:
    """Returns the model's own bulk answers where it has them, else an adapter that asks one by one."""
    return (
        evictions.survival_batch(markets)
        if isinstance(evictions, BulkMarkets)
        else ScalarAdapter(evictions, markets)
    )
