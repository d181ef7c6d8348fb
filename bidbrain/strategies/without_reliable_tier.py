"""A strategy for a job whose one footprint is all there is: no reliable machines compute beside it.

    E        cost per work of the footprint; infinite where nothing is held
    toll     what carrying the checkpoint there costs, over the time for which a place may serve
    margin   by how much work must be cheaper elsewhere, as for any move (``bidbrain.relocation.egress``)

Beside nothing at all every price looks good, since E of nothing is infinite. So two things that reliable
machines see to by being there are said here: spot machines are worth no more than their price on demand,
and an allocation is kept only while no other, with the way there paid for, makes work cheaper.

The way to another region is paid in egress and in time (``bidbrain.relocation.egress``). To whoever decides
it is part of the price: the toll, spread over the work left or a day's, whichever is less, on spot and on
demand alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bidbrain.model import Action, Decision, Observation, Offer, Weighed
from bidbrain.relocation.egress import MARGIN, Place
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour

LASTS_S: Final = 86_400.0
"""For how long the prices of now may be expected to tell one place from another."""


class Deciding(Protocol):
    """The live half of a strategy."""

    def decide(self, observation: Observation) -> Decision: ...

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision: ...


@dataclass(frozen=True, slots=True)
class Alone:
    """``strategy`` for a job without reliable machines."""

    strategy: Deciding
    margin: float = MARGIN

    def decide(self, observation: Observation) -> Decision:
        """As ``strategy``, among the markets that are no dearer than on demand, the way there included."""
        dearer = surcharges(observation)
        decision = self.strategy.decide(_fair(_surcharged(observation, dearer)))
        return _without(decision, dearer)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """As ``strategy``, unless machines on demand or another market do the work for less.

        Raises KeyError where there is no such holding.
        """
        holding = observation.holding(holding_id)
        kept = self.strategy.renew_or_terminate(observation, holding_id)
        if holding.on_demand or kept.action is not Action.RENEW:
            return kept
        offer = observation.offer(holding.market)
        if offer.price > offer.on_demand:
            why = f"{offer.market} costs ${offer.price:.4f}, more than on demand (${offer.on_demand:.4f})."
            return replace(kept, action=Action.TERMINATE, why=why)
        others = tuple(h for h in observation.footprint if h is not holding)
        elsewhere = _cheapest(self.decide(_moving(replace(observation, footprint=others))))
        here = _cheapest(kept)
        if elsewhere is None or here is None or elsewhere.market == holding.market:
            return kept
        if elsewhere.cost_per_work >= (1 - self.margin) * here.cost_per_work:
            return kept
        less = 1 - elsewhere.cost_per_work / here.cost_per_work
        why = f"On {elsewhere.market} work is {less:.0%} cheaper than here for one more hour, way included."
        return replace(kept, action=Action.TERMINATE, why=why)


def _cheapest(decision: Decision) -> Weighed | None:
    """The best alternative that holds a machine."""
    found = [w for w in decision.weighed if w.market is not None and math.isfinite(w.cost_per_work)]
    return min(found, key=lambda w: w.cost_per_work, default=None)


def _fair(observation: Observation) -> Observation:
    return replace(observation, offers=tuple(_open_if_fair(offer) for offer in observation.offers))


def _open_if_fair(offer: Offer) -> Offer:
    return offer if offer.price <= offer.on_demand else replace(offer, open=False)


def _moving(observation: Observation) -> Observation:
    """A move of one's own choice stops the program and starts it again, as an eviction does."""
    scaling = observation.scaling
    both = Seconds(scaling.sigma_s + scaling.lambda_s)
    return replace(observation, scaling=replace(scaling, sigma_s=both))


def surcharges(observation: Observation) -> Mapping[Market, float]:
    """Dollars per hour that the way there adds to a machine's price, by market; of those it adds to."""
    carried, found = observation.carried, {}
    for offer in observation.offers if carried is not None else ():
        assert carried is not None
        toll = carried.toll(Place(offer.market, offer.price, float(offer.cores)))
        if toll.total > 0:
            serves_s = min(observation.work_left / offer.cores, LASTS_S)
            found[offer.market] = toll.total / max(serves_s, 1.0) * HOUR_S
    return found


def _surcharged(observation: Observation, dearer: Mapping[Market, float]) -> Observation:
    def priced(offer: Offer) -> Offer:
        more = dearer.get(offer.market)
        if more is None:
            return offer
        return replace(
            offer, price=UsdPerHour(offer.price + more), on_demand=UsdPerHour(offer.on_demand + more)
        )

    return replace(observation, offers=tuple(priced(offer) for offer in observation.offers))


def _without(decision: Decision, dearer: Mapping[Market, float]) -> Decision:
    """A bid is made for the machine alone: the provider has no part in the toll."""
    if decision.market is None or decision.bid is None or decision.market not in dearer:
        return decision
    more = dearer[decision.market]
    why = f"{decision.why} The price includes ${more:.4f} an hour for carrying the checkpoint there."
    return replace(decision, bid=UsdPerHour(round(decision.bid - more, 6)), why=why)
