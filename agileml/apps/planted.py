"""Makes ratings with a known answer: planted factors, noise, and a random subset of the cells observed.

``python -m agileml.apps.planted --users 300 --items 80 --rank 4 OUT.csv.gz``
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ratings = npt.NDArray[np.float64]
"""Shape (n, 3): user, item, value."""


def planted_ratings(users: int, items: int, rank: int, noise: float, density: float, seed: int) -> Ratings:
    """Returns about ``density`` x users x items ratings of variance 1 + noise^2 around a mean of 3.

    Factors are normal and scaled so that their products have variance 1. Every user and item has a rating.
    """
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(users, rank)) * rank**-0.25
    right = rng.normal(size=(items, rank)) * rank**-0.25
    seen = rng.random((users, items)) < density
    # Every user and every item gets a rating at least: a factor without any could not be found.
    seen[np.arange(users), rng.integers(items, size=users)] = True
    seen[rng.integers(users, size=items), np.arange(items)] = True
    user, item = np.nonzero(seen)
    value = 3.0 + np.sum(left[user] * right[item], axis=1) + noise * rng.normal(size=len(user))
    return np.column_stack([user, item, value])


def write_ratings(ratings: Ratings, path: Path) -> None:
    """Writes CSV with a header; compressed where the name ends in .gz."""
    header = "user,item,value"
    np.savetxt(path, ratings, fmt=("%d", "%d", "%.6f"), delimiter=",", header=header, comments="")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m agileml.apps.planted", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--items", type=int, default=80)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--noise", type=float, default=0.3, help="standard deviation")
    parser.add_argument("--density", type=float, default=0.3, help="share of the cells that is observed")
    parser.add_argument("--seed", type=int, default=0)
    chosen = vars(parser.parse_args(arguments))
    out = chosen.pop("out")
    write_ratings(planted_ratings(**chosen), out)


if __name__ == "__main__":
    main()
