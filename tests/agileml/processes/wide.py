"""An application for measuring how much memory cutting takes: shards are as large as their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from agileml.api import Arrays, Columns, Kind, Outcome, Survey
from agileml.data.tables import Table
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch


@dataclass(frozen=True, slots=True)
class Wide:
    """The mean of a column, one step of a tenth of the way a clock; the model is that one number."""

    metric: ClassVar[str] = "mse"
    columns: ClassVar[Columns] = Columns({"x": Kind.NUMBER}, others=Kind.NUMBER)

    def survey(self, table: Table, shards: int) -> Survey:
        return Survey(Shape(1, 1), {}, {"rows": np.array(table.rows)})

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        return {**rows, "all": survey.common["rows"]}

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        return np.zeros((len(rows), 1), np.float32)

    def rows(self, shard: Arrays) -> Rows:
        return np.zeros(1, np.int64)

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        error = shard["x"] - values[0, 0]
        step = np.array([[0.1 * error.sum() / shard["all"]]], np.float32)
        return Outcome(Patch(self.rows(shard), step), float(np.sum(error**2)), float(len(error)))

    def objective(self, total: float, count: float) -> float:
        return total / count
