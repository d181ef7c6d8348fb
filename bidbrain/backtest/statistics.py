"""Summarises what strategies did from many starting times: means, quantiles, intervals.

    n        number of starts, each one job from beginning to end
    Outcomes one strategy's jobs, a row each
    Summary  mean, 5th, 50th and 95th percentile of one column
    Interval 95 % bootstrap interval of a mean, over blocks of neighbouring starts

Does not know how a job was run: batch arithmetic or the full control core, the rows mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Flags, Floats

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Holds one strategy's outcomes over n starts; every array has shape (n,)."""

    start: Counts
    """Instants, in seconds."""
    cost: Floats
    """Dollars, net of refunds."""
    finish_s: Floats
    """Seconds from the start to the end of the work; infinite where the data ended first."""
    on_demand_s: Floats
    """Machine-seconds, like the next two."""
    spot_s: Floats
    free_s: Floats
    """Refunded; ``on_demand_s`` and ``spot_s`` are paid for."""
    evictions: Counts
    late: Flags
    """Whether it missed its deadline; all false where the job has none."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def free_share(self) -> float:
        """Returns refunded machine-seconds as a share of all, in [0, 1]."""
        used = float(self.on_demand_s.sum() + self.spot_s.sum() + self.free_s.sum())
        return float(self.free_s.sum()) / used if used > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Summarises a sample by its mean, and the values that 5, 50 and 95 % of it do not exceed.

    All are in the sample's unit.
    """

    mean: float
    p5: float
    p50: float
    p95: float

    @classmethod
    def from_values(cls, values: Floats) -> Summary:
        """Summarises at least one value."""
        p5, p50, p95 = (float(q) for q in np.percentile(values, (5, 50, 95)))
        return cls(float(values.mean()), p5, p50, p95)


@dataclass(frozen=True, slots=True)
class Interval:
    """Holds a 95 % interval."""

    low: float
    high: float


def mean_interval(
    values: Floats, starts: Counts, block_s: float, seed: int, resamples: int = 1000
) -> Interval:
    """Returns a bootstrap interval of the mean of ``values``, resampling whole blocks of ``block_s`` seconds.

    Jobs that start within one block see the same market, so single starts are no independent samples;
    ``block_s`` should be at least as long as a job.
    """
    # Blocks without a start are left out: they hold no value to draw.
    _, block = np.unique(starts // max(int(block_s), 1), return_inverse=True)
    sums = np.bincount(block, weights=values)
    sizes = np.bincount(block).astype(np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(sums), size=(resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = (float(q) for q in np.percentile(means, (2.5, 97.5)))
    return Interval(low, high)
