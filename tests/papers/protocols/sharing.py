"""The published throughputs, and traces of jobs drawn as for the dissertation (Narayanan 5.7.1)."""

from __future__ import annotations

import ast
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.arrays import Floats, Indices
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds
from bidbrain.cluster.simulator import SimulationSetup, Trace
from pricing_data.model.units import HOUR_S

TYPES: Final = ("k80", "p100", "v100")
V100: Final = TYPES.index("v100")
PRICES: Final = np.array([0.135, 0.43, 0.74])
"""Dollars per GPU-hour, preemptible, as in the published code's tests and the reference cases."""
_DAY_S: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Table:
    """Models at a batch size and a scale. ``names`` (kinds,); ``kinds`` with pairs."""

    names: tuple[str, ...]
    kinds: JobKinds

    def of(self, scale: int, *models: str) -> Indices:
        """The kinds of one scale, of these models only if any are named, that a V100 can run."""
        runs = (self.kinds.scale == scale) & (self.kinds.rates[:, V100] > 0)
        named = np.array([not models or name.startswith(models) for name in self.names])
        return np.flatnonzero(runs & named)

    def setting(self, workers: int, *, pairs: bool = False) -> SimulationSetup:
        """Returns a setup with as many workers of each type."""
        kinds = self.kinds if pairs else JobKinds(self.kinds.rates, self.kinds.scale)
        cluster = ClusterCapacity(TYPES, np.full(len(TYPES), float(workers)), PRICES)
        return SimulationSetup(cluster, kinds)


def table(data: Path) -> Table:
    """From ``gavel/simulation_throughputs.json.gz``."""
    with gzip.open(data / "gavel" / "simulation_throughputs.json.gz", "rt", encoding="utf-8") as file:
        told = json.load(file)
    keys = list(told["v100"])
    parsed = [ast.literal_eval(key) for key in keys]
    number = {key: place for place, key in enumerate(keys)}
    scale = np.array([size for _, size in parsed], np.int64)
    rates = np.array([[told[name][key]["null"] for name in TYPES] for key in keys])
    together = np.zeros((len(keys), *rates.shape))
    for j, name in enumerate(TYPES):
        for mine, beside in told[name].items():
            for other, both in beside.items():
                if other != "null" and scale[number[mine]] == scale[number[other]]:
                    together[number[mine], number[other], j] = both[0]
                    together[number[other], number[mine], j] = both[1]
    return Table(tuple(name for name, _ in parsed), JobKinds(rates, scale, together))


def mix(*, multiple: bool) -> tuple[tuple[int, float], ...]:
    """Returns how many workers jobs need, and which part of the jobs needs that many."""
    return ((1, 0.7), (2, 0.125), (4, 0.125), (8, 0.05)) if multiple else ((1, 1.0),)


def draw_jobs(found: Table, count: int, per_hour: float, seed: int, *, multiple: bool) -> Trace:
    """``count`` jobs by the workload of 5.7.1; ``per_hour`` 0: all at the start (a static trace).

    V100 minutes 10^x, x uniform on [1.5, 3] (80 %) or [3, 4]. ``multiple``: 1 worker (70 %), 2 or 4 (25 %, in
    equal parts: the table has no 3), 8 (5 %). Models uniform among those measured at that scale.
    """
    chance = np.random.default_rng(seed)
    sizes, odds = zip(*mix(multiple=multiple), strict=True)
    scale = chance.choice(sizes, p=odds, size=count)
    kind = np.array([chance.choice(found.of(int(size))) for size in scale])
    exponent = np.where(
        chance.random(count) < 0.8, chance.uniform(1.5, 3, count), chance.uniform(3, 4, count)
    )
    return _trace(found, kind, 60 * 10**exponent, _arrivals(chance, count, per_hour), np.full(count, np.inf))


def draw_priced_jobs(found: Table, count: int, per_hour: float, seed: int) -> Trace:
    """ResNet-50 and A3C jobs of 0.5 to 8 days on a V100, with deadlines 1.2 to 10 times as long (5.7.3)."""
    chance = np.random.default_rng(seed)
    models = chance.random(count) < 0.5
    kind = np.where(models, found.of(1, "A3C")[0], chance.choice(found.of(1, "ResNet-50"), size=count))
    lasts = chance.choice([0.5, 1, 2, 4, 8], size=count) * _DAY_S
    slo = lasts * chance.choice([1.2, 2, 10], size=count)
    return _trace(found, kind, lasts, _arrivals(chance, count, per_hour), slo)


def _arrivals(chance: np.random.Generator, count: int, per_hour: float) -> Floats:
    if per_hour == 0:
        return np.zeros(count)
    return np.asarray(np.cumsum(chance.exponential(HOUR_S / per_hour, count)))


def _trace(found: Table, kind: Indices, lasts_s: Floats, arrival_s: Floats, slo_s: Floats) -> Trace:
    steps = lasts_s * found.kinds.rates[kind, V100]
    return Trace(arrival_s, kind, steps, np.ones(len(kind)), slo_s, np.zeros(len(kind), np.int64))
