"""A training application that shows every mistake: integers in floats, deltas that depend on what was read.

Sums of small integers are exact in float32, so models are compared with tolerance 0. With s = 0 a delta
depends on the values read, so reading the wrong version is visible in the model. With s > 0 what is read
depends on timing, and deltas depend on the shard and the clock alone: then a delta that is lost or applied
twice is visible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch


@dataclass(frozen=True, slots=True)
class Toy:
    shape: Shape
    shards: int
    looks_at_values: bool

    def initial(self, rows: Rows) -> Matrix:
        """Shape (len(rows), columns)."""
        return ((rows[:, None] * 5 + np.arange(self.shape.columns)) % 7).astype(np.float32)

    def rows(self, shard: int) -> Rows:
        """A few rows, some of them shared with other shards."""
        return np.unique(np.array([shard, 2 * shard + 1, 3 * shard + 2, 0]) % self.shape.rows)

    def delta(self, shard: int, clock: int, values: Matrix) -> Patch:
        seen = values if self.looks_at_values else np.zeros_like(values)
        return Patch(self.rows(shard), (seen * 3 + shard * 7 + clock * 5) % 11 - 5)

    def model(self, clocks: int) -> Matrix:
        """Returns what training without any cluster comes to."""
        values = self.initial(np.arange(self.shape.rows))
        for clock in range(1, clocks + 1):
            before = values.copy()
            for shard in range(self.shards):
                patch = self.delta(shard, clock, before[self.rows(shard)])
                values[patch.rows] += patch.values
        return values
