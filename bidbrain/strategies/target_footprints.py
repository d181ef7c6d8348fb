"""Lists footprints that can keep a deadline: the job's maximum of machines, of each on-demand type.

``deadline_inputs.py`` chooses one of them: which one keeps a deadline for least depends on the work and the
time left.
"""

from __future__ import annotations

from dataclasses import dataclass

from bidbrain.model import Observation, Offer
from pricing_data.model.market import Market
from pricing_data.model.units import UsdPerHour


@dataclass(frozen=True, slots=True)
class Target:
    """Describes a footprint of one on-demand type, on which a deadline policy plans."""

    market: Market
    """Where its machines are rented on demand."""
    count: int
    cores: float
    """Cores of one machine."""
    speed: float
    """Core-seconds per second, reliable machines included where they work."""
    on_demand: UsdPerHour
    """Dollars per hour for all its machines together."""
    spot: UsdPerHour
    """The same cores in the cheapest spot market; the on-demand price where there is none below it."""


def list_targets(observation: Observation) -> tuple[Target, ...]:
    """Returns a footprint of ``max_instances`` for every kind of on-demand machine that the job may rent.

    Markets of equal cores and list price (mostly zones of one region) are one kind; the market where machines
    are rented now stands for it, else the first. Raises ValueError where the job may rent nowhere.
    """
    rentable = [offer for offer in observation.offers if offer.rentable]
    if not rentable:
        raise ValueError("a deadline needs at least one market where on-demand machines may be rented")
    rented = {holding.market for holding in observation.footprint if holding.on_demand}
    # Rented markets sort first, so that of equal types the one in use is kept.
    offers = sorted(rentable, key=lambda o: (o.market not in rented, o.market))
    below = min((o.price / o.cores for o in fair_offers(observation)), default=None)
    kinds: dict[tuple[float, float], Target] = {}
    for offer in offers:
        kind = min(offer.cores, offer.safe_cores), offer.on_demand
        if kind not in kinds:
            kinds[kind] = _build_target(observation, offer, below)
    return tuple(kinds.values())


def _build_target(observation: Observation, offer: Offer, below: float | None) -> Target:
    """Builds a target. ``below``: dollars per core-hour of the cheapest spot market; None: there is none."""
    # A deadline may only count on a speed that the type is sure to reach.
    count, cores = observation.limits.max_instances, min(offer.cores, offer.safe_cores)
    on_demand = UsdPerHour(count * offer.on_demand)
    # The cheapest spot market may still cost more per core than this type on demand.
    spot = on_demand if below is None else UsdPerHour(min(count * cores * below, on_demand))
    speed = observation.scaling.speed([(count, cores)], observation.reliable)
    return Target(offer.market, count, cores, speed, on_demand, spot)


def fair_offers(observation: Observation) -> list[Offer]:
    """Returns the offers where spot machines are available for less than on demand."""
    return [offer for offer in observation.offers if offer.open and offer.price < offer.on_demand]
