"""Restricts a strategy to its job's lease: no more spot machines than were granted.

The strategy sees markets outside the lease as closed. Where jobs share a budget, no bid exceeds the list
price, which bounds the cost of an hour before it is bought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bidbrain.cluster.lease import Lease
from bidbrain.model import Action, Decision, Limits, Observation, Offer
from bidbrain.strategies.without_reliable_tier import LiveStrategy


@dataclass(frozen=True, slots=True)
class LeaseBound:
    """Restricts ``strategy`` to ``lease``; None leases nothing."""

    strategy: LiveStrategy
    lease: Lease | None
    leaving: int = 0
    """Machines of the lease's markets that are on their way out, and still held."""
    capped: bool = False
    """Whether bids stay at or below the list price."""

    def decide(self, observation: Observation) -> Decision:
        """Decides as ``strategy``; holds where its request exceeds the lease."""
        seen = self._restrict(observation)
        decision = self.strategy.decide(seen)
        # A strategy that rents on demand ignores which offers are closed, so its answer is checked as well.
        if decision.action is not Action.ACQUIRE or self._has_room(seen, decision):
            return decision
        why = "The job's lease has no room for the machines that this strategy requests."
        return replace(decision, action=Action.HOLD, why=why, market=None, count=0, bid=None)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """Decides as ``strategy``. Raises KeyError for an unknown holding."""
        return self.strategy.renew_or_terminate(self._restrict(observation), holding_id)

    def _restrict(self, observation: Observation) -> Observation:
        # Machines on their way out still use the quota that the lease was granted from.
        count = 0 if self.lease is None else max(self.lease.count - self.leaving, 0)
        limits = replace(observation.limits, max_instances=min(observation.limits.max_instances, count))
        offers = close_outside_lease(observation.offers, self.lease)
        if self.capped:
            offers = tuple(replace(o, open=o.open and o.price <= o.on_demand) for o in offers)
            # The bid is the most that an hour can cost, so the budget has to cap it.
            limits = replace(limits, bid_deltas=_affordable_deltas(limits, offers))
        return replace(observation, limits=limits, offers=offers)

    def _has_room(self, seen: Observation, decision: Decision) -> bool:
        return (
            self.lease is not None
            and decision.market in self.lease.markets
            and decision.count <= seen.limits.max_instances - seen.live_count
        )


def close_outside_lease(offers: tuple[Offer, ...], lease: Lease | None) -> tuple[Offer, ...]:
    """Returns ``offers`` with those outside the lease's markets closed; all closed where it is None."""
    markets = () if lease is None else lease.markets
    return tuple(offer if offer.market in markets else replace(offer, open=False) for offer in offers)


def _affordable_deltas(limits: Limits, offers: tuple[Offer, ...]) -> tuple[float, ...]:
    """Returns the bid deltas that keep every open market's bid at or below its list price."""
    room = min((o.on_demand - o.price for o in offers if o.open), default=0.0)
    # ``Limits`` needs at least one delta.
    return tuple(d for d in limits.bid_deltas if d <= room) or limits.bid_deltas[:1]
