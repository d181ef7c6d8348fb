"""Computes the interval of a beta, from the share of starts that were evicted.

    p     share of the starts that are evicted, weighted by time
    n     effective number of independent starts
    N     windows that fit into the starts without overlapping: closer starts see the same prices
    x_d   share of the starts of day d that are evicted

High prices last for hours, so evicted starts come in clusters, and N overstates the evidence. Treating days
as independent, n is the number that makes the binomial variance of p equal to the observed variance of its
daily parts:

    n = p (1 - p) / var(mean of x_d),  at least 1, at most N

Where nothing or everything was evicted, there is no variance to observe, and n is the number of days.

That is the interval of the past share. The share of the coming week varies more: auction markets change from
month to month, and a machine is bought for the days to come. Its prediction interval follows from the spread
among past weeks:

    y_w         arcsin sqrt of the share of week w, w = 1 .. m: the spread of y is similar at any share
    s           standard deviation of the y_w, with a floor: no week is exactly like another
    interval    sin^2(arcsin sqrt p -+ t s sqrt(1 + 1/m)), t Student's 97.5 % quantile at m - 1 degrees

Knows no markets and no money.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.base import Z_95
from bidbrain.eviction.price.first_passage import PriceSteps

_DAY_S: Final = 86400.0
_WEEK_S: Final = 7 * _DAY_S
_STRAYS: Final = 0.02
"""Least spread of weeks, in the scale of y."""
_LEAST_WEEKS: Final = 2


@dataclass(frozen=True, slots=True)
class EvictedShare:
    """Holds a share in [0, 1] and its 95 % interval."""

    value: float
    low: float
    high: float
    effective: float
    """n: the number of independent starts that the interval rests on."""


def evicted_share(steps: PriceSteps, delta: float, horizon_s: float, watched_s: float) -> EvictedShare:
    """Returns beta of ``horizon_s`` seconds for bids ``delta`` $/h above the price, with its interval.

    Averages over the starts watched for ``watched_s`` seconds; without any, the interval is [0, 1].
    """
    total = steps.starts_s(watched_s)
    if total <= 0:
        return EvictedShare(1.0, 0.0, 1.0, 0.0)
    edges = np.append(np.arange(0.0, total, _DAY_S), total)
    evicted = _evicted_until(steps, delta, horizon_s, edges)
    # Rounding may leave a sum slightly above the total.
    value = min(float(evicted[-1]) / total, 1.0)
    effective = _effective_starts(edges, evicted, total, value, max(watched_s, 1.0))
    low, high = wilson_interval(value, effective)
    return EvictedShare(value, low, high, effective)


def predict_coming_week(steps: PriceSteps, delta: float, horizon_s: float, watched_s: float) -> EvictedShare:
    """Returns ``evicted_share`` with a 95 % prediction interval for the coming week's share.

    On recorded auction markets it contained the next week's share in 95 of 100 cases; the interval of the
    past share did in about a third.
    """
    past = evicted_share(steps, delta, horizon_s, watched_s)
    total = steps.starts_s(watched_s)
    weeks = int(total // _WEEK_S)
    # Too few weeks for a spread: the history counts as one independent start per week.
    if weeks < _LEAST_WEEKS:
        low, high = wilson_interval(past.value, min(past.effective, max(total / _WEEK_S, 0.0)))
        return EvictedShare(past.value, low, high, past.effective)
    # Whole weeks counted back from now: the oldest, partial one is left out.
    edges = total - _WEEK_S * np.arange(weeks, -1, -1.0)
    shares = np.diff(_evicted_until(steps, delta, horizon_s, edges)) / _WEEK_S
    strays = float(np.std(_stabilize_variance(shares), ddof=1))
    reach = _student_quantile(weeks - 1) * math.hypot(strays, _STRAYS) * math.sqrt(1 + 1 / weeks)
    middle = float(_stabilize_variance(np.array([past.value]))[0])
    low, high = (math.sin(min(max(end, 0.0), math.pi / 2)) ** 2 for end in (middle - reach, middle + reach))
    return EvictedShare(past.value, min(low, past.value), max(high, past.value), past.effective)


def _stabilize_variance(shares: Floats) -> Floats:
    return np.asarray(np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0))))


def _student_quantile(degrees: int) -> float:
    """Returns Student's 97.5 % quantile at ``degrees`` >= 1 degrees of freedom, to 1 %.

    Uses closed forms at one (Cauchy's law) and two, and from three on an expansion around the normal quantile
    (Abramowitz and Stegun, 26.7.5), which would give 9.7 instead of 12.7 at one.

    >>> [round(_student_quantile(degrees), 2) for degrees in (1, 2, 3, 10, 100)]
    [12.71, 4.3, 3.16, 2.23, 1.98]
    """
    if degrees == 1:
        return math.tan(0.475 * math.pi)
    if degrees == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z, n = Z_95, float(degrees)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def wilson_interval(share: float, count: float) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a share observed in ``count`` trials, which need not be whole.

    >>> [round(end, 3) for end in wilson_interval(0.5, 100)]
    [0.404, 0.596]
    """
    weight = count + Z_95 * Z_95
    middle = (share * count + Z_95 * Z_95 / 2) / weight
    half = Z_95 * math.sqrt(share * (1 - share) * count + Z_95 * Z_95 / 4) / weight
    return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)


def _evicted_until(steps: PriceSteps, delta: float, horizon_s: float, edges: Floats) -> Floats:
    """Returns seconds of evicted starts before each of ``edges``, which increase."""
    total = float(edges[-1])
    ends = np.minimum(steps.ends_s, total)
    first = np.minimum(np.maximum(steps.begins_s, steps.crossings_s(delta) - horizon_s), ends)
    first = np.maximum(first, np.minimum(steps.begins_s, total))
    # The measure is linear between these knots: flat before each step's first evicted start, then rising.
    knots = np.ravel(np.column_stack([first, ends]))
    measured = np.ravel(np.column_stack([np.zeros(len(ends)), ends - first])).cumsum()
    return np.asarray(np.interp(edges, knots, measured, left=0.0))


def _effective_starts(edges: Floats, evicted: Floats, total: float, value: float, window_s: float) -> float:
    """Returns n, given the evicted measure before each day's edge."""
    windows, lengths = max(total / window_s, 1.0), np.diff(edges)
    if not 0.0 < value < 1.0:
        return min(float(len(lengths)), windows)
    days = len(lengths)
    if days < 2:
        return 1.0
    # Days differ in length only at the end, so deviations are measured in seconds, not in shares.
    strayed = np.diff(evicted) - value * lengths
    variance = float(np.sum(strayed**2)) * days / (days - 1) / total**2
    return min(max(value * (1 - value) / variance, 1.0), windows) if variance > 0 else windows
