"""A strategy for a job that may hold no more spot machines than it was given a lease of.

The markets outside of the lease are closed in what the strategy is shown. Where money is dealt out among jobs
a bid above the list price is none: what an hour may cost must be known before it is bought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bidbrain.cluster.lease import Lease
from bidbrain.model import Action, Decision, Limits, Observation, Offer
from bidbrain.strategies.without_reliable_tier import Deciding


@dataclass(frozen=True, slots=True)
class Leased:
    """``strategy`` within ``lease``.

    ``leaving``: machines of its markets on their way out, still held. ``capped``: no bid is above
    the list price.
    """

    strategy: Deciding
    lease: Lease | None
    leaving: int = 0
    capped: bool = False

    def decide(self, observation: Observation) -> Decision:
        """As ``strategy``, of what the lease still has room for."""
        seen = self._within(observation)
        decision = self.strategy.decide(seen)
        if decision.action is not Action.ACQUIRE or self._covers(seen, decision):
            return decision
        why = "What this strategy asks for is more than the job's lease has room for."
        return replace(decision, action=Action.HOLD, why=why, market=None, count=0, bid=None)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """As ``strategy``. Raises KeyError where there is no such holding."""
        return self.strategy.renew_or_terminate(self._within(observation), holding_id)

    def _within(self, observation: Observation) -> Observation:
        count = 0 if self.lease is None else max(self.lease.count - self.leaving, 0)
        limits = replace(observation.limits, max_instances=min(observation.limits.max_instances, count))
        offers = closed_outside(observation.offers, self.lease)
        if self.capped:
            offers = tuple(replace(o, open=o.open and o.price <= o.on_demand) for o in offers)
            limits = replace(limits, bid_deltas=_affordable(limits, offers))
        return replace(observation, limits=limits, offers=offers)

    def _covers(self, seen: Observation, decision: Decision) -> bool:
        return (
            self.lease is not None
            and decision.market in self.lease.markets
            and decision.count <= seen.limits.max_instances - seen.live
        )


def closed_outside(offers: tuple[Offer, ...], lease: Lease | None) -> tuple[Offer, ...]:
    """The offers of a lease's markets as they are, all others closed."""
    markets = () if lease is None else lease.markets
    return tuple(offer if offer.market in markets else replace(offer, open=False) for offer in offers)


def _affordable(limits: Limits, offers: tuple[Offer, ...]) -> tuple[float, ...]:
    """The deltas that no open market's bid exceeds its list price with; the least of all where none does."""
    room = min((o.on_demand - o.price for o in offers if o.open), default=0.0)
    return tuple(d for d in limits.bid_deltas if d <= room) or limits.bid_deltas[:1]
