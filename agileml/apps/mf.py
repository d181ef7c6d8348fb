"""Matrix factorization: a rating is the mean plus the product of a user's and an item's factors.

Minimizes sum over ratings of (e^2 + regularization * (|p_u|^2 + |q_i|^2)), with e = value - mean - p_u.q_i,
which is the weighted-lambda objective of Zhou et al. (2008, "Large-scale parallel collaborative
filtering", section 3.1). The model's rows are the users' factors P over the items' factors Q. A shard
holds all ratings of a range of users; so a user's row is changed by one shard and an item's by many.

Each clock is gradient descent, preconditioned so that a step neither depends on how many ratings a row
has nor on the scale of the other side: the Hessian of a row is a sum of q q' (or p p') over its n ratings,
taken as n times the mean of all of them, the *spread*. A row's own mean exceeds the spread by a factor of
up to (1 + sqrt(rank / n))^2 (Marchenko and Pastur, 1967), so its steps are that much shorter. Users first
take a few steps, then items take one, which is the sum of what their shards ask for. For the sum to vanish
only where the gradient does, every shard must precondition alike: so the spread of all users' factors is
part of the model (its last ``rank`` rows), kept up to date by each shard in proportion to its ratings.

Only vectorized NumPy: ratings are presorted by user and by item when the input is cut, and summed per
row by ``np.add.reduceat``.
"""

from __future__ import annotations

import gzip
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from agileml.app import ApplicationError, Arrays, Cut, Outcome
from agileml.messages import Matrix, Patch, Rows
from agileml.partition import Shape

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class MatrixFactorization:
    """``step``: in units of the whole preconditioned step, below 2; ``scale``: of the start values."""

    metric: ClassVar[str] = "rmse"
    reference_name: ClassVar[str] = "ALS"

    rank: int = 8
    regularization: float = 0.02
    step: float = 1.3
    user_steps: int = 3
    scale: float = 0.3
    seed: int = 0

    def cut(self, source: Path, shards: int) -> Cut:
        """Ratings ``user,item,value`` with any integer ids, as CSV (.gz); a header is skipped."""
        ratings = read_ratings(source)
        users, user = np.unique(ratings[:, 0].astype(np.int64), return_inverse=True)
        items, item = np.unique(ratings[:, 1].astype(np.int64), return_inverse=True)
        mean = ratings[:, 2].mean()
        value = (ratings[:, 2] - mean).astype(np.float32)
        degree = np.bincount(item, minlength=len(items))
        # Ranges of users with about equally many ratings.
        bounds = np.searchsorted(np.cumsum(np.bincount(user)), np.arange(1, shards) * len(user) / shards)
        shard_of = np.searchsorted(bounds, user, side="left")
        index = {"users": users, "items": items, "mean": np.array(mean)}
        cuts = (
            _cut_shard(user[mine], item[mine], value[mine], degree, len(users), self.rank)
            for mine in (shard_of == shard for shard in range(shards))
        )
        return Cut(Shape(len(users) + len(items) + self.rank, self.rank), tuple(cuts), index)

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        """Uniform in +-scale by row and column, whatever rows are asked for together."""
        cells = np.add.outer(rows * shape.columns, np.arange(shape.columns)).astype(np.uint64)
        values: Matrix = ((2 * _hashed(cells, self.seed) - 1) * self.scale).astype(np.float32)
        first = shape.rows - self.rank
        values[rows >= first] = np.eye(self.rank, dtype=np.float32)[rows[rows >= first] - first]
        return values

    def rows(self, shard: Arrays) -> Rows:
        return np.concatenate([shard["users"], shard["items"], shard["spread"]])

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        user, item, value = shard["user"], shard["item"], shard["value"]
        before, items, spread = np.split(values, [len(shard["users"]), len(values) - self.rank])
        error = value - np.sum(before[user] * items[item], axis=1)
        if not len(value):
            return Outcome(Patch(self.rows(shard), np.zeros_like(values)), 0.0, 0.0)
        total = float(np.sum(error.astype(np.float64) ** 2))
        people, item_spread = before, _spread(items[item])
        for _ in range(self.user_steps):
            asked = _by_row(error[:, None] * items[item], shard["user_starts"])
            asked -= self.regularization * shard["user_ratings"] * people
            people = people + self._step(asked, item_spread, shard["user_ratings"])
            error = value - np.sum(people[user] * items[item], axis=1)
        by_item = shard["by_item"]
        asked = _by_row((error[:, None] * people[user])[by_item], shard["item_starts"])
        asked -= self.regularization * shard["item_ratings"] * items
        moved = self._step(asked, spread, shard["item_ratings_everywhere"])
        spread_moved = shard["share"] * (_spread(people[user]) - spread)
        delta = np.concatenate([people - before, moved, spread_moved])
        return Outcome(Patch(self.rows(shard), delta), total, float(len(value)))

    def objective(self, total: float, count: float) -> float:
        """Root mean square error over the ratings."""
        return math.sqrt(total / count)

    def reference_objective(self, source: Path) -> float:
        """The RMSE of the trusted solver on the same ratings."""
        return reference(read_ratings(source), self.rank, self.regularization)

    def _step(self, asked: Matrix, spread: Matrix, ratings: Matrix) -> Matrix:
        """Of every row: ``asked`` is its negative gradient, ``ratings`` (rows, 1) its number of ratings."""
        hessian = spread + np.float32(self.regularization) * np.eye(self.rank, dtype=np.float32)
        length: Matrix = np.float32(self.step) / (1 + np.sqrt(np.float32(self.rank) / ratings)) ** 2
        moved: Matrix = length * np.linalg.solve(hessian, (asked / ratings).T).T
        return moved


