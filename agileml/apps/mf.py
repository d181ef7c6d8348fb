"""Implements matrix factorization: a rating is the mean plus the product of a user's and an item's factors.

It minimizes the sum over ratings of (e^2 + regularization * (|p_u|^2 + |q_i|^2)), with e = value - mean -
p_u.q_i, which is the weighted-lambda objective of Zhou et al. (2008, "Large-scale parallel collaborative
filtering", section 3.1). The model's rows are the users' factors P over the items' factors Q. A shard holds
all ratings of a range of users; so a user's row is changed by one shard and an item's by many.

Each clock is gradient descent, preconditioned so that a step neither depends on how many ratings a row
has nor on the scale of the other side: the Hessian of a row is a sum of q q' (or p p') over its n ratings,
taken as n times the mean of all of them, the *spread*. A row's own mean exceeds the spread by a factor of
up to (1 + sqrt(rank / n))^2 (Marchenko and Pastur, 1967), so its steps are that much shorter. Users first
take a few steps, then items take one, which is the sum of what their shards ask for. For the sum to vanish
only where the gradient does, every shard must precondition alike: so the spread of all users' factors is
part of the model (its last ``rank`` rows), kept up to date by each shard in proportion to its ratings.

Ratings are presorted by user and by item when the input is cut. The passes over them are vectorized NumPy,
sums per row by ``np.add.reduceat``; or, with ``compiled``, the loops of ``apps/compiled.py``, which take a
fraction of the time and differ by rounding. So which of them is the job's choice, and never a machine's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from agileml.api import ApplicationError, Arrays, Columns, Counts, Kind, Outcome, Survey
from agileml.apps.tally import Tally
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch

if TYPE_CHECKING:
    from agileml.data.tables import Table

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class MatrixFactorization:
    """Factorizes a matrix of ratings.

    ``step``: in units of the whole preconditioned step, below 2; ``scale``: of the start values.
    ``compiled``: by Numba, which has to be installed wherever the job runs. Raises ApplicationError if not.
    """

    metric: ClassVar[str] = "rmse"
    columns: ClassVar[Columns] = Columns(
        {"user": Kind.KEY, "item": Kind.KEY, "value": Kind.NUMBER},
        aliases={
            "user": ("userId", "uid", "customerId"),
            "item": ("itemId", "movieId", "productId", "bookId", "isbn"),
            "value": ("rating", "score", "stars", "bookRating"),
        },
    )
    reference_name: ClassVar[str] = "ALS"

    rank: int = 8
    regularization: float = 0.02
    step: float = 1.3
    user_steps: int = 3
    scale: float = 0.3
    seed: int = 0
    compiled: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank: found {self.rank}, expected at least 1")
        if self.compiled:
            _compiled_passes()  # now, so that compiling delays no clock

    def survey(self, table: Table, shards: int) -> Survey:
        """Learns the users, the items and the mean. Shards are ranges of users with about equally many
        ratings.
        """
        people, things, total = Tally(), Tally(), 0.0
        for batch in table.batches():
            people.add_keys(batch["user"])
            things.add_keys(batch["item"])
            total += float(batch["value"].sum())
        count = table.rows
        (users, user_ratings), (items, item_ratings) = people.sums_by_key(), things.sums_by_key()
        # Shards of equal ratings, not users: a clock waits for the shard with the most work.
        ends = np.searchsorted(np.cumsum(user_ratings), np.arange(1, shards) * count / shards)
        return Survey(
            Shape(len(users) + len(items) + self.rank, self.rank),
            index={
                "users": table.named("user", users),
                "items": table.named("item", items),
                "mean": np.array(total / count),
            },
            common={"degree": item_ratings, "users": users, "items": items},
            key="user",
            splits=users[ends],
        )

    def largest_model(self, words: int) -> int:
        """Estimates the largest model: a rating takes three numbers, and has a new user and a new item at
        most.
        """
        return (2 * (words // 3) + self.rank) * self.rank

    def clock_core_seconds(self, counts: Counts) -> float:
        """Estimates from measurements on one core, from rank 8 to 64; compiled loops take about half."""
        per_rating_us = 0.2 + 0.01 * self.rank + 0.0006 * self.rank**2
        return counts.rows * per_rating_us * 1e-6 * (0.5 if self.compiled else 1.0)

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        """Returns the ratings less their mean, sorted by user and by item; see ``_cut_shard``."""
        known = survey.common
        user = _Coded.from_ids(rows["user"], known["users"])
        item = _Coded.from_ids(rows["item"], known["items"])
        value = (rows["value"] - survey.index["mean"]).astype(np.float32)
        return _cut_shard(user, item, value, known["degree"], len(known["users"]), self.rank)

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        """Returns values uniform in +-scale by row and column, whatever rows are asked for together."""
        cells = np.add.outer(rows * shape.columns, np.arange(shape.columns)).astype(np.uint64)
        values: Matrix = ((2 * _hash_uniform(cells, self.seed) - 1) * self.scale).astype(np.float32)
        # The spread begins as the identity: no factors are known yet, and zero has no inverse.
        first = shape.rows - self.rank
        values[rows >= first] = np.eye(self.rank, dtype=np.float32)[rows[rows >= first] - first]
        return values

    def rows(self, shard: Arrays) -> Rows:
        """Returns the rows of its users, of the items that they rated, and of the spread, which is sorted
        order.
        """
        return np.concatenate([shard["users"], shard["items"], shard["spread"]])

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        """Moves users ``user_steps`` steps, then items one, each as far as this shard's ratings ask for it.

        ``values``: (users + items + rank, rank), as ``rows`` has them. The total is the sum of e^2 at these
        values, over the shard's ratings, which are the count.
        """
        count = len(shard["value"])
        before, items, spread = np.split(values, [len(shard["users"]), len(values) - self.rank])
        # A shard without ratings still answers: servers count the deltas of all shards.
        if not count:
            return Outcome(Patch(self.rows(shard), np.zeros_like(values)), 0.0, 0.0)
        passes: Passes = (_compiled_passes() if self.compiled else VectorizedPasses)(shard, items)
        asked, total = passes.by_user(before)
        people, item_spread = before, _mean_outer_product(items, shard["item_ratings"], count)
        # The first pass also gave the objective, so its sums are used and not computed again.
        for step in range(self.user_steps):
            if step:
                asked, _ = passes.by_user(people)
            asked -= self.regularization * shard["user_ratings"] * people
            people = people + self._preconditioned_step(asked, item_spread, shard["user_ratings"])
        asked = passes.by_item(people)
        asked -= self.regularization * shard["item_ratings"] * items
        moved = self._preconditioned_step(asked, spread, shard["item_ratings_everywhere"])
        # Shares add up to 1, so the deltas of all shards move the spread to its mean.
        spread_moved = shard["share"] * (_mean_outer_product(people, shard["user_ratings"], count) - spread)
        delta = np.concatenate([people - before, moved, spread_moved])
        return Outcome(Patch(self.rows(shard), delta), total, float(count))

    def objective(self, total: float, count: float) -> float:
        """Returns the root mean square error over the ratings."""
        return math.sqrt(total / count)

    def reference_objectives(self, table: Table) -> Iterator[float]:
        """Yields the trusted solver's RMSE on the same ratings after each of its sweeps."""
        from agileml.apps.als import sweep_als  # imports pandas, which no worker needs

        columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in self.columns.needed}
        for batch in table.batches():
            columns["value"].append(batch["value"].astype(np.float32))
            for name in ("user", "item"):
                columns[name].append(batch[name])
        joined = {name: np.concatenate(columns.pop(name)) for name in tuple(columns)}
        user, item, value = joined.pop("user"), joined.pop("item"), joined.pop("value")
        return sweep_als(user, item, value, self.rank, self.regularization)

    def _preconditioned_step(self, asked: Matrix, spread: Matrix, ratings: Matrix) -> Matrix:
        """Returns the step of every row: ``asked`` is its negative gradient, ``ratings`` (rows, 1) its number
        of ratings.
        """
        hessian = spread + np.float32(self.regularization) * np.eye(self.rank, dtype=np.float32)
        length: Matrix = np.float32(self.step) / (1 + np.sqrt(np.float32(self.rank) / ratings)) ** 2
        moved: Matrix = length * np.linalg.solve(hessian, (asked / ratings).T).T
        return moved


