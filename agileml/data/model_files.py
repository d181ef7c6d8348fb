"""Reads a trained model as it is kept: a file per partition, below a place that every machine reaches."""

from __future__ import annotations

import numpy as np

from agileml.data.trained_model import Trained
from agileml.node.arrays import Matrix
from agileml.node.object_folder import ObjectFolder


def partition_file(partition: int) -> str:
    """Returns the name of a partition's file where models are saved."""
    return f"partition-{partition:05}.npy"


def assemble_model(place: ObjectFolder, partitions: int) -> Matrix:
    """Returns the whole model, float32 (rows, columns). Raises OSError where a partition is missing."""
    parts = []
    for partition in range(partitions):
        with place.open_for_reading(partition_file(partition)) as source:
            parts.append(np.load(source, allow_pickle=False))
    model = np.empty((sum(len(part) for part in parts), parts[0].shape[1]), np.float32)
    for partition, part in enumerate(parts):
        model[partition::partitions] = part
    return model


def load_model(trained: Trained) -> Matrix:
    """Returns the model that ``agileml.run`` trained. Raises as ``assemble_model`` does."""
    return assemble_model(ObjectFolder(trained.model), trained.partitions)
