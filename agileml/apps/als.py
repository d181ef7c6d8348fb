"""Implements alternating least squares, the trusted solver that matrix factorization is compared with.

It minimizes the objective of ``mf.py`` by exact ridge solves (Zhou et al. 2008, section 3.2): all users given
the items, then all items given the users. Ratings are sorted once, so that rows with equally many ratings lie
side by side: their normal equations are one batched product, and a sweep reads each rating twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

_BLOCK_RATINGS: Final = 1 << 18
"""Ratings whose factors are gathered at once: 32 MB at rank 16. A row with more of them is a block alone."""
_TOLERANCE: Final = 1e-5


def sweep_als(
    user: npt.NDArray[np.generic],
    item: npt.NDArray[np.generic],
    value: npt.NDArray[np.floating],
    rank: int,
    regularization: float,
    tolerance: float = _TOLERANCE,
    seed: int = 0,
) -> Iterator[float]:
    """Gives the root mean square error over the given ratings after each sweep, until they converge.

    Args:
        user, item: ids of any kind, one a rating.
        value: the ratings.
        tolerance: the last sweep is the first one that lowers the objective by no more than this part of
            it. Each sweep lowers it, so there is a last one.
        seed: of the start values.
    """
    user_code, users = _number_ids(user)
    item_code, items = _number_ids(item)
    centred = (value - np.mean(value, dtype=np.float64)).astype(np.float32)
    squares = float(np.sum(np.square(centred, dtype=np.float64)))
    by_user = _Side(user_code, item_code, centred, users)
    by_item = _Side(item_code, user_code, centred, items)
    # The sides hold sorted copies; on large inputs the originals would double the memory.
    del user_code, item_code, centred
    # At random: from zeros the first solve for users would give zeros too, and nothing would ever move.
    factors = np.random.default_rng(seed).normal(size=(items, rank))
    before = np.inf
    while True:
        people, _, user_penalty = by_user.solve_rows(factors, regularization)
        factors, explained, item_penalty = by_item.solve_rows(people, regularization)
        objective = squares - explained + regularization * user_penalty
        error = max(0.0, squares - explained - regularization * item_penalty)
        yield float(np.sqrt(error / len(value)))
        if before - objective <= tolerance * objective:
            return
        before = objective


class _Side:
    """Holds the ratings of all users, or of all items, in the order of how many ratings their row has."""

    def __init__(self, row: Ints, other: Ints, value: npt.NDArray[np.float32], rows: int) -> None:
        counts = np.bincount(row, minlength=rows)
        self._rows = np.argsort(counts, kind="stable")
        self._counts = counts[self._rows]
        place = np.empty(rows, np.int32)
        place[self._rows] = np.arange(rows, dtype=np.int32)
        order = np.argsort(place[row], kind="stable")
        self._other = other[order]
        self._value = value[order]

    def solve_rows(self, factors: Floats, regularization: float) -> tuple[Floats, float, float]:
        """Solves every row's ridge regression on the other side's ``factors``, (rows, rank).

        Returns the solutions x; the sum of x'b over rows, where b is the right side; and the sum of
        n x'x, where n is the row's number of ratings. The squared error is v'v - x'b - regularization n x'x.
        """
        rank = factors.shape[1]
        solved = np.empty((len(self._rows), rank))
        explained = penalty = 0.0
        for rows, ratings, count in self._equal_blocks():
            gathered = factors[self._other[ratings]].reshape(-1, count, rank)
            turned = gathered.transpose(0, 2, 1)
            normal = turned @ gathered + regularization * count * np.eye(rank)
            right = turned @ self._value[ratings].astype(np.float64).reshape(-1, count, 1)
            found = np.linalg.solve(normal, right)
            explained += float(np.sum(found * right))
            penalty += count * float(np.sum(found**2))
            solved[self._rows[rows]] = found[:, :, 0]
        return solved, explained, penalty

    def _equal_blocks(self) -> Iterator[tuple[slice, slice, int]]:
        """Yields places of rows that have equally many ratings, the places of those,
        and how many each has.
        """
        counts, firsts, rows = np.unique(self._counts, return_index=True, return_counts=True)
        rating = 0
        for count, first, many in zip(counts.tolist(), firsts.tolist(), rows.tolist(), strict=True):
            step = max(1, _BLOCK_RATINGS // count)
            for begin in range(0, many, step):
                taken = min(step, many - begin)
                place = slice(first + begin, first + begin + taken)
                yield place, slice(rating, rating + taken * count), count
                rating += taken * count


def _number_ids(ids: npt.NDArray[np.generic]) -> tuple[npt.NDArray[np.int32], int]:
    """Numbers the distinct ids from 0, and counts them. Hashing takes a tenth of sorting's time."""
    codes, distinct = pd.factorize(ids)
    return codes.astype(np.int32), len(distinct)