def read_ratings(source: Path) -> Floats:
    """Shape (n, 3). Raises ApplicationError where the file is not ``user,item,value`` lines."""
    try:
        with gzip.open(source, "rt") if source.suffix == ".gz" else source.open() as lines:
            header = int(lines.readline()[:1].isalpha())
            lines.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # NumPy warns of empty files, and of nothing else
                ratings = np.loadtxt(lines, delimiter=",", ndmin=2, skiprows=header)
    except (OSError, ValueError, UserWarning) as error:
        raise ApplicationError(f"cannot read ratings from {source}: {error}") from error
    if ratings.shape[1] != 3:
        raise ApplicationError(f"{source} has no user,item,value lines")
    return ratings


def _cut_shard(user: Ints, item: Ints, value: Matrix, degree: Ints, first_item: int, rank: int) -> Arrays:
    """The shard's ratings sorted by user, where each user's start, and the same by item."""
    order = np.lexsort((item, user))
    user, item, value = user[order], item[order], value[order]
    users, user_starts, user_at, user_ratings = np.unique(
        user, return_index=True, return_inverse=True, return_counts=True
    )
    items, item_at, item_ratings = np.unique(item, return_inverse=True, return_counts=True)
    return {
        "users": users,
        "items": items + first_item,
        "user": user_at,
        "item": item_at,
        "value": value,
        "user_starts": user_starts,
        "user_ratings": user_ratings.astype(np.float32)[:, None],
        "by_item": np.argsort(item_at, kind="stable"),
        "item_starts": np.cumsum(item_ratings) - item_ratings,
        "item_ratings": item_ratings.astype(np.float32)[:, None],
        "item_ratings_everywhere": degree[items].astype(np.float32)[:, None],
        "spread": first_item + len(degree) + np.arange(rank),
        "share": np.array(len(value) / degree.sum(), np.float32),
    }


def _hashed(cells: npt.NDArray[np.uint64], seed: int) -> Floats:
    """Uniform in [0, 1], from (seed, cell) alone: splitmix64 (Steele, Lea and Flood, 2014, figure 17)."""
    place = np.uint64(1 + ((seed << 40) & (2**64 - 2**40)))
    mixed: npt.NDArray[np.uint64] = np.multiply(cells + place, _GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) * 2.0**-64


def _spread(factors: Matrix) -> Matrix:
    """The mean of f f' over the rows f, shape (rank, rank)."""
    return factors.T @ factors / np.float32(len(factors))


def _by_row(terms: Matrix, starts: Ints) -> Matrix:
    """Sums of consecutive terms: those of row k begin at ``starts[k]``."""
    sums: Matrix = np.add.reduceat(terms, starts, axis=0)
    return sums


def reference(ratings: Floats, rank: int, regularization: float, sweeps: int = 60, seed: int = 0) -> float:
    """The RMSE that alternating least squares reaches on (n, 3) ratings: the trusted solver.

    Minimizes the same objective by exact ridge solves (Zhou et al. 2008, section 3.2), user by user, then
    item by item.
    """
    user = np.unique(ratings[:, 0], return_inverse=True)[1]
    item = np.unique(ratings[:, 1], return_inverse=True)[1]
    value = ratings[:, 2] - ratings[:, 2].mean()
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(item.max() + 1, rank))
    people = np.empty((user.max() + 1, rank))
    for _ in range(sweeps):
        _solve_side(people, user, items[item], value, regularization)
        _solve_side(items, item, people[user], value, regularization)
    error = value - np.sum(people[user] * items[item], axis=1)
    return float(np.sqrt(np.mean(error**2)))


def _solve_side(out: Floats, row: Ints, other: Floats, value: Floats, regularization: float) -> None:
    for number in range(len(out)):
        mine = row == number
        factors = other[mine]
        normal = factors.T @ factors + regularization * len(factors) * np.eye(factors.shape[1])
        out[number] = np.linalg.solve(normal, factors.T @ value[mine])
