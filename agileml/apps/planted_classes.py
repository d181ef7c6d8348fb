"""Makes rows of features whose labels follow a known softmax.

``python -m agileml.apps.planted_classes --rows 2000 --features 20 --classes 4 OUT.csv.gz``
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def planted_classes(rows: int, features: int, classes: int, seed: int) -> tuple[Ints, Floats]:
    """Returns labels (rows,) and features (rows, features): standard normal, and so are the scores' weights.

    Features differ in scale by up to a hundred, which an optimizer has to cope with.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    scores = x @ rng.normal(size=(features, classes)) * 2 / np.sqrt(features)
    label = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    return label, x * np.logspace(-1, 1, features)


def write_classes(label: Ints, x: Floats, path: Path) -> None:
    """Writes CSV with a header; compressed where the name ends in .gz."""
    names = ",".join(["label", *(f"x{number}" for number in range(x.shape[1]))])
    layout = ("%d", *["%.6g"] * x.shape[1])
    np.savetxt(path, np.column_stack([label, x]), fmt=layout, delimiter=",", header=names, comments="")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m agileml.apps.planted_classes", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    chosen = vars(parser.parse_args(arguments))
    out = chosen.pop("out")
    write_classes(*planted_classes(**chosen), out)


if __name__ == "__main__":
    main()
