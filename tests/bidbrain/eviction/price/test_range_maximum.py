"""Sparse tables against looking at every place in turn."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.eviction.price.range_maximum import first_above, sparse_table

SERIES = st.lists(st.integers(0, 9), min_size=1, max_size=40)


@given(SERIES, st.integers(1, 40))
def test_every_entry_is_the_highest_of_its_window(series: list[int], longest: int) -> None:
    longest = min(longest, len(series))
    table = sparse_table(np.array(series, np.float64), longest)
    assert 2 ** (len(table) - 1) >= longest
    for power, level in enumerate(table):
        windows = [max(series[begin : begin + 2**power]) for begin in range(len(series))]
        assert level.tolist() == windows


@given(SERIES, st.integers(0, 39), st.integers(-1, 9), st.integers(0, 7))
def test_the_first_place_above_is_found_as_far_as_the_leaps_go(
    series: list[int], begin: int, level: int, powers: int
) -> None:
    """The last place of all is the end of the series, which nothing is above."""
    begin = min(begin, len(series))
    table = sparse_table(np.append(np.array(series, np.float64), -np.inf), len(series))
    powers = min(powers, len(table))
    found = int(first_above(table, np.array([begin]), np.array([float(level)]), powers)[0])
    above = (place for place in range(begin, len(series)) if series[place] > level)
    truth = next(above, len(series))
    if truth - begin < 2**powers:
        assert found == truth
    else:
        assert begin + 2**powers - 1 <= found <= truth
