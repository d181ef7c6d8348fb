"""Scores all requests together with the footprint (Harlap 4.3.2): ``expected_work.py``, factored.

    n, m, c, d   decision points, markets, counts, bid deltas
    F, k         the footprint as it stands; the count of the request
    L            time that each allocation loses: (1 - S_F s) lambda + sigma  (n, m, d)
    w            useful core-seconds of one instance requested: nu max(uptime - L, 0)  (n, m, d)
    E            (C_F + C_reliable + k c) / (phi (W_F + W_reliable + k w))  (n, m, c, d)

A request affects the rest of its footprint only through L, the number of instances and the mean time left.
So only the last line is computed at the size of all requests. Knows no prices, bids or rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.bidding.expected_work import AllocationColumns
from bidbrain.model import ReliableMachines, ScalingModel
from pricing_data.model.units import HOUR_S


@dataclass(frozen=True, slots=True, eq=False)
class RequestGrid:
    """Describes one instance of every market at every bid delta, for its first hour.

    Leading axes are n or 1.
    """

    cores: Floats
    """(m,)."""
    counts: Floats
    """(n, m or 1, c): how many instances are requested together."""
    left_s: Floats
    """(m,): an hour, or the maximum lifetime if that is shorter."""
    uptime_s: Floats
    """(n, m, d): omega."""
    survival: Floats
    """(n, m, d): 1 - beta."""
    charge: Floats
    """(n, m, d): expected dollars."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateScores:
    """Holds scores of whole footprints, grown by each request; arrays (n, m, c, d).

    Reliable machines are included.
    """

    charge: Floats
    """C: dollars."""
    work: Floats
    """W: core-seconds, at most the work left."""
    cost_per_work: Floats
    """E: dollars per core-second, infinite without work."""


def score_candidates(
    footprint: AllocationColumns,
    requestable: RequestGrid,
    reliable: ReliableMachines,
    scaling: ScalingModel,
    work_left: Floats,
) -> CandidateScores:
    """Scores every request together with footprints of shape (n, a).

    ``work_left`` (n,), core-seconds, caps the work that counts.
    """
    lost = _lost_s(footprint, requestable, scaling)
    useful = requestable.cores[:, None] * np.maximum(requestable.uptime_s - lost, 0.0)
    counts = requestable.counts[..., None]
    # The held footprint's work does not depend on the count of the request, so it has no axis for it.
    work = _held_work(footprint, lost)[:, :, None, :] + counts * useful[:, :, None, :]
    paid, works = _reliable_tier(footprint, requestable, reliable, scaling)
    # In stage 3 the reliable machines do no work, and this saves the window, an array of full size.
    if works.any():
        window = np.maximum(paid[..., None] - lost[:, :, None, :], 0.0)
        work += reliable.count * reliable.cores * works[..., None] * window
    instances = footprint.count.sum(axis=-1)[:, None, None] + requestable.counts + works * reliable.count
    work *= scaling.batch_efficiency(instances)[..., None]
    if np.isfinite(work_left).any():
        # In place: these are the largest arrays of a decision.
        np.minimum(work, work_left[:, None, None, None], out=work)
    fixed = footprint.charge.sum(axis=-1)[:, None, None] + paid * (reliable.count * reliable.price / HOUR_S)
    charge = fixed[..., None] + counts * requestable.charge[:, :, None, :]
    ratio = np.full(work.shape, np.inf)
    np.divide(charge, work, out=ratio, where=work > 0)
    return CandidateScores(charge, work, ratio)


def _lost_s(footprint: AllocationColumns, requestable: RequestGrid, scaling: ScalingModel) -> Floats:
    """Returns L in seconds, (n, m, d) (the terms of equation 4.2 that all allocations share)."""
    # Sigma always: every request changes the footprint.
    survives = footprint.survival.prod(axis=-1)[:, None, None] * requestable.survival
    lost: Floats = (1.0 - survives) * scaling.lambda_s + scaling.sigma_s
    return lost


def _held_work(footprint: AllocationColumns, lost: Floats) -> Floats:
    """Returns core-seconds that the machines held already do, (n, m, d)."""
    work = np.zeros_like(lost)
    # A loop over the few places keeps arrays at (n, m, d); broadcasting would multiply them by the places.
    for place in range(footprint.count.shape[-1]):
        cores = footprint.count[:, place] * footprint.cores[:, place]
        if cores.any():
            uptime = footprint.uptime_s[:, place]
            # An allocation can lose no more time than it has.
            work += cores[:, None, None] * np.maximum(uptime[:, None, None] - lost, 0.0)
    return work


def _reliable_tier(
    footprint: AllocationColumns, requestable: RequestGrid, reliable: ReliableMachines, scaling: ScalingModel
) -> tuple[Floats, Floats]:
    """Returns the seconds for which reliable machines count, (n, m, c), and whether they work.

    Working is 1 or 0, (n, m or 1, c). ``expected_work.reliable_column`` has the reasons.
    """
    held = footprint.count * footprint.cores
    added = requestable.cores[:, None] * requestable.counts
    left = (held * footprint.left_s).sum(axis=-1)[:, None, None] + added * requestable.left_s[:, None]
    window: Floats = left / (held.sum(axis=-1)[:, None, None] + added)
    transient = footprint.count.sum(axis=-1)[:, None, None] + requestable.counts
    return window, scaling.reliable_work(transient, reliable.count).astype(np.float64)
