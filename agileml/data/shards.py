"""Reads and writes the input once it is cut: shards below a place that every machine can read.

    shard-00000.npz   a shard, as the application prepared it
    rows-00000.npy    the model's rows that it reads
    index.npz         what the model's rows mean
    shape.json        the model's shape, written last: without it the input was not cut to the end

A worker needs the rows of a shard to ask for them while the shard itself is still being loaded, so they are
files of their own.
"""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from agileml.api import ApplicationError, Arrays
from agileml.model_shape import Shape
from agileml.node.arrays import Rows
from agileml.node.object_folder import ObjectFolder


class ShardReader:
    """Reads a cut input; every call reads anew. Raises ApplicationError where ``place``
    holds no cut input.
    """

    def __init__(self, place: str | Path) -> None:
        self._place = ObjectFolder(place)
        try:
            with self._place.open_for_reading("shape.json") as source:
                self.shape = Shape(*json.load(source))
        except FileNotFoundError as error:
            raise ApplicationError(f"{place} holds no cut input (no shape.json)") from error

    def read_shard(self, number: int) -> Arrays:
        return self._read_arrays(f"shard-{number:05}.npz")

    def read_rows(self, number: int) -> Rows:
        """Returns the model's rows that the shard reads, sorted and unique."""
        with self._place.open_for_reading(f"rows-{number:05}.npy") as source:
            rows: Rows = np.load(source, allow_pickle=False)
        return rows

    def read_index(self) -> Arrays:
        return self._read_arrays("index.npz")

    def _read_arrays(self, name: str) -> Arrays:
        with self._place.open_for_reading(name) as source, np.load(source, allow_pickle=False) as arrays:
            return dict(arrays)


class ShardWriter:
    """Writes what ``ShardReader`` reads; ``finish`` comes last."""

    def __init__(self, place: str | Path) -> None:
        self._place = ObjectFolder(place)

    def write_shard(self, number: int, arrays: Arrays, rows: Rows) -> None:
        with self._place.open_for_writing(f"rows-{number:05}.npy") as out:
            np.save(out, rows)
        self._save_arrays(f"shard-{number:05}.npz", arrays)

    def finish(self, shape: Shape, index: Arrays) -> None:
        self._save_arrays("index.npz", index)
        with self._place.open_for_writing("shape.json") as out:
            out.write(json.dumps([shape.rows, shape.columns]).encode())

    def _save_arrays(self, name: str, arrays: Arrays) -> None:
        """Writes arrays like NumPy's ``savez``, which reserves some names for itself. Raises ValueError for
        objects.
        """
        with self._place.open_for_writing(name) as out, ZipFile(out, "w") as archive:
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
