"""Applications trained in this very process: no machines, only the plain loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agileml.api import Application
from agileml.data.sharding import cut_input
from agileml.data.shards import ShardReader
from agileml.node.arrays import Matrix
from tests.agileml.processes.real_jobs import serial


@dataclass(frozen=True, slots=True)
class Trained:
    data: ShardReader
    model: Matrix
    objectives: list[float]


def train(app: Application, source: object, place: object, shards: int, clocks: int) -> Trained:
    """Cut ``source`` below ``place`` and train; the objective before each clock."""
    cut_input(app, str(source), shards, str(place))
    data = ShardReader(str(place))
    model, objectives = serial(app, data, shards, clocks)
    assert np.isfinite(model).all()
    return Trained(data, model, objectives)
