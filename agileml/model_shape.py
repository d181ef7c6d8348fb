"""Describes the size of a model, and which of its rows belong to a partition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agileml.node.arrays import Rows


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the whole model: a float32 matrix."""

    rows: int
    columns: int


def partition_rows(shape: Shape, partition: int, partitions: int) -> Rows:
    """Returns the global rows of a partition, in local order: r with r % N == partition.

    >>> partition_rows(Shape(7, 2), 1, 3)
    array([1, 4])
    """
    return np.arange(partition, shape.rows, partitions, dtype=np.int64)
