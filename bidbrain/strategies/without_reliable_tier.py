"""Adapts a strategy to a job without reliable machines: the footprint that it chooses is all there is.

    E         cost per work of the footprint; infinite while nothing is held
    transfer  cost of carrying the checkpoint to another region (``bidbrain.relocation.egress``)
    margin    share by which work must be cheaper elsewhere to justify a move

An empty footprint has an infinite E, so any price would improve on it. With reliable machines E is finite,
and such prices are rejected. Without them this module adds two rules. It buys no spot machine above its
on-demand price. It keeps an allocation only while no other makes work cheaper, the move included.

A move to another region costs egress and time. Decisions see both as part of the price, on spot and on demand
alike: the transfer cost, spread over the work left or a day's work, whichever is less.
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
"""Seconds for which current prices are trusted to tell a cheap region from an expensive one: a day."""


class LiveStrategy(Protocol):
    """Describes the live half of a strategy (``Strategy`` has both)."""

    def decide(self, observation: Observation) -> Decision: ...

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision: ...


@dataclass(frozen=True, slots=True)
class WithoutReliableTier:
    """Adapts ``strategy``; see the module. ``margin``: share of the cost here that a move must save."""

    strategy: LiveStrategy
    margin: float = MARGIN

    def decide(self, observation: Observation) -> Decision:
        """Decides as ``strategy``, among markets at or below their on-demand price, moves priced in."""
        surcharges = move_surcharges(observation)
        decision = self.strategy.decide(_close_unfair_offers(_add_surcharges(observation, surcharges)))
        return _remove_surcharge(decision, surcharges)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """Decides as ``strategy``, unless on-demand machines or another market do the work for less.

        Raises KeyError for an unknown holding.
        """
        holding = observation.find_holding(holding_id)
        kept = self.strategy.renew_or_terminate(observation, holding_id)
        if holding.on_demand or kept.action is not Action.RENEW:
            return kept
        offer = observation.find_offer(holding.market)
        if offer.price > offer.on_demand:
            why = f"{offer.market} costs ${offer.price:.4f}, more than on demand (${offer.on_demand:.4f})."
            return replace(kept, action=Action.TERMINATE, why=why)
        # Asked as if the holding were gone: the best candidate then is the best replacement for it.
        others = tuple(h for h in observation.footprint if h is not holding)
        elsewhere = _cheapest_candidate(self.decide(_with_move_pause(replace(observation, footprint=others))))
        here = _cheapest_candidate(kept)
        if elsewhere is None or here is None or elsewhere.market == holding.market:
            return kept
        if elsewhere.cost_per_work >= (1 - self.margin) * here.cost_per_work:
            return kept
        less = 1 - elsewhere.cost_per_work / here.cost_per_work
        why = f"Work on {elsewhere.market} costs {less:.0%} less than another hour here, the move included."
        return replace(kept, action=Action.TERMINATE, why=why)


def _cheapest_candidate(decision: Decision) -> Candidate | None:
    """Returns the candidate with the least E among those that hold a machine; None without any."""
    found = [w for w in decision.weighed if w.market is not None and math.isfinite(w.cost_per_work)]
    return min(found, key=lambda w: w.cost_per_work, default=None)


def _close_unfair_offers(observation: Observation) -> Observation:
    offers = (o if o.price <= o.on_demand else replace(o, open=False) for o in observation.offers)
    return replace(observation, offers=tuple(offers))


def _with_move_pause(observation: Observation) -> Observation:
    """Returns ``observation`` with sigma raised by lambda, the pauses of a voluntary move."""
    scaling = observation.scaling
    # The one footprint stops and restarts elsewhere, as after an eviction: nothing else works meanwhile.
    both = Seconds(scaling.sigma_s + scaling.lambda_s)
    return replace(observation, scaling=replace(scaling, sigma_s=both))


def move_surcharges(observation: Observation) -> Mapping[Market, float]:
    """Returns dollars per hour that a move adds to one machine's price, for markets where it adds any."""
    carried, found = observation.carried, dict[Market, float]()
    if carried is None:
        return found
    for offer in observation.offers:
        cost = carried.transfer_cost(JobSite(offer.market, offer.price, float(offer.cores)))
        if cost.total_cost > 0:
            # Beyond the shorter of the two, neither work nor prices can be relied on.
            serves_s = min(observation.work_left / offer.cores, PRICES_LAST_S)
            found[offer.market] = cost.total_cost / max(serves_s, 1.0) * HOUR_S
    return found


def _add_surcharges(observation: Observation, surcharges: Mapping[Market, float]) -> Observation:
    def add_surcharge(offer: Offer) -> Offer:
        more = surcharges.get(offer.market)
        if more is None:
            return offer
        # On demand as well: the move costs the same whatever is bought there.
        return replace(
            offer, price=UsdPerHour(offer.price + more), on_demand=UsdPerHour(offer.on_demand + more)
        )

    return replace(observation, offers=tuple(add_surcharge(offer) for offer in observation.offers))


def _remove_surcharge(decision: Decision, surcharges: Mapping[Market, float]) -> Decision:
    """Returns ``decision`` with a bid that the provider can be given: without the surcharge."""
    if decision.market is None or decision.bid is None or decision.market not in surcharges:
        return decision
    more = surcharges[decision.market]
    why = f"{decision.why} The price includes ${more:.4f} an hour for carrying the checkpoint there."
    return replace(decision, bid=UsdPerHour(round(decision.bid - more, 6)), why=why)
