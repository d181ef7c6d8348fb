"""A strategy for a job whose one footprint is all there is: no reliable machines compute beside it.

    E        cost per work of the footprint; infinite where nothing is held
    margin   by how much work must be cheaper elsewhere, as for any move (``bidbrain.moves``)

Beside nothing at all every price looks good, since E of nothing is infinite. So two things that reliable
machines see to by being there are said here: spot machines are worth no more than their price on demand,
and an allocation is kept only while no other, with the way there paid for, makes work cheaper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from bidbrain.model import Action, Decision, Observation, Offer, Weighed
from bidbrain.moves import MARGIN
from pricing_data.units import Seconds


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
        """As ``strategy``, among the markets that are no dearer than on demand."""
        return self.strategy.decide(_fair(observation))

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
