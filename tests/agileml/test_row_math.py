"""Sums of deltas, whichever way they are taken."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.protocol.messages import Patch
from agileml.row_math import add_in_order

EXTENT = 12
numbers = st.floats(-8, 8, width=32)


@st.composite
def deltas(draw: st.DrawFn) -> list[Patch]:
    """Neighbouring runs, or any rows."""
    if draw(st.booleans()):
        cuts = sorted(draw(st.sets(st.integers(0, EXTENT), min_size=2, max_size=5)))
        rows = [list(range(first, end)) for first, end in pairwise(cuts)]
        rows = draw(st.permutations(rows))
    else:
        some = st.lists(st.integers(0, EXTENT - 1), unique=True, max_size=EXTENT).map(sorted)
        rows = draw(st.lists(some, min_size=1, max_size=4))
    return [
        Patch(
            np.array(of, np.int64),
            np.array(draw(st.lists(numbers, min_size=len(of), max_size=len(of))), np.float32).reshape(-1, 1),
        )
        for of in rows
    ]


@given(deltas(), st.lists(numbers, min_size=EXTENT, max_size=EXTENT))
@settings(max_examples=150, deadline=None)
def test_what_is_added_is_the_plain_sum_to_the_last_bit(parts: list[Patch], content: list[float]) -> None:
    values = np.array(content, np.float32).reshape(-1, 1) + np.float32(0)
    kept = [values.copy(), *(part.values.copy() for part in parts)]
    after = add_in_order(values, parts)
    total = np.zeros_like(values)
    for part in parts:
        total[part.rows] += part.values
    touched = np.unique(np.concatenate([part.rows for part in parts]))
    assert after.rows.tolist() == touched.tolist()
    assert after.values.tobytes() == (values + total)[touched].tobytes()
    assert [values.tobytes(), *(part.values.tobytes() for part in parts)] == [a.tobytes() for a in kept]
