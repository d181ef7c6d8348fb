"""From what an observation holds and is offered to the columns that the equations are written in.

Here the market rules, the prices and the fitted evictions meet; ``work.py`` and ``cost.py`` see numbers
only, ``decide.py`` compares only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.cost import cost_per_work, expected_charge, footprint_charge
from bidbrain.eviction.base import Lifetime
from bidbrain.model import Holding, Observation, Offer
from bidbrain.work import Allocations, Floats, eviction_of_any, expected_work, reliable_column
from pricing_data.market import Market, MarketRules
from pricing_data.units import HOUR_S, Seconds, Usd, UsdPerHour


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one instance may expect of the time it is held for."""

    left_s: Seconds
    uptime_s: Seconds
    survival: float
    charge: Usd


@dataclass(frozen=True, slots=True)
class Reckoned:
    """Footprints by the equations, their reliable machines included; arrays of one shape."""

    charge: Floats
    """C: dollars."""
    work: Floats
    """W: core-seconds, of those that are left to do."""
    cost_per_work: Floats
    """E: dollars per core-second, infinite without work."""
    beta: Floats
    """That anything is evicted."""


def bid_at(price: UsdPerHour, delta: float) -> UsdPerHour:
    """The bid ``delta`` above ``price``, in whole micro-dollars."""
    return UsdPerHour(round(price + delta, 6))


def delta_of(bid: UsdPerHour, price: UsdPerHour, rules: MarketRules) -> float:
    """How far a bid lies above the current price; negative where that evicts it now.

    Where prices do not evict no bid is too low, and it is never negative.
    """
    delta = round(bid - price, 9)
    return delta if rules.cleared_by_bid else max(delta, 0.0)


def held(observation: Observation, holding: Holding) -> Outlook:
    """A holding until the end of the hour it is held for.

    Billed by the hour it costs the price locked at the hour's start; by the second, the price of now.
    """
    if holding.on_demand:
        return _lasting(holding.price, max(holding.hour_ends - observation.now, 0))
    price = observation.offer(holding.market).price
    billed = holding.price if observation.rules.quantum_s == HOUR_S else price
    delta = delta_of(holding.bid, price, observation.rules)
    left_s = max(holding.hour_ends - observation.now, 0)
    return _outlook(observation, holding.market, billed, delta, holding.age_s(observation.now), left_s)


def renewed(observation: Observation, holding: Holding) -> Outlook:
    """The same holding for one more hour, at the price of now and under its old bid."""
    if holding.on_demand:
        return _lasting(holding.price, HOUR_S)
    price = observation.offer(holding.market).price
    delta = delta_of(holding.bid, price, observation.rules)
    return _outlook(observation, holding.market, price, delta, holding.age_s(observation.now), HOUR_S)


def offered(observation: Observation, offer: Offer, delta: float) -> Outlook:
    """A new instance for its first hour, with a bid ``delta`` above the price of now."""
    return _outlook(observation, offer.market, offer.price, delta, 0.0, HOUR_S)


def _outlook(
    observation: Observation, market: Market, price: UsdPerHour, delta: float, age_s: float, left_s: float
) -> Outlook:
    rules = observation.rules
    if rules.max_lifetime_s is not None:
        left_s = min(left_s, max(rules.max_lifetime_s - age_s, 0.0))
    lifetime = Lifetime(observation.evictions, market, delta, age_s)
    return Outlook(
        left_s=Seconds(left_s),
        uptime_s=lifetime.expected_uptime(left_s),
        survival=lifetime.survival(left_s),
        charge=expected_charge(rules, price, age_s, left_s, lifetime),
    )


def _lasting(price: UsdPerHour, left_s: float) -> Outlook:
    """A machine on demand: nobody takes it, and it is paid for."""
    return Outlook(Seconds(left_s), Seconds(left_s), survival=1.0, charge=Usd(price * left_s / HOUR_S))


def columns(members: Iterable[tuple[Holding, Outlook]]) -> Allocations:
    """One footprint, shape (n,), of the instances that still count; those under eviction are gone."""
    rows = [
        (h.counts_for, h.cores, o.left_s, o.uptime_s, o.survival, h.counts_for * o.charge)
        for h, o in members
        if h.counts_for
    ]
    return Allocations(*np.array(rows, dtype=np.float64).reshape(-1, 6).T)


def requests(
    observation: Observation, offers: Sequence[Offer], counts: Sequence[int], deltas: Sequence[float]
) -> Allocations:
    """Every request for a count of one offer at one bid delta, shape (offers, counts, deltas, 1)."""
    outlooks = [[offered(observation, offer, delta) for delta in deltas] for offer in offers]
    numbers = np.array([[(o.left_s, o.uptime_s, o.survival, o.charge) for o in row] for row in outlooks])
    left, uptime, survival, charge = np.moveaxis(numbers[:, None, :, None, :], -1, 0)
    count = np.array(counts, dtype=np.float64)[:, None, None]
    cores = np.array([offer.cores for offer in offers], dtype=np.float64)[:, None, None, None]
    return Allocations(*np.broadcast_arrays(count, cores, left, uptime, survival, count * charge))


def reckon(observation: Observation, transient: Allocations, *, changes: bool) -> Reckoned:
    """Charge, work and cost per work of footprints of shape (..., n), beside the reliable machines.

    ``changes``: whether getting there changes the footprint as it stands, which costs sigma.
    """
    scaling = observation.scaling
    footprint = transient.beside(reliable_column(transient, observation.reliable, scaling))
    return Reckoned(
        charge=footprint_charge(footprint),
        work=np.minimum(expected_work(footprint, scaling, changes=changes), observation.work_left),
        cost_per_work=cost_per_work(footprint, scaling, changes=changes, work_left=observation.work_left),
        beta=eviction_of_any(footprint),
    )
