"""Reads rows of NumPy's own files, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from agileml.api import ApplicationError
from agileml.data.sources import FileFormat, detect_format

Column = npt.NDArray[Any]


def read_arrays(
    filesystem: Any, file: str, columns: Mapping[str, str], rows: int
) -> Iterator[Mapping[str, Any]]:
    """Yields the columns of a ``.npy`` or ``.npz`` file, so many rows at a time.

    ``columns``: the file's column by the application's name; in an array without names it is a place.
    """
    with filesystem.open(file, "rb") as raw, ExitStack() as stack:
        if detect_format(file) is FileFormat.NPZ:
            archive = stack.enter_context(ZipFile(raw))
            members = [stack.enter_context(archive.open(f"{name}.npy")) for name in columns.values()]
            streams = [_read_blocks(member, rows) for member in members]
            for blocks in zip(*streams, strict=True):
                if len({len(block) for block in blocks}) > 1:
                    named = ", ".join(columns.values())
                    raise ApplicationError(f"{file}: {named} have different numbers of rows")
                yield dict(zip(columns, blocks, strict=True))
            return
        for block in _read_blocks(raw, rows):
            if block.dtype.names:
                yield {name: block[column] for name, column in columns.items()}
            else:
                flat = block.reshape(len(block), -1)
                yield {name: flat[:, int(place)] for name, place in columns.items()}


def array_header(raw: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Reads the shape and kind of a ``.npy`` stream. Raises ValueError where it is no array of rows."""
    version = np.lib.format.read_magic(raw)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(raw)
    if not shape or dtype.hasobject or (fortran and len(shape) > 1):
        raise ValueError(f"an array of shape {shape}, {dtype}; expected rows of numbers in C order")
    return shape, dtype


def _read_blocks(raw: Any, rows: int) -> Iterator[Column]:
    """Yields the array of a ``.npy`` stream, some rows at a time. Raises ValueError where it is none."""
    shape, dtype = array_header(raw)
    row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    for first in range(0, shape[0], rows):
        count = min(rows, shape[0] - first)
        data = raw.read(count * row_bytes)
        # A download that was cut off is reported as such, not as a short array.
        if len(data) < count * row_bytes:
            raise EOFError(f"it ends within row {first + len(data) // max(1, row_bytes) + 1} of {shape[0]}")
        yield np.frombuffer(data, dtype).reshape(count, *shape[1:])
