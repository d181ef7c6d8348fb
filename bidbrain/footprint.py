"""From decision points to the columns that the equations are written in.

Here rules, prices and chances of eviction meet: what an instance pays and how long it may last. ``work.py``
and ``weigh.py`` see numbers only, ``decide.py`` and strategies compare only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.batch import Codes, Moments, Setting
from bidbrain.charges import billed_seconds
from bidbrain.cost import cost_per_work, footprint_charge
from bidbrain.weigh import Requestable
from bidbrain.work import Allocations, Floats, eviction_of_any, expected_work, reliable_column
from pricing_data.units import HOUR_S, UsdPerHour


@dataclass(frozen=True, slots=True, eq=False)
class Reckoned:
    """Footprints by the equations, their reliable machines included; arrays (n,)."""

    charge: Floats
    """C: dollars."""
    work: Floats
    """W: core-seconds, of those that are left to do."""
    cost_per_work: Floats
    """E: dollars per core-second, infinite without work."""
    beta: Floats
    """That anything is evicted."""


def reckon(setting: Setting, transient: Allocations, work_left: Floats, *, changes: bool) -> Reckoned:
    """Charge, work and cost per work of footprints of shape (n, a), beside the reliable machines.

    ``changes``: whether getting there changes the footprint as it stands, which costs sigma.
    """
    scaling = setting.scaling
    footprint = transient.beside(reliable_column(transient, setting.reliable, scaling))
    return Reckoned(
        charge=footprint_charge(footprint),
        work=np.minimum(expected_work(footprint, scaling, changes=changes), work_left),
        cost_per_work=cost_per_work(footprint, scaling, changes=changes, work_left=work_left),
        beta=eviction_of_any(footprint),
    )


def bid_at(price: UsdPerHour, delta: float) -> UsdPerHour:
    """The bid ``delta`` above ``price``, in whole micro-dollars."""
    return UsdPerHour(round(price + delta, 6))


def held(setting: Setting, at: Moments) -> Allocations:
    """The footprints until the end of the hours they are held for, (n, a); empty places do nothing."""
    now = at.held
    here = np.take_along_axis(at.prices, now.market, axis=1)
    billed = np.where(now.on_demand | (setting.rules.quantum_s == HOUR_S), now.price, here)
    return _allocations(setting, at, billed, here, now.left_s)


def renewed(setting: Setting, at: Moments) -> Allocations:
    """The same footprints, each allocation for one more hour at the price of now and under its bid."""
    here = np.take_along_axis(at.prices, at.held.market, axis=1)
    billed = np.where(at.held.on_demand, at.held.price, here)
    return _allocations(setting, at, billed, here, np.full(here.shape, float(HOUR_S)))


def requestable(setting: Setting, at: Moments, counts: Codes, deltas: Floats) -> Requestable:
    """A new instance of every market for its first hour, at every bid delta above the price of now.

    ``counts`` (n, m or 1, c): how many of them are thought of together.
    """
    rules = setting.rules
    left_s = float(HOUR_S if rules.max_lifetime_s is None else min(HOUR_S, rules.max_lifetime_s))
    market = np.arange(len(setting.markets))[None, :, None]
    bids, age_s = deltas[None, None, :], np.zeros((1, 1, 1))

    def lives(horizon_s: Floats) -> tuple[Floats, Floats]:
        return at.chances.outlook(market, bids, age_s, horizon_s)

    horizon_s = np.full((1, 1, 1), left_s)
    survival, uptime = lives(horizon_s)
    billed = billed_seconds(rules, age_s, horizon_s, lives)
    return Requestable(
        cores=setting.cores,
        counts=counts.astype(np.float64),
        left_s=np.full(len(setting.markets), left_s),
        uptime_s=uptime,
        survival=survival,
        charge=at.prices[:, :, None] * billed / HOUR_S,
    )


def bid_deltas(setting: Setting) -> Floats:
    """The bids tried; where prices do not evict the highest alone, as a lower one could but lose machines."""
    deltas = setting.limits.bid_deltas
    return np.array(deltas if setting.rules.cleared_by_bid else deltas[-1:])


def delta_of(bid: Floats, price: Floats, cleared_by_bid: bool) -> Floats:
    """How far bids lie above the price; negative where that evicts now, never so where prices do not."""
    delta = np.round(bid - price, 9)
    return delta if cleared_by_bid else np.maximum(delta, 0.0)


def _allocations(setting: Setting, at: Moments, billed: Floats, here: Floats, left_s: Floats) -> Allocations:
    now, rules = at.held, setting.rules
    if rules.max_lifetime_s is not None:
        left_s = np.where(now.on_demand, left_s, np.minimum(left_s, rules.max_lifetime_s - now.age_s))
    left_s = np.maximum(left_s, 0.0)
    there = now.count > 0
    delta = np.where(there & ~now.on_demand, delta_of(now.bid, here, rules.cleared_by_bid), 0.0)

    def lives(horizon_s: Floats) -> tuple[Floats, Floats]:
        survival, uptime = at.chances.outlook(now.market, delta, now.age_s, horizon_s)
        stays = now.on_demand | ~there
        return np.where(stays, 1.0, survival), np.where(stays, horizon_s, uptime)

    survival, uptime = lives(left_s)
    owed = np.where(now.on_demand, left_s, billed_seconds(rules, now.age_s, left_s, lives))
    charge = now.count * (np.where(there, billed, 0.0) * owed / HOUR_S)
    count = now.count.astype(np.float64)
    cores = np.where(there, setting.cores[now.market], 0.0)
    return Allocations(
        count, cores, np.where(there, left_s, 0.0), np.where(there, uptime, 0.0), survival, charge
    )
