"""Turns decision points into the columns of the equations: what an instance pays, and how long it may last.

Billing rules, prices and survival are combined here. ``expected_work.py`` and ``candidate_scores.py`` see
only numbers; ``decide.py`` and the strategies only compare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.billed_time import billed_seconds
from bidbrain.bidding.candidate_scores import RequestGrid
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, MarketSetup
from bidbrain.bidding.expected_cost import cost_per_work, footprint_charge
from bidbrain.bidding.expected_work import AllocationColumns, eviction_of_any, expected_work, reliable_column
from pricing_data.model.units import HOUR_S, UsdPerHour


@dataclass(frozen=True, slots=True, eq=False)
class FootprintEstimate:
    """Holds C, W and E of footprints, their reliable machines included; arrays (n,)."""

    charge: Floats
    """C: dollars."""
    work: Floats
    """W: core-seconds, at most the work left."""
    cost_per_work: Floats
    """E: dollars per core-second, infinite without work."""
    beta: Floats
    """Probability that anything is evicted."""


def estimate_footprint(
    setting: MarketSetup, transient: AllocationColumns, work_left: Floats, *, changes: bool
) -> FootprintEstimate:
    """Returns charge, work and cost per work of footprints of shape (n, a) with the reliable machines.

    ``changes``: whether getting there changes the current footprint, which costs sigma.
    """
    scaling = setting.scaling
    footprint = transient.join_with(reliable_column(transient, setting.reliable, scaling))
    return FootprintEstimate(
        charge=footprint_charge(footprint),
        work=np.minimum(expected_work(footprint, scaling, changes=changes), work_left),
        cost_per_work=cost_per_work(footprint, scaling, changes=changes, work_left=work_left),
        beta=eviction_of_any(footprint),
    )


def bid_at(price: UsdPerHour, delta: float) -> UsdPerHour:
    """Returns the bid ``delta`` above ``price``, in whole micro-dollars."""
    return UsdPerHour(round(price + delta, 6))


def held_columns(setting: MarketSetup, at: DecisionBatch) -> AllocationColumns:
    """Returns the footprints until their current hours end, (n, a); empty places do no work."""
    now = at.held
    here = np.take_along_axis(at.prices, now.market, axis=1)
    # Hourly billing locks the price at the start of the hour; by the second, the current price is charged.
    billed = np.where(now.on_demand | (setting.rules.quantum_s == HOUR_S), now.price, here)
    return _allocation_columns(setting, at, billed, here, now.left_s)


def renewed_columns(setting: MarketSetup, at: DecisionBatch) -> AllocationColumns:
    """Returns the footprints with each allocation renewed for an hour at the current price; bids stay."""
    here = np.take_along_axis(at.prices, at.held.market, axis=1)
    billed = np.where(at.held.on_demand, at.held.price, here)
    return _allocation_columns(setting, at, billed, here, np.full(here.shape, float(HOUR_S)))


def request_grid(setting: MarketSetup, at: DecisionBatch, counts: Codes, deltas: Floats) -> RequestGrid:
    """Returns a new instance of every market for its first hour, at every bid delta above the current price.

    ``counts`` (n, m or 1, c): instances to request together.
    """
    rules = setting.rules
    left_s = float(HOUR_S if rules.max_lifetime_s is None else min(HOUR_S, rules.max_lifetime_s))
    market = np.arange(len(setting.markets))[None, :, None]
    bids = deltas[None, None, :]
    age_s, horizon_s = np.zeros((1, 1, 1)), np.full((1, 1, 1), left_s)
    survival, uptime = at.survivals.survival_and_uptime(market, bids, age_s, horizon_s)

    def survive_until(until_s: Floats, _: Flags) -> tuple[Floats, Floats]:
        return at.survivals.survival_and_uptime(market, bids, age_s, until_s)

    billed = billed_seconds(rules, age_s, horizon_s, survival, survive_until)
    return RequestGrid(
        cores=setting.cores,
        counts=counts.astype(np.float64),
        left_s=np.full(len(setting.markets), left_s),
        uptime_s=uptime,
        survival=survival,
        charge=at.prices[:, :, None] * billed / HOUR_S,
    )


def bid_deltas(setting: MarketSetup) -> Floats:
    """Returns the bid deltas to try, (d,), dollars per hour above the price."""
    deltas = setting.limits.bid_deltas
    # Where prices do not evict, bids are caps: a lower one saves nothing.
    return np.array(deltas if setting.rules.cleared_by_bid else deltas[-1:])


def delta_of(bid: Floats, price: Floats, cleared_by_bid: bool) -> Floats:
    """Returns dollars per hour by which bids exceed the price; negative only where that means an eviction."""
    # Rounded, because a bid at exactly the price must not come out as evicted by a float's last bit.
    delta = np.round(bid - price, 9)
    return delta if cleared_by_bid else np.maximum(delta, 0.0)


def _allocation_columns(
    setting: MarketSetup, at: DecisionBatch, billed: Floats, here: Floats, left_s: Floats
) -> AllocationColumns:
    now, rules = at.held, setting.rules
    if rules.max_lifetime_s is not None:
        # Only revocable machines have a maximum lifetime.
        left_s = np.where(now.on_demand, left_s, np.minimum(left_s, rules.max_lifetime_s - now.age_s))
    there = now.count > 0
    left_s = np.where(there, np.maximum(left_s, 0.0), 0.0)
    # The defaults are those of on-demand machines and of empty places, which are never evicted.
    survival, uptime, owed = np.ones(left_s.shape), left_s.copy(), left_s.copy()
    rows, places = np.nonzero(there & ~now.on_demand)
    if len(rows):
        found = _spot_outlook(setting, at, here[rows, places], left_s[rows, places], (rows, places))
        survival[rows, places], uptime[rows, places], owed[rows, places] = found
    charge = now.count * (np.where(there, billed, 0.0) * owed / HOUR_S)
    cores = np.where(there, setting.cores[now.market], 0.0)
    return AllocationColumns(now.count.astype(np.float64), cores, left_s, uptime, survival, charge)


def _spot_outlook(
    setting: MarketSetup, at: DecisionBatch, here: Floats, left_s: Floats, where: tuple[Codes, Codes]
) -> tuple[Floats, Floats, Floats]:
    """Returns survival, uptime and billed seconds of the spot allocations at ``where``, each (k,)."""
    rows, places = where
    market, age_s = at.held.market[rows, places], at.held.age_s[rows, places]
    delta = delta_of(at.held.bid[rows, places], here, setting.rules.cleared_by_bid)
    chances = at.survivals.select(rows)
    survival, uptime = chances.survival_and_uptime(market, delta, age_s, left_s)

    def survive_until(until_s: Floats, some: Flags) -> tuple[Floats, Floats]:
        answers = np.zeros((2, len(until_s)))
        of_some = at.survivals.select(rows[some])
        answers[:, some] = of_some.survival_and_uptime(market[some], delta[some], age_s[some], until_s[some])
        return answers[0], answers[1]

    return survival, uptime, billed_seconds(setting.rules, age_s, left_s, survival, survive_until)
