"""Computes how certain a beta is: the interval around a share of starts that were evicted.

    p     share of the starts that are evicted, weighted by time
    n     effective number of independent starts
    N     windows that fit into the starts without overlapping: closer starts see the same prices
    x_d   share of the starts of day d that are evicted

Prices that jump, jump for hours: evicted starts come in clusters, and N overstates what is known. Days are
taken as independent of each other instead, so that n is what makes the binomial variance of p equal to the
observed variance of its daily parts:

    n = p (1 - p) / var(mean of x_d),  at least 1, at most N

Where nothing or everything was evicted there is no variance to see, and n is the number of days.

That interval is the past share's. What the coming week will be like is another question: auction markets
behave differently from month to month, and a machine is bought for the days to come. Its interval is a
prediction, from how much the share of one week strays from another's:

    y_w         arcsin sqrt of the share of week w, w = 1 .. m: its spread is much the same at any share
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
"""Weeks differ by at least this much, in the scale of y."""
_LEAST_WEEKS: Final = 2


@dataclass(frozen=True, slots=True)
class EvictedShare:
    """Holds a share in [0, 1] and its 95 % interval."""

    value: float
    low: float
    high: float
    effective: float
    """n: how many independent starts the interval assumes the history to hold."""


def evicted_share(steps: PriceSteps, delta: float, horizon_s: float, watched_s: float) -> EvictedShare:
    """Returns beta of ``horizon_s`` for bids ``delta`` above the price.

    Averages over the starts watched for ``watched_s``. Without any start the interval is all of [0, 1].
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
    """Returns ``evicted_share`` with the interval that should hold the share of the coming week's starts.

    On recorded auction markets it held the next week's share in 95 of 100 cases, where the interval of the
    past share did in about a third. With less than two whole weeks the past counts as that many starts.
    """
    past = evicted_share(steps, delta, horizon_s, watched_s)
    total = steps.starts_s(watched_s)
    weeks = int(total // _WEEK_S)
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
    """Returns the 97.5 % quantile at that many degrees of freedom, one at least, to 1 %.

    Closed forms at one (Cauchy's law) and two; from three on the expansion around the normal's (Abramowitz
    and Stegun, 26.7.5), which at one would give 9.7 for 12.7.

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
    """Returns Wilson's interval of a share seen in ``count`` trials, which need not be whole.

    >>> [round(end, 3) for end in wilson_interval(0.5, 100)]
    [0.404, 0.596]
    """
    weight = count + Z_95 * Z_95
    middle = (share * count + Z_95 * Z_95 / 2) / weight
    half = Z_95 * math.sqrt(share * (1 - share) * count + Z_95 * Z_95 / 4) / weight
    return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)


def _evicted_until(steps: PriceSteps, delta: float, horizon_s: float, edges: Floats) -> Floats:
    """Returns the measure of the evicted starts before each of ``edges``, which increase.

    Only starts before the last edge count.
    """
    total = float(edges[-1])
    ends = np.minimum(steps.ends_s, total)
    first = np.minimum(np.maximum(steps.begins_s, steps.crossings_s(delta) - horizon_s), ends)
    first = np.maximum(first, np.minimum(steps.begins_s, total))
    knots = np.ravel(np.column_stack([first, ends]))
    measured = np.ravel(np.column_stack([np.zeros(len(ends)), ends - first])).cumsum()
    return np.asarray(np.interp(edges, knots, measured, left=0.0))


def _effective_starts(edges: Floats, evicted: Floats, total: float, value: float, window_s: float) -> float:
    windows, lengths = max(total / window_s, 1.0), np.diff(edges)
    if not 0.0 < value < 1.0:
        return min(float(len(lengths)), windows)
    days = len(lengths)
    if days < 2:
        return 1.0
    # How far each day's evicted measure is from what the overall share would give it.
    strayed = np.diff(evicted) - value * lengths
    variance = float(np.sum(strayed**2)) * days / (days - 1) / total**2
    return min(max(value * (1 - value) / variance, 1.0), windows) if variance > 0 else windows
