"""One running job as a batch of one: what an ``Observation`` says, in the arrays that strategies read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bidbrain.batch import BulkMarkets, Chances, Codes, Flags, Held, Moments, Setting
from bidbrain.eviction.base import FittedMarkets
from bidbrain.model import Holding, Observation, Offer
from bidbrain.work import Floats
from pricing_data.market import Market
from pricing_data.units import HOUR_S


@dataclass(frozen=True, slots=True, eq=False)
class Single:
    """A setting, and one decision point in it."""

    setting: Setting
    at: Moments

    @classmethod
    def of(cls, observation: Observation) -> Single:
        """The offers, sorted by market, and the places of the footprint in its order."""
        offers = sorted(observation.offers, key=_name)
        listed = {offer.market for offer in offers}
        elsewhere = {h.market: h for h in observation.footprint if h.market not in listed}
        markets = (*(offer.market for offer in offers), *elsewhere)
        setting = Setting(
            markets=markets,
            cores=np.array([*(o.cores for o in offers), *(h.cores for h in elsewhere.values())], np.float64),
            on_demand=np.array([*(o.on_demand for o in offers), *(h.price for h in elsewhere.values())]),
            rules=observation.rules,
            reliable=observation.reliable,
            limits=observation.limits,
            scaling=observation.scaling,
        )
        unpriced = [np.nan] * len(elsewhere)
        at = Moments(
            now=np.array([observation.now]),
            prices=np.array([[*(o.price for o in offers), *unpriced]]),
            open=np.array([[*(o.open for o in offers), *(False for _ in elsewhere)]]),
            held=_held(observation, {market: code for code, market in enumerate(markets)}),
            work_left=np.array([observation.work_left]),
            chances=Asked.of(observation.evictions, markets),
        )
        return cls(setting, at)


def _name(offer: Offer) -> tuple[str, str, str, str]:
    """The order of markets, spelled out: comparing strings is much quicker than comparing markets."""
    market = offer.market
    return market.cloud, market.region, market.zone, market.instance_type


def _held(observation: Observation, codes: Mapping[Market, int]) -> Held:
    def row(values: list[float]) -> Floats:
        return np.array([values], dtype=np.float64)

    holdings: tuple[Holding, ...] = observation.footprint
    now = observation.now
    return Held(
        market=np.array([[codes[h.market] for h in holdings]], dtype=np.int64),
        count=np.array([[h.counts_for for h in holdings]], dtype=np.int64),
        bid=row([np.inf if h.on_demand else h.bid for h in holdings]),
        price=row([h.price for h in holdings]),
        left_s=row([max(h.hour_ends - now, 0) for h in holdings]),
        age_s=row([h.age_s(now) for h in holdings]),
        on_demand=np.array([[h.on_demand for h in holdings]], dtype=np.bool_),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Chances answered one by one, by whatever was fitted."""

    evictions: FittedMarkets
    markets: tuple[Market, ...]

    @classmethod
    def of(cls, evictions: FittedMarkets, markets: tuple[Market, ...]) -> Chances:
        """In bulk, where the model can."""
        if isinstance(evictions, BulkMarkets):
            return evictions.chances(markets)
        return cls(evictions, markets)

    def known(self) -> Flags:
        """(1, m)."""
        return np.array([[self.evictions.evidence(market, HOUR_S).known for market in self.markets]])

    def only(self, rows: Codes) -> Chances:
        """There is but one decision point."""
        return self

    def outlook(
        self, market: Codes, delta: Floats, age_s: Floats, horizon_s: Floats
    ) -> tuple[Floats, Floats]:
        """See ``batch.Chances``."""
        asked = np.broadcast(market, delta, age_s, horizon_s)
        answers = np.array([self._one(*question) for question in asked]).reshape(-1, 2)
        return answers[:, 0].reshape(asked.shape), answers[:, 1].reshape(asked.shape)

    def _one(self, code: int, delta: float, age_s: float, horizon_s: float) -> tuple[float, float]:
        market, delta, age_s, horizon_s = (
            self.markets[int(code)],
            float(delta),
            float(age_s),
            float(horizon_s),
        )
        survival = self.evictions.survival(market, delta, age_s, horizon_s)
        return survival, self.evictions.expected_uptime(market, delta, age_s, horizon_s)
