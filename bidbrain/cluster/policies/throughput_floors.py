"""Merges jobs that were promised speeds of their own.

    f[m]      floor of job m, steps per second
    T[j]      rates of its kind; a type is slow for it where T[j] < f[m], else fast; idle time is slow, T = 0

Jobs of one kind to which the same types are slow are one class: they ask for the mean of their floors, and a
program of kinds and types does not grow with the jobs. Nothing is lost. Whatever a class gets that reaches
the mean f' can be dealt out so that everybody reaches their own floor: with a[j] the class's mean time on
slow types (idle time too) and b[i] on fast ones,

    x[m, i] = b[i] (1 + (f[m] - f') sum(a) / S)      S = sum_i b[i] (T[i] - f')
    x[m, j] = a[j] (1 - (f[m] - f') sum(b) / S)

The means are a and b, everybody's time is all given, and T x[m] - f[m] = (S - D) (1 - (f[m] - f') sum(b) / S)
where D = sum_j a[j] (f' - T[j]) <= S says that the mean is reached. As S >= sum(b) (f[m] - f') for every
member, and as S >= D >= sum(a) (f' - f[m]), nothing is negative. In words: surplus of the fast types pays for
what is missing on the slow ones, and each job takes that exchange as far as its own floor needs it.

Knows nothing of what is maximised; it must be linear in what each type gives to a kind.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices

_EQUAL: Final = 1e-12
"""Part of a rate within which the rate alone reaches a floor."""


def count_slow_types(rates: Floats, floor: Floats, rises: Flags | None = None) -> Indices:
    """Returns how many types, idle time too, are slow for each job, (n,). ``rates`` (n, k), 0: closed.

    For a job whose floor ``rises`` (n,), a type that is just fast enough is already slow.
    """
    more = np.zeros(len(floor), np.bool_) if rises is None else rises
    asked = floor * np.where(more, 1 + _EQUAL, 1 - _EQUAL)
    return np.asarray(((rates > 0) & (rates < asked[:, None])).sum(axis=1) + ((floor > 0) | more))


def exchange_rates(rates: Floats, floor: Floats, time: Floats) -> Floats:
    """Returns how a job's times change per step per second of its own floor, (c, k).

    For classes: ``rates`` (c, k), 0 where closed, ``floor`` (c,) means, ``time`` (c, k) means.
    """
    lags = rates < floor[:, None] * (1 - _EQUAL)
    below = np.where(lags, time, 0.0)
    above = np.where(lags, 0.0, time)
    idle = np.maximum(1.0 - time.sum(axis=1), 0.0)
    surplus = np.einsum("ij,ij->i", above, rates - floor[:, None])
    given = np.where(floor > 0, below.sum(axis=1) + idle, 0.0)[:, None]
    change = above * given - below * above.sum(axis=1, keepdims=True)
    moves = surplus > 1e-12 * np.abs(floor)  # rounding may leave a floor just below 0
    return np.asarray(np.divide(change, surplus[:, None], out=np.zeros(change.shape), where=moves[:, None]))
