"""An application that is all traffic: shards read and update rows, and compute next to nothing.

Deltas are small integers that depend on what was read: sums are exact in float32, and a wrong read shows in
the model. What a clock takes beside its traffic is the job's ``core_seconds_per_clock``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from agileml.api import Arrays, Columns, Kind, Outcome, Survey
from agileml.data.tables import Table
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch


@dataclass(frozen=True, slots=True)
class Spread:
    """A model of ``height`` x ``width`` float32, of which each shard touches ``touched`` rows a clock."""

    height: int
    width: int
    touched: int
    seed: int = 0

    metric: ClassVar[str] = "mean"
    columns: ClassVar[Columns] = Columns({"shard": Kind.INTEGER})

    def survey(self, table: Table, shards: int) -> Survey:
        return Survey(Shape(self.height, self.width), {}, {})

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        """The input says which shard this is, and chance which rows it touches."""
        rng = np.random.default_rng([self.seed, *rows["shard"].tolist()])
        touched = rng.choice(self.height, self.touched, replace=False)
        return {"rows": np.sort(touched).astype(np.int64)}

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        return ((rows[:, None] * 5 + np.arange(shape.columns)) % 7).astype(np.float32)

    def rows(self, shard: Arrays) -> Rows:
        rows: Rows = shard["rows"]
        return rows

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        number, clock = seed
        delta = (values * 3 + number * 7 + clock * 5) % 11 - 5
        return Outcome(Patch(shard["rows"], delta), float(values[:, 0].sum()), float(len(values)))

    def objective(self, total: float, count: float) -> float:
        return total / count


def write_numbered(shards: int, folder: Path) -> Path:
    """The input: a row for each shard."""
    source = folder / "shards.csv"
    source.write_text("shard\n" + "".join(f"{number}\n" for number in range(shards)))
    return source
