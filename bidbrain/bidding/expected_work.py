"""Computes expected useful time and expected work of a footprint (Harlap 4.3.1, equations 4.2 and 4.3).

    k        count         working instances of an allocation
    nu       cores         core-seconds of work per instance and second
    omega    uptime_s      expected seconds that the allocation still computes
    beta     1 - survival  probability that it is evicted in the time it is held for
    Delta t  useful_time   omega less what changes and evictions cost, seconds
    sigma    sigma_s       seconds lost when the footprint changes
    lambda   lambda_s      seconds lost when anything is evicted
    phi      efficiency    share of ideal speed
    W        work          core-seconds

The paper reduces omega where it expects an eviction, and does not say by how much. Here omega is E[min(time
to eviction, time left)]. Cutting at the median would make E jump where beta passes one half.

Knows no money. Arrays in, arrays out: the last axis runs over the allocations of one footprint, any axes
before it over the footprints to compare.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.model import ReliableMachines, ScalingModel
from pricing_data.model.units import HOUR_S


@dataclass(frozen=True, slots=True)
class AllocationColumns:
    """Holds footprints as columns, each of shape (..., n) for n allocations."""

    count: Floats
    cores: Floats
    left_s: Floats
    """Seconds that each allocation is held for, from now."""
    uptime_s: Floats
    """omega, at most ``left_s``."""
    survival: Floats
    """1 - beta over ``left_s``."""
    charge: Floats
    """Expected dollars of all instances over ``left_s``."""

    def join_with(self, others: AllocationColumns) -> AllocationColumns:
        """Returns these and ``others`` in one footprint; leading axes broadcast."""
        leading = np.broadcast_shapes(self.count.shape[:-1], others.count.shape[:-1])

        def join_column(name: str) -> Floats:
            # Broadcasting costs about as much as the join itself, so columns that fit already skip it.
            parts: tuple[Floats, Floats] = (getattr(self, name), getattr(others, name))
            wide = (
                p if p.shape[:-1] == leading else np.broadcast_to(p, (*leading, p.shape[-1])) for p in parts
            )
            return np.concatenate(tuple(wide), axis=-1)

        return AllocationColumns(*(join_column(column.name) for column in fields(self)))


def reliable_column(
    transient: AllocationColumns, reliable: ReliableMachines, scaling: ScalingModel
) -> AllocationColumns:
    """Returns the column of the reliable machines beside ``transient``, shape (..., 1).

    They are never evicted, and idle in stage 3.
    """
    # The paper gives no time over which to count their cost. Over the mean time left of the transient cores,
    # their share of E is the same in the middle of an hour as at its start, where it is the paper's hour.
    window = mean_time_left(transient)[..., None]
    works = scaling.reliable_work(transient.count.sum(axis=-1, keepdims=True), reliable.count)
    count = np.full_like(window, reliable.count)
    return AllocationColumns(
        count=np.where(works, count, 0.0),
        cores=np.full_like(window, reliable.cores),
        left_s=window,
        uptime_s=window,
        survival=np.ones_like(window),
        charge=count * reliable.price * window / HOUR_S,
    )


def mean_time_left(transient: AllocationColumns) -> Floats:
    """Returns the mean seconds left over all cores, shape (...); an hour where there are none."""
    cores = transient.count * transient.cores
    total = cores.sum(axis=-1)
    # The divisor 1 only avoids a warning; empty footprints get the hour below.
    left: Floats = (cores * transient.left_s).sum(axis=-1) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, left, HOUR_S)


def eviction_of_any(footprint: AllocationColumns) -> Floats:
    """Returns P(any allocation is evicted), shape (...): 1 - prod_j (1 - beta_j) (in equation 4.2)."""
    evicted: Floats = 1.0 - footprint.survival.prod(axis=-1)
    return evicted


def useful_time(footprint: AllocationColumns, scaling: ScalingModel, *, changes: bool) -> Floats:
    """Returns Delta t in seconds, shape (..., n) (equation 4.2).

        Delta t_i = omega_i - (1 - prod_j (1 - beta_j)) lambda - sigma

    Sigma is subtracted only where the footprint ``changes``.
    """
    lost: Floats = eviction_of_any(footprint)[..., None] * scaling.lambda_s
    if changes:
        lost = lost + scaling.sigma_s
    # An allocation about to end can lose no more time than it has.
    return np.maximum(footprint.uptime_s - lost, 0.0)


def expected_work(footprint: AllocationColumns, scaling: ScalingModel, *, changes: bool) -> Floats:
    """Returns W in core-seconds, shape (...) (equation 4.3): W = phi sum_i k_i Delta t_i nu_i.

    phi is read from the scaling curve at the number of working instances.
    """
    ideal = footprint.count * footprint.cores * useful_time(footprint, scaling, changes=changes)
    instances = footprint.count.sum(axis=-1)
    work: Floats = ideal.sum(axis=-1) * scaling.batch_efficiency(instances)
    return work