class Passes(Protocol):
    """Passes over the ratings of a shard. For rating i of user u and item j: e = value - p_u.q_j."""

    def __init__(self, shard: Arrays, items: Matrix) -> None: ...

    def by_user(self, people: Matrix) -> tuple[Matrix, float]:
        """Returns the sum of e q_j over each user's ratings, (users, rank); and of e^2 over all."""

    def by_item(self, people: Matrix) -> Matrix:
        """Returns the sum of e p_u over each item's ratings, (items, rank)."""


class VectorizedPasses:
    """Implements ``Passes`` with NumPy."""

    def __init__(self, shard: Arrays, items: Matrix) -> None:
        self._shard = shard
        # Gathered once a clock: items stand still while users take their steps.
        self._rated = items[shard["item"]]

    def by_user(self, people: Matrix) -> tuple[Matrix, float]:
        error = self._residuals(people[self._shard["user"]])
        asked: Matrix = np.add.reduceat(error[:, None] * self._rated, self._shard["user_starts"], axis=0)
        # In double: a float32 sum of millions of squares loses the digits that convergence looks at.
        return asked, float(np.sum(error.astype(np.float64) ** 2))

    def by_item(self, people: Matrix) -> Matrix:
        rating = people[self._shard["user"]]
        terms = (self._residuals(rating)[:, None] * rating)[self._shard["by_item"]]
        asked: Matrix = np.add.reduceat(terms, self._shard["item_starts"], axis=0)
        return asked

    def _residuals(self, rating: Matrix) -> Matrix:
        error: Matrix = self._shard["value"] - np.sum(rating * self._rated, axis=1)
        return error


