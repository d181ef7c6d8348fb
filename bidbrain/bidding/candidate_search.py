"""Which request makes work cheapest (Harlap 4.3.2), for n decision points at once.

The measure is E, the expected dollars per expected core-second of the whole footprint: a request is made
only if work gets cheaper with it, and an allocation is renewed only if work gets dearer without it. Reasons
for people are ``decide.py``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.candidate_scores import Weights, weigh
from bidbrain.bidding.decision_batch import Codes, Held, Moments, Setting
from bidbrain.bidding.expected_work import Allocations
from bidbrain.bidding.footprint import Reckoned, bid_deltas, held, reckon, renewed, requestable


@dataclass(frozen=True, slots=True, eq=False)
class Weighing:
    """All requests at n decision points, weighed; arrays (n, m, c, d) but where said."""

    now: Reckoned
    """The footprints as they stand, (n,)."""
    counts: Codes
    """(n, m or 1, c)."""
    deltas: Floats
    """(d,)."""
    beta: Floats
    """(n or 1, m, d): of one allocation within its first hour."""
    allowed: Flags
    """(n, m, c): whether the market is open and known, and there is room."""
    weights: Weights
    """E is infinite where a request is not allowed."""

    def best(self) -> tuple[Codes, Codes, Codes, Flags]:
        """Market, count and delta, as positions, and whether work gets cheaper with it; each (n,).

        Ties go to the first by (market, count, delta).
        """
        ratio = self.weights.cost_per_work
        flat = ratio.reshape(len(ratio), -1)
        where = flat.argmin(axis=1)
        market, count, delta = np.unravel_index(where, ratio.shape[1:])
        better = np.take_along_axis(flat, where[:, None], axis=1)[:, 0] < self.now.cost_per_work
        return market, count, delta, better


def room(setting: Setting, held_now: Held) -> Codes:
    """(n, m): how many more instances of each market may be asked for together; none where below 1."""
    limits = setting.limits
    instances = np.minimum(limits.max_per_allocation, limits.max_instances - held_now.live)
    if np.isinf(limits.max_cores):
        return np.broadcast_to(instances[:, None], (len(instances), len(setting.markets)))
    left = limits.max_cores - (held_now.count * setting.cores[held_now.market]).sum(axis=1)
    most: Codes = np.minimum(instances[:, None], (left[:, None] / setting.cores).astype(np.int64))
    return most


def weigh_requests(setting: Setting, at: Moments, counts: Codes) -> Weighing:
    """Weigh every market, count and bid delta; ``counts`` (m or 1, c), cut where there is less room."""
    rooms = room(setting, at.held)[:, :, None]
    if len(counts) == 1 and np.isinf(setting.limits.max_cores):
        rooms = rooms[:, :1]
    counted = np.minimum(counts, np.maximum(rooms, 1))
    footprint = held(setting, at)
    deltas = bid_deltas(setting)
    grid = requestable(setting, at, counted, deltas)
    weights = weigh(footprint, grid, setting.reliable, setting.scaling, at.work_left)
    tradable = at.open & np.isfinite(at.prices) & at.chances.known()
    allowed = tradable[:, :, None] & np.broadcast_to(rooms >= 1, counted.shape)
    weights.cost_per_work[~allowed] = np.inf
    now = reckon(setting, footprint, at.work_left, changes=False)
    return Weighing(now, counted, deltas, 1.0 - grid.survival, allowed, weights)


@dataclass(frozen=True, slots=True, eq=False)
class Renewals:
    """What one more hour of an allocation would mean at n decision points."""

    now: Reckoned
    with_it: Reckoned
    without: Reckoned
    beta: Floats
    """(n,): of the allocation, within that hour."""

    @property
    def renew(self) -> Flags:
        """(n,): whether E with it is below E without it."""
        worth: Flags = self.with_it.cost_per_work < self.without.cost_per_work
        return worth


def weigh_renewals(setting: Setting, at: Moments, place: Codes) -> Renewals:
    """Weigh one more hour, at the price of now, of the allocations at ``place`` (n,).

    Giving one up changes the footprint and costs sigma.
    """
    footprint, again = held(setting, at), renewed(setting, at)
    chosen = np.arange(at.held.count.shape[1]) == place[:, None]
    kept = _where(chosen, again, footprint)
    gone = replace(
        footprint,
        count=np.where(chosen, 0.0, footprint.count),
        survival=np.where(chosen, 1.0, footprint.survival),
        charge=np.where(chosen, 0.0, footprint.charge),
    )
    return Renewals(
        now=reckon(setting, footprint, at.work_left, changes=False),
        with_it=reckon(setting, kept, at.work_left, changes=False),
        without=reckon(setting, gone, at.work_left, changes=True),
        beta=1.0 - np.take_along_axis(again.survival, place[:, None], axis=1)[:, 0],
    )


def _where(chosen: Flags, there: Allocations, elsewhere: Allocations) -> Allocations:
    return Allocations(
        count=np.where(chosen, there.count, elsewhere.count),
        cores=np.where(chosen, there.cores, elsewhere.cores),
        left_s=np.where(chosen, there.left_s, elsewhere.left_s),
        uptime_s=np.where(chosen, there.uptime_s, elsewhere.uptime_s),
        survival=np.where(chosen, there.survival, elsewhere.survival),
        charge=np.where(chosen, there.charge, elsewhere.charge),
    )
