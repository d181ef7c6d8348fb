"""Adapts a strategy to a job whose one footprint is all there is: no reliable machines beside it.

    E         cost per work of the footprint; infinite where nothing is held
    transfer  what carrying the checkpoint there costs, over the time for which a place may serve
    margin    by how much work must be cheaper elsewhere, as for any move (``bidbrain.relocation.egress``)

Beside an empty footprint every price looks good, since its E is infinite. So this module adds two rules that
reliable machines make needless by being there. Spot machines are worth no more than their on-demand price. An
allocation is kept only while no other, including the way there, makes work cheaper.

The way to another region is paid in egress and in time (``bidbrain.relocation.egress``). A decision sees it
as part of the price: the transfer cost, spread over the work left or a day's, whichever is less, on spot and
on demand alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bidbrain.model import Action, Candidate, Decision, Observation, Offer
from bidbrain.relocation.egress import MARGIN, JobSite
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour

PRICES_LAST_S: Final = 86_400.0
"""Seconds for which current prices can be expected to tell one place from another."""


class LiveStrategy(Protocol):
    """Names the live half of a strategy."""

    def decide(self, observation: Observation) -> Decision: ...

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision: ...


@dataclass(frozen=True, slots=True)
class WithoutReliableTier:
    """Adapts ``strategy`` to a job without reliable machines."""

    strategy: LiveStrategy
    margin: float = MARGIN

    def decide(self, observation: Observation) -> Decision:
        """Decides as ``strategy``, among markets no dearer than on demand, the way there included."""
        dearer = move_surcharges(observation)
        decision = self.strategy.decide(_close_unfair_offers(_add_surcharges(observation, dearer)))
        return _remove_surcharge(decision, dearer)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """Decides as ``strategy``, unless on-demand machines or another market do the work for less.

        Raises KeyError where there is no such holding.
        """
        holding = observation.find_holding(holding_id)
        kept = self.strategy.renew_or_terminate(observation, holding_id)
        if holding.on_demand or kept.action is not Action.RENEW:
            return kept
        offer = observation.find_offer(holding.market)
        if offer.price > offer.on_demand:
            why = f"{offer.market} costs ${offer.price:.4f}, more than on demand (${offer.on_demand:.4f})."
            return replace(kept, action=Action.TERMINATE, why=why)
        others = tuple(h for h in observation.footprint if h is not holding)
        elsewhere = _cheapest_candidate(self.decide(_with_move_pause(replace(observation, footprint=others))))
        here = _cheapest_candidate(kept)
        if elsewhere is None or here is None or elsewhere.market == holding.market:
            return kept
        if elsewhere.cost_per_work >= (1 - self.margin) * here.cost_per_work:
            return kept
        less = 1 - elsewhere.cost_per_work / here.cost_per_work
        why = f"On {elsewhere.market} work is {less:.0%} cheaper than here for one more hour, way included."
        return replace(kept, action=Action.TERMINATE, why=why)


def _cheapest_candidate(decision: Decision) -> Candidate | None:
    """Returns the best alternative that holds a machine."""
    found = [w for w in decision.weighed if w.market is not None and math.isfinite(w.cost_per_work)]
    return min(found, key=lambda w: w.cost_per_work, default=None)


def _close_unfair_offers(observation: Observation) -> Observation:
    return replace(observation, offers=tuple(_open_if_fair(offer) for offer in observation.offers))


def _open_if_fair(offer: Offer) -> Offer:
    return offer if offer.price <= offer.on_demand else replace(offer, open=False)


def _with_move_pause(observation: Observation) -> Observation:
    """Adds lambda to sigma: a voluntary move stops the program and restarts it, as an eviction does."""
    scaling = observation.scaling
    # Nothing else works meanwhile: the one footprint stops, so the move pays both pauses.
    both = Seconds(scaling.sigma_s + scaling.lambda_s)
    return replace(observation, scaling=replace(scaling, sigma_s=both))


def move_surcharges(observation: Observation) -> Mapping[Market, float]:
    """Returns dollars per hour that the way there adds to a machine's price, where it adds any."""
    carried, found = observation.carried, {}
    for offer in observation.offers if carried is not None else ():
        assert carried is not None
        cost = carried.transfer_cost(JobSite(offer.market, offer.price, float(offer.cores)))
        if cost.total_cost > 0:
            # The cost is spread over the shorter of the two: beyond it neither work nor prices can be relied
            # on.
            serves_s = min(observation.work_left / offer.cores, PRICES_LAST_S)
            found[offer.market] = cost.total_cost / max(serves_s, 1.0) * HOUR_S
    return found


def _add_surcharges(observation: Observation, dearer: Mapping[Market, float]) -> Observation:
    def add_surcharge(offer: Offer) -> Offer:
        more = dearer.get(offer.market)
        if more is None:
            return offer
        return replace(
            offer, price=UsdPerHour(offer.price + more), on_demand=UsdPerHour(offer.on_demand + more)
        )

    return replace(observation, offers=tuple(add_surcharge(offer) for offer in observation.offers))


def _remove_surcharge(decision: Decision, dearer: Mapping[Market, float]) -> Decision:
    """Takes the surcharge off the bid: the provider has no part in it."""
    if decision.market is None or decision.bid is None or decision.market not in dearer:
        return decision
    more = dearer[decision.market]
    why = f"{decision.why} The price includes ${more:.4f} an hour for carrying the checkpoint there."
    return replace(decision, bid=UsdPerHour(round(decision.bid - more, 6)), why=why)
