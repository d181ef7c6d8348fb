"""Holds one clock of some shards while a worker reads, computes and pushes it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.commands import Route
from agileml.protocol.messages import Patch, ReadDone, ShardDelta
from agileml.worker.read_plan import ReadPlan, ReadPlanner

Content: TypeAlias = Rows | list[ShardDelta]
"""What is read of a partition, or added to it."""


@dataclass(slots=True)
class PendingPart:
    """A part under way, and where it went last; ``request`` 0: nowhere, or it was refused there.

    ``recent``: asked, or asked after, since the shell last said that time has passed; ``again``: to be asked
    again when what is pushed is acknowledged.
    """

    content: Content
    route: Route | None = None
    request: int = 0
    recent: bool = True
    again: bool = False


@dataclass(slots=True)
class Task:
    """One clock of the ``shards`` that are due: it is read, computed, and pushed.

    ``asked``: the parts under way, by partition; ``snapshot``: the values read, of all rows of the plan,
    shape (rows, columns).
    """

    number: int
    clock: int
    shards: tuple[int, ...]
    plan: ReadPlan
    columns: int
    snapshot: Matrix | None = None
    deltas: dict[int, Patch] = field(default_factory=dict)
    asked: dict[int, PendingPart] = field(default_factory=dict)
    pushing: bool = False

    def __post_init__(self) -> None:
        self.asked = {share.partition: PendingPart(share.local) for share in self.plan.shares.values()}

    @property
    def is_reading(self) -> bool:
        return not self.pushing and bool(self.asked)

    @property
    def uncomputed_shards(self) -> list[int]:
        return [shard for shard in self.shards if shard not in self.deltas]

    def store_rows(self, answer: ReadDone) -> None:
        """Stores rows that were read. Where one partition has them all, its answer is the snapshot."""
        if len(self.plan.shares) == 1:
            self.snapshot = answer.values
            return
        if self.snapshot is None:
            self.snapshot = np.empty((len(self.plan.rows), self.columns), np.float32)
        self.snapshot[self.plan.shares[answer.partition].places] = answer.values

    def shard_values(self, shard: int) -> Matrix:
        """Returns the values of a shard's rows, which are read only."""
        if self.snapshot is None:  # there is nothing to read
            return np.empty((0, self.columns), np.float32)
        values: Matrix = self.snapshot[self.plan.places[shard]]
        # Other shards of the clock may share these rows, and a server the whole array.
        values.flags.writeable = False
        return values

    def start_push(self, planner: ReadPlanner) -> None:
        """Splits the deltas by partition, to be pushed. The snapshot is not needed any more, while the next
        task's may come.
        """
        self.pushing, self.snapshot = True, None
        parts: dict[int, list[ShardDelta]] = defaultdict(list)
        for shard in self.shards:
            for partition, patch in enumerate(planner.split_delta(shard, self.deltas[shard])):
                parts[partition].append(ShardDelta(shard, patch))
        self.asked = {partition: PendingPart(deltas) for partition, deltas in parts.items()}
