"""At which rate of arrivals a cluster is full, if time could be cut as finely as shares are.

    w[m]     workers that the jobs of kind m keep busy per V100-hour of their work, each on V100s: their scale
    r[m, j]  rate of kind m on type j over its rate on a V100
    x[m, j]  workers of type j that kind m has all the time

Who knows types gives them to whoever makes most of them: the largest rate for which sum_j r[m, j] x[m, j]
covers the work that arrives is a linear program. Who does not spreads every job over all the workers that can
run it.
"""

from __future__ import annotations

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.cluster.solver import LinearProgram, solve
from tests.papers.protocols.sharing import V100, Table, mix

MEAN_H = (0.8 * (1000 - 10**1.5) / 1.5 + 0.2 * 9000) / np.log(10) / 60
"""V100-hours of a job: the mean of 10^x minutes, x uniform on [1.5, 3] (80 %) or [3, 4]."""


def saturation(found: Table, workers: int, *, multiple: bool) -> tuple[float, float]:
    """Jobs per hour at which ``workers`` of each type are full: blind to types, and knowing them."""
    kinds, odds = _kinds(found, multiple)
    rates = found.kinds.rates[kinds] / found.kinds.rates[kinds][:, [V100]]
    needs = odds * found.kinds.scale[kinds] * MEAN_H
    runs = rates > 0
    mean = rates.sum(axis=1) / runs.sum(axis=1)
    blind = workers * rates.shape[1] / float(np.sum(needs / mean))
    return blind, _knowing(rates, needs, float(workers))


def _kinds(found: Table, multiple: bool) -> tuple[np.ndarray, Floats]:
    """Every kind that may be drawn, and how often it is."""
    every = [(found.of(size), part) for size, part in mix(multiple=multiple)]
    return (
        np.concatenate([kinds for kinds, _ in every]),
        np.concatenate([np.full(len(kinds), part / len(kinds)) for kinds, part in every]),
    )


def _knowing(rates: Floats, needs: Floats, workers: float) -> float:
    """The largest rate of arrivals; the variables are x, and that rate at last."""
    count, types = rates.shape
    kind, place = np.divmod(np.arange(count * types), types)
    gain = np.append(np.zeros(count * types), 1.0)
    columns = np.arange(count * types)
    best = solve(
        LinearProgram(
            gain,
            np.zeros(len(gain)),
            np.full(len(gain), np.inf),
            np.concatenate([kind, np.arange(count), count + place]),
            np.concatenate([columns, np.full(count, count * types), columns]),
            np.concatenate([rates.reshape(-1), -needs, np.ones(count * types)]),
            np.append(np.zeros(count), np.full(types, -np.inf)),
            np.append(np.full(count, np.inf), np.full(types, workers)),
        )
    )
    return best.value
