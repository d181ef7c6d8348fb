"""An application that computes next to nothing: its clocks are as long as moving its rows takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from agileml.api import Arrays, Columns, Kind, Outcome, Survey
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch

if TYPE_CHECKING:
    from agileml.data.tables import Table  # which brings DuckDB along

COLUMNS = 64


@dataclass(frozen=True, slots=True)
class Echo:
    """Every shard has ``kib`` of the model for itself and adds what it read; the input numbers the shards.

    ``untouched_kib``: the rest of the model, which no clock touches.
    """

    metric: ClassVar[str] = "nothing"
    columns: ClassVar[Columns] = Columns({"x": Kind.NUMBER})

    kib: int
    untouched_kib: int = 0

    @property
    def height(self) -> int:
        """Rows of a shard."""
        return self.kib * 1024 // (4 * COLUMNS)

    def survey(self, table: Table, shards: int) -> Survey:
        shape = Shape(shards * self.height + self.untouched_kib * 1024 // (4 * COLUMNS), COLUMNS)
        return Survey(shape, {}, {}, key="x", splits=np.arange(shards - 1, dtype=np.float64))

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        return {"first": rows["x"][:1].astype(np.int64) * self.height}

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        return np.zeros((len(rows), COLUMNS), np.float32)

    def rows(self, shard: Arrays) -> Rows:
        return np.arange(shard["first"][0], shard["first"][0] + self.height)

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        return Outcome(Patch(self.rows(shard), values), 0.0, 1.0)

    def objective(self, total: float, count: float) -> float:
        return total / count