def _compiled_passes() -> type[Passes]:
    """Returns the compiled passes. Raises ApplicationError where Numba is missing."""
    try:
        from agileml.apps.compiled import CompiledPasses
    except ImportError as error:
        raise ApplicationError(
            f"compiled: true needs Numba ({error}); pip install 'spotctl[fast]' wherever the job runs"
        ) from error
    return CompiledPasses


def _cut_shard(
    user: _Coded, item: _Coded, value: Matrix, degree: Ints, first_item: int, rank: int
) -> dict[str, npt.NDArray[Any]]:
    """Returns the shard's ratings sorted by user, then item, where each user's start, and the same by item.

    ``degree``: how many ratings each item has in all shards.
    """
    # By item first and then, stably, by user: the result is sorted by user and, within each, by item.
    order = _stable_order(item.at)
    order = order[_stable_order(user.at[order])]
    user_at, item_at = user.at[order], item.at[order]
    user_ratings = np.bincount(user_at, minlength=len(user.rows))
    item_ratings = np.bincount(item_at, minlength=len(item.rows))
    return {
        "users": user.rows,
        "items": item.rows + first_item,
        "user": user_at.astype(np.int64),  # the type of indices, which every clock would else convert
        "item": item_at.astype(np.int64),
        "value": value[order],
        "user_starts": np.cumsum(user_ratings) - user_ratings,
        "user_ratings": user_ratings.astype(np.float32)[:, None],
        "by_item": _stable_order(item_at),
        "item_starts": np.cumsum(item_ratings) - item_ratings,
        "item_ratings": item_ratings.astype(np.float32)[:, None],
        "item_ratings_everywhere": degree[item.rows].astype(np.float32)[:, None],
        "spread": first_item + len(degree) + np.arange(rank),
        "share": np.array(len(value) / degree.sum(), np.float32),
    }


@dataclass(frozen=True, slots=True)
class _Coded:
    """A shard's users, or its items.

    ``rows``: their places among all, sorted; ``at``: the place of each rating's among ``rows``, int32.
    """

    rows: Ints
    at: npt.NDArray[np.int32]

    @classmethod
    def from_ids(cls, ids: Ints, known: Ints) -> _Coded:
        """Numbers the ``ids`` of a shard's ratings; ``known``: those of all shards, sorted."""
        from pandas import factorize  # hashing takes a tenth of sorting's time; no worker comes here

        codes, distinct = factorize(ids)
        ascending = np.argsort(distinct)
        place = np.empty(len(distinct), np.int32)
        place[ascending] = np.arange(len(distinct), dtype=np.int32)
        return cls(np.searchsorted(known, distinct[ascending]), place[codes])


def _stable_order(keys: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Returns the stable order of small whole numbers from 0. NumPy sorts 16 bits by counting, in a quarter
    of the time that it takes to compare them."""
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    high = keys >> 16
    if high.any():
        order = order[np.argsort(high[order].astype(np.uint16), kind="stable")]
    return order


def _hash_uniform(cells: npt.NDArray[np.uint64], seed: int) -> Floats:
    """Returns numbers uniform in [0, 1], from (seed, cell) alone: splitmix64 (Steele, Lea and Flood, 2014,
    figure 17).
    """
    # Distinct seeds must not give shifted copies of one sequence: cells number below 2^40.
    place = np.uint64(1 + ((seed << 40) & (2**64 - 2**40)))
    mixed: npt.NDArray[np.uint64] = np.multiply(cells + place, _GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) * 2.0**-64


def _mean_outer_product(factors: Matrix, ratings: Matrix, count: int) -> Matrix:
    """Returns the mean of f f' over ``count`` ratings, (rank, rank); row k of
    ``factors`` has ``ratings[k]``.
    """
    # A row counts once for each of its ratings.
    weighted: Matrix = factors * ratings
    mean: Matrix = (weighted.T @ factors / count).astype(np.float32)
    return mean
