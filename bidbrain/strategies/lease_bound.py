"""Restricts a strategy to its job's lease: no more spot machines than were granted.

Markets outside the lease are closed in the observation that the strategy sees. Where a budget is shared among
jobs, no bid exceeds the list price: what an hour may cost must be known before it is bought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bidbrain.cluster.lease import Lease
from bidbrain.model import Action, Decision, Limits, Observation, Offer
from bidbrain.strategies.without_reliable_tier import LiveStrategy


@dataclass(frozen=True, slots=True)
class LeaseBound:
    """Restricts ``strategy`` to ``lease``.

    ``leaving``: machines of its markets on their way out, still held. ``capped``: no bid is above the list
    price.
    """

    strategy: LiveStrategy
    lease: Lease | None
    leaving: int = 0
    capped: bool = False

    def decide(self, observation: Observation) -> Decision:
        """Decides as ``strategy``, within what the lease still has room for."""
        seen = self._restrict(observation)
        decision = self.strategy.decide(seen)
        # A strategy that knows no limits, such as one on demand, may ask for more than it was shown.
        if decision.action is not Action.ACQUIRE or self._has_room(seen, decision):
            return decision
        why = "What this strategy asks for is more than the job's lease has room for."
        return replace(decision, action=Action.HOLD, why=why, market=None, count=0, bid=None)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """Decides as ``strategy``. Raises KeyError where there is no such holding."""
        return self.strategy.renew_or_terminate(self._restrict(observation), holding_id)

    def _restrict(self, observation: Observation) -> Observation:
        count = 0 if self.lease is None else max(self.lease.count - self.leaving, 0)
        limits = replace(observation.limits, max_instances=min(observation.limits.max_instances, count))
        offers = close_outside_lease(observation.offers, self.lease)
        if self.capped:
            offers = tuple(replace(o, open=o.open and o.price <= o.on_demand) for o in offers)
            # What an hour may cost at most is the bid, so the budget has to cap it.
            limits = replace(limits, bid_deltas=_affordable_deltas(limits, offers))
        return replace(observation, limits=limits, offers=offers)

    def _has_room(self, seen: Observation, decision: Decision) -> bool:
        return (
            self.lease is not None
            and decision.market in self.lease.markets
            and decision.count <= seen.limits.max_instances - seen.live_count
        )


def close_outside_lease(offers: tuple[Offer, ...], lease: Lease | None) -> tuple[Offer, ...]:
    """Returns the offers of a lease's markets as they are, all others closed."""
    markets = () if lease is None else lease.markets
    return tuple(offer if offer.market in markets else replace(offer, open=False) for offer in offers)


def _affordable_deltas(limits: Limits, offers: tuple[Offer, ...]) -> tuple[float, ...]:
    """Returns the deltas with which no open market's bid exceeds its list price.

    The least of all if none is left.
    """
    room = min((o.on_demand - o.price for o in offers if o.open), default=0.0)
    return tuple(d for d in limits.bid_deltas if d <= room) or limits.bid_deltas[:1]
