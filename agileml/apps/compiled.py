"""Compiles the passes of matrix factorization over a shard's ratings with Numba (the extra ``fast``).

Sums are added one by one in the order of the ratings, without fast-math, so that every machine comes to the
same bits. They differ from NumPy's by rounding, which is why a job says which of the two it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba as nb
import numpy as np

from agileml.api import Arrays
from agileml.node.arrays import Matrix

Loop = TypeVar("Loop", bound=Callable[..., Any])

_FACTORS = nb.types.Array(nb.float32, 2, "C", readonly=True)
_VALUES = nb.types.Array(nb.float32, 1, "C", readonly=True)
_INDEX = nb.types.Array(nb.int64, 1, "C", readonly=True)
_OUT = nb.float32[:, ::1]


def _compile_loop(signature: Any) -> Callable[[Loop], Loop]:
    """Compiles ahead of the first call, and keeps the result on disk for the next process."""
    return cast("Callable[[Loop], Loop]", nb.njit(signature, cache=True, nogil=True))


@_compile_loop(nb.float64(_FACTORS, _FACTORS, _INDEX, _INDEX, _VALUES, _OUT))
def add_user_gradients(
    people: Matrix, items: Matrix, ends: Any, item: Any, value: Any, asked: Matrix
) -> float:
    """Adds e q over each user's ratings to ``asked``, (users, rank); returns the sum of e^2.

    ``ends``: where each user's ratings end, in the order of users.
    """
    total = 0.0
    rank = people.shape[1]
    rating = 0
    for user in range(len(ends)):
        while rating < ends[user]:
            other = item[rating]
            error = value[rating]
            for k in range(rank):
                error -= people[user, k] * items[other, k]
            for k in range(rank):
                asked[user, k] += error * items[other, k]
            total += error * error
            rating += 1
    return total


@_compile_loop(nb.void(_FACTORS, _FACTORS, _INDEX, _INDEX, _VALUES, _OUT))
def add_item_gradients(
    people: Matrix, items: Matrix, ends: Any, item: Any, value: Any, asked: Matrix
) -> None:
    """Adds e p over each item's ratings to ``asked``, (items, rank)."""
    rank = people.shape[1]
    rating = 0
    for user in range(len(ends)):
        while rating < ends[user]:
            other = item[rating]
            error = value[rating]
            for k in range(rank):
                error -= people[user, k] * items[other, k]
            for k in range(rank):
                asked[other, k] += error * people[user, k]
            rating += 1


class CompiledPasses:
    """Implements ``mf.Passes`` with compiled loops."""

    def __init__(self, shard: Arrays, items: Matrix) -> None:
        value, item = shard["value"], shard["item"]
        ends = np.append(shard["user_starts"][1:], len(value))
        self._ratings = (np.ascontiguousarray(items), ends, item, value)

    def by_user(self, people: Matrix) -> tuple[Matrix, float]:
        # The compiled signatures take C-ordered arrays alone.
        people = np.ascontiguousarray(people)
        asked = np.zeros_like(people)
        return asked, add_user_gradients(people, *self._ratings, asked)

    def by_item(self, people: Matrix) -> Matrix:
        asked = np.zeros_like(self._ratings[0])
        add_item_gradients(np.ascontiguousarray(people), *self._ratings, asked)
        return asked
