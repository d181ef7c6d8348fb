"""Finds the request that makes work cheapest (Harlap 4.3.2), for n decision points at once.

The measure is E, the expected dollars per expected core-second of the whole footprint. A request must lower
E, and an allocation is renewed only if E is higher without it. ``decide.py`` puts the reasons into words.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.candidate_scores import CandidateScores, score_candidates
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup
from bidbrain.bidding.expected_work import AllocationColumns
from bidbrain.bidding.footprint import (
    FootprintEstimate,
    bid_deltas,
    estimate_footprint,
    held_columns,
    renewed_columns,
    request_grid,
)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCandidates:
    """Holds the scores of all requests at n decision points; arrays (n, m, c, d) unless stated."""

    now: FootprintEstimate
    """The footprints as they stand, (n,)."""
    counts: Codes
    """(n, m or 1, c)."""
    deltas: Floats
    """(d,)."""
    beta: Floats
    """(n or 1, m, d): the eviction probability of one allocation within its first hour."""
    allowed: Flags
    """(n, m, c): whether the market is open and known, and there is room."""
    scores: CandidateScores
    """E is infinite where a request is not allowed."""

    def best_candidates(self) -> tuple[Codes, Codes, Codes, Flags]:
        """Returns positions of the best market, count and delta, and whether they lower E; each (n,).

        Ties go to the first by (market, count, delta).
        """
        ratio = self.scores.cost_per_work
        flat = ratio.reshape(len(ratio), -1)
        # argmin returns the first of equals, which is the promised order by market, count and delta.
        where = flat.argmin(axis=1)
        market, count, delta = np.unravel_index(where, ratio.shape[1:])
        better = np.take_along_axis(flat, where[:, None], axis=1)[:, 0] < self.now.cost_per_work
        return market, count, delta, better


def request_room(setting: MarketSetup, held_now: FootprintBatch) -> Codes:
    """Returns, (n, m), how many more instances of each market one request may add; below 1, none."""
    limits = setting.limits
    instances = np.minimum(limits.max_per_allocation, limits.max_instances - held_now.live_count)
    if np.isinf(limits.max_cores):
        return np.broadcast_to(instances[:, None], (len(instances), len(setting.markets)))
    left = limits.max_cores - (held_now.count * setting.cores[held_now.market]).sum(axis=1)
    most: Codes = np.minimum(instances[:, None], (left[:, None] / setting.cores).astype(np.int64))
    return most


def score_requests(setting: MarketSetup, at: DecisionBatch, counts: Codes) -> ScoredCandidates:
    """Scores every market, count and bid delta; ``counts``, (m or 1, c), are cut down to the room left."""
    rooms = request_room(setting, at.held)[:, :, None]
    # With one list of counts and no limit on cores all markets have the same room, so one column will do.
    if len(counts) == 1 and np.isinf(setting.limits.max_cores):
        rooms = rooms[:, :1]
    # Counts beyond the room repeat the largest one that fits, so the array stays rectangular.
    counted = np.minimum(counts, np.maximum(rooms, 1))
    footprint = held_columns(setting, at)
    deltas = bid_deltas(setting)
    grid = request_grid(setting, at, counted, deltas)
    scores = score_candidates(footprint, grid, setting.reliable, setting.scaling, at.work_left)
    tradable = at.open & np.isfinite(at.prices) & at.survivals.known_markets()
    allowed = tradable[:, :, None] & np.broadcast_to(rooms >= 1, counted.shape)
    # Setting E to infinity excludes a request from every later comparison without a mask.
    scores.cost_per_work[~allowed] = np.inf
    now = estimate_footprint(setting, footprint, at.work_left, changes=False)
    return ScoredCandidates(now, counted, deltas, 1.0 - grid.survival, allowed, scores)


@dataclass(frozen=True, slots=True, eq=False)
class Renewals:
    """Compares footprints with and without one more hour of an allocation, at n decision points."""

    now: FootprintEstimate
    with_it: FootprintEstimate
    without: FootprintEstimate
    beta: Floats
    """(n,): the eviction probability of the allocation within that hour."""

    @property
    def should_renew(self) -> Flags:
        """Returns, (n,), whether E with the allocation is below E without it."""
        worth: Flags = self.with_it.cost_per_work < self.without.cost_per_work
        return worth


def score_renewals(setting: MarketSetup, at: DecisionBatch, place: Codes) -> Renewals:
    """Scores one more hour, at the current price, of the allocations at ``place`` (n,)."""
    footprint, again = held_columns(setting, at), renewed_columns(setting, at)
    chosen = np.arange(at.held.count.shape[1]) == place[:, None]
    kept = _choose_columns(chosen, again, footprint)
    # Survival 1 and charge 0 take the allocation out of the products and sums; its column stays.
    gone = replace(
        footprint,
        count=np.where(chosen, 0.0, footprint.count),
        survival=np.where(chosen, 1.0, footprint.survival),
        charge=np.where(chosen, 0.0, footprint.charge),
    )
    return Renewals(
        now=estimate_footprint(setting, footprint, at.work_left, changes=False),
        with_it=estimate_footprint(setting, kept, at.work_left, changes=False),
        # Giving an allocation up changes the footprint, which costs sigma; renewing it does not.
        without=estimate_footprint(setting, gone, at.work_left, changes=True),
        beta=1.0 - np.take_along_axis(again.survival, place[:, None], axis=1)[:, 0],
    )


def _choose_columns(
    chosen: Flags, there: AllocationColumns, elsewhere: AllocationColumns
) -> AllocationColumns:
    """Returns the columns of ``there`` where ``chosen`` (n, a), else those of ``elsewhere``."""
    return AllocationColumns(
        *(np.where(chosen, getattr(there, f.name), getattr(elsewhere, f.name)) for f in fields(there))
    )
