"""Computes expected useful time and expected work of a footprint (Harlap 4.3.1, equations 4.2 and 4.3).

    k        count         instances of an allocation (working ones)
    nu       cores         work per instance and second
    omega    uptime_s      expected time that the allocation still computes
    beta     1 - survival  probability that it is evicted in the time it is held for
    Delta t  useful_time   omega less what changes and evictions cost
    sigma    sigma_s       time lost when the footprint changes
    lambda   lambda_s      time lost when anything is evicted
    phi      efficiency    share of ideal speed
    W        work          core-seconds

The paper says of omega only that it is reduced where an eviction is expected. Here omega is E[min(time to
eviction, time left)]: cutting at the median would make E jump where beta passes one half.

Knows no money, and not where the numbers come from: arrays in, arrays out. The last axis runs over the
allocations of one footprint, any axes before it over footprints that are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.model import ReliableMachines, ScalingModel
from pricing_data.model.units import HOUR_S


@dataclass(frozen=True, slots=True)
class AllocationColumns:
    """Holds footprints as columns, each of shape (..., n): one entry per allocation."""

    count: Floats
    cores: Floats
    left_s: Floats
    """Seconds that each allocation is held for, from now."""
    uptime_s: Floats
    """omega, at most ``left_s``."""
    survival: Floats
    """1 - beta over ``left_s``."""
    charge: Floats
    """Expected dollars, all instances, over ``left_s``."""

    def join_with(self, others: AllocationColumns) -> AllocationColumns:
        """Returns these and ``others`` in one footprint; leading axes broadcast."""
        leading = np.broadcast_shapes(self.count.shape[:-1], others.count.shape[:-1])

        def join_column(name: str) -> Floats:
            parts: tuple[Floats, Floats] = (getattr(self, name), getattr(others, name))
            wide = (
                p if p.shape[:-1] == leading else np.broadcast_to(p, (*leading, p.shape[-1])) for p in parts
            )
            return np.concatenate(tuple(wide), axis=-1)

        return AllocationColumns(*(join_column(column.name) for column in fields(self)))


def reliable_column(
    transient: AllocationColumns, reliable: ReliableMachines, scaling: ScalingModel
) -> AllocationColumns:
    """Returns the reliable machines beside ``transient``, shape (..., 1): never evicted, idle in stage 3.

    Cost and work are counted over the mean time left of the transient cores. So a dollar spent on them is
    spread over as many cores in the middle of an hour as at its start. The paper gives no hour for them; for
    a footprint at the start of its hour (its example), and for an empty one, this is an hour.
    """
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
    """Returns the mean time left over the cores, in seconds, shape (...); an hour where there are none."""
    cores = transient.count * transient.cores
    total = cores.sum(axis=-1)
    # The divisor 1 only avoids a warning; empty footprints get the hour below.
    left: Floats = (cores * transient.left_s).sum(axis=-1) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, left, HOUR_S)


def eviction_of_any(footprint: AllocationColumns) -> Floats:
    """Returns 1 - prod_j (1 - beta_j), shape (...).

    The probability that any allocation is evicted (in 4.2).
    """
    evicted: Floats = 1.0 - footprint.survival.prod(axis=-1)
    return evicted


def useful_time(footprint: AllocationColumns, scaling: ScalingModel, *, changes: bool) -> Floats:
    """Returns Delta t in seconds, shape (..., n) (equation 4.2).

        Delta t_i = omega_i - (1 - prod_j (1 - beta_j)) lambda - sigma

    Sigma is subtracted only where the footprint ``changes``. Never below zero: an allocation about to end can
    lose no more time than it has.
    """
    lost: Floats = eviction_of_any(footprint)[..., None] * scaling.lambda_s
    if changes:
        lost = lost + scaling.sigma_s
    return np.maximum(footprint.uptime_s - lost, 0.0)


def expected_work(footprint: AllocationColumns, scaling: ScalingModel, *, changes: bool) -> Floats:
    """Returns W in core-seconds, shape (...) (equation 4.3): W = phi sum_i k_i Delta t_i nu_i.

    phi is read from the scaling curve at the footprint's working instances.
    """
    ideal = footprint.count * footprint.cores * useful_time(footprint, scaling, changes=changes)
    instances = footprint.count.sum(axis=-1)
    work: Floats = ideal.sum(axis=-1) * scaling.batch_efficiency(instances)
    return work
