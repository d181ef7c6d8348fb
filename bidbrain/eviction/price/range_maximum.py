"""Builds sparse tables of maxima, and finds where a series first exceeds a level from many places at once.

    M_k[i]    the highest of the 2**k values from i on

Tables follow Bender and Farach-Colton (LATIN 2000). A search leaps 2**k places at a time while nothing in
between is higher, for k falling to 0. Knows no prices and no times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bidbrain.arrays import Floats, Indices


def sparse_table(values: Floats, longest: int) -> list[Floats]:
    """Returns M_0, M_1 ... for windows of up to ``longest`` values, each (n,); windows are cut at the end."""
    levels = [values]
    widen_table(levels, longest)
    return levels


def widen_table(levels: list[Floats], longest: int) -> None:
    """Adds to a sparse table the levels that windows of up to ``longest`` values need."""
    width = 1 << (len(levels) - 1)
    while width < longest:
        wider = levels[-1].copy()
        # The last ``width`` entries keep the shorter window, which the end of the series cuts anyway.
        np.maximum(wider[:-width], levels[-1][width:], out=wider[:-width])
        levels.append(wider)
        width *= 2


def first_above(table: Sequence[Floats], ahead: Indices, levels: Floats, powers: int) -> Indices:
    """Returns the first place from ``ahead`` (k,) on with a value above ``levels`` (k,); the last if none.

    Exact for places less than 2**``powers`` ahead. Beyond that it returns some place at least as far.
    """
    last = len(table[0]) - 1
    # From the largest leap down: each is taken only if it passes nothing above the level.
    for power in reversed(range(powers)):
        leap = np.minimum(ahead + (1 << power), last)
        ahead = np.where(table[power][ahead] <= levels, leap, ahead)
    return ahead
