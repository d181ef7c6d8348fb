"""An application whose clocks take as long as chance has it: known delays instead of computing time."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from agileml.api import Arrays, Outcome
from agileml.apps.mlr import LogisticRegression
from agileml.node.arrays import Matrix


@dataclass(frozen=True, slots=True)
class Jittery(LogisticRegression):
    """``mean_s``: of a shard's clock; ``jitter``: the share of it that is exponential, from ``delays``."""

    mean_s: float = 0.05
    jitter: float = 1.0
    delays: int = 0

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        chance = np.random.default_rng([self.delays, *seed]).exponential()
        time.sleep(self.mean_s * (1 - self.jitter + self.jitter * chance))
        return LogisticRegression.process(self, shard, values, seed)
