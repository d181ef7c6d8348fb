"""How sure a beta is: the interval around a share of starts that were evicted.

    p     share of the starts that are evicted, weighted by time
    n     effective number of independent starts
    N     windows that fit into the starts without overlapping: closer starts see the same prices
    x_d   share of the starts of day d that are evicted

Prices that jump, jump for hours: evicted starts come in clusters, and N overstates what is known. Days are
taken as independent of each other instead, so that n is what makes the binomial variance of p equal to the
observed variance of its daily parts:

    n = p (1 - p) / var(mean of x_d),  at least 1, at most N

Where nothing or everything was evicted there is no variance to see, and n is the number of days. Refuses
to know markets and money.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.eviction.first_passage import Floats, Steps

_Z: Final = 1.959964
"""Two-sided 95 %."""
_DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Share:
    """A share in [0, 1] and its 95 % interval."""

    value: float
    low: float
    high: float
    effective: float
    """n: how many independent starts the interval takes the history for."""


def evicted_share(steps: Steps, delta: float, horizon_s: float, watched_s: float) -> Share:
    """Beta of ``horizon_s`` for bids ``delta`` above the price, over the starts watched for ``watched_s``.

    Without any start the interval is all of [0, 1].
    """
    total = steps.starts_s(watched_s)
    if total <= 0:
        return Share(1.0, 0.0, 1.0, 0.0)
    edges, evicted = _evicted_until(steps, delta, horizon_s, total)
    value = min(float(evicted[-1]) / total, 1.0)
    effective = _effective(edges, evicted, total, value, max(watched_s, 1.0))
    low, high = wilson(value, effective)
    return Share(value, low, high, effective)


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's interval of a share seen in ``count`` trials, which need not be whole.

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]
    """
    weight = count + _Z * _Z
    middle = (share * count + _Z * _Z / 2) / weight
    half = _Z * math.sqrt(share * (1 - share) * count + _Z * _Z / 4) / weight
    return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)


def _evicted_until(steps: Steps, delta: float, horizon_s: float, total: float) -> tuple[Floats, Floats]:
    """Measure of the evicted starts before each border of a day, and the borders; the last is ``total``."""
    ends = np.minimum(steps.ends_s, total)
    first = np.minimum(np.maximum(steps.begins_s, steps.crossings_s(delta) - horizon_s), ends)
    first = np.maximum(first, np.minimum(steps.begins_s, total))
    knots = np.ravel(np.column_stack([first, ends]))
    measured = np.ravel(np.column_stack([np.zeros(len(ends)), ends - first])).cumsum()
    edges = np.append(np.arange(0.0, total, _DAY_S), total)
    return edges, np.interp(edges, knots, measured, left=0.0)


def _effective(edges: Floats, evicted: Floats, total: float, value: float, window_s: float) -> float:
    windows, lengths = max(total / window_s, 1.0), np.diff(edges)
    if not 0.0 < value < 1.0:
        return min(float(len(lengths)), windows)
    days = len(lengths)
    if days < 2:
        return 1.0
    strayed = np.diff(evicted) - value * lengths
    variance = float(np.sum(strayed**2)) * days / (days - 1) / total**2
    return min(max(value * (1 - value) / variance, 1.0), windows) if variance > 0 else windows
