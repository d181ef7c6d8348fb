"""Encodes values as bytes by msgspec (MessagePack), with their arrays beside them, and decodes them.

An array leaves its shape in the bytes; consecutive rows leave their two ends, and need nothing else. A reader
trusts nobody: whatever does not fit its type is a WireError.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from agileml.node.arrays import Matrix, Rows
from agileml.node.transport.packet_codec import Buffer, WireError

Array: TypeAlias = np.ndarray[Any, Any]

_ROWS: Final = np.dtype("<i8")
_KINDS: Final[dict[Any, tuple[np.dtype[Any], int]]] = {Rows: (_ROWS, 1), Matrix: (np.dtype("<f4"), 2)}
"""Type of a field -> the type of the bytes of its array, and the number of dimensions."""
_MOST_ROWS: Final = 2**32
"""The most rows of one partition. Consecutive rows are made here, so a peer must not name as many as it
likes.
"""
_MOST: Final = 2**40
"""The most rows or columns, so that sizes stay far from where sums of bytes overflow."""


def pack_value(value: object, arrays: list[Array]) -> bytes:
    """Encodes structs, tuples and plain values. Their arrays are appended to ``arrays``, in order."""
    return msgspec.msgpack.encode(value, enc_hook=partial(_extract_array, arrays))


def unpack_value(packed: Buffer | msgspec.Raw, kind: Any, arrays: Iterator[Buffer]) -> Any:
    """Decodes a value of that type; its arrays are read-only views of the next of ``arrays``. Raises
    WireError.
    """
    try:
        return msgspec.msgpack.decode(packed, type=kind, dec_hook=partial(_restore_array, arrays))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(str(error)) from error


def from_plain(data: object, kind: Any) -> Any:
    """Converts what JSON gave to a value of that type, without arrays. Raises WireError."""
    try:
        return msgspec.convert(data, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(str(error)) from error


def _extract_array(arrays: list[Array], array: Array) -> list[int]:
    if array.dtype == _ROWS and len(array) and _are_consecutive(array):
        return [int(array[0]), int(array[-1]) + 1]
    arrays.append(np.ascontiguousarray(array))
    return list(array.shape)


def _are_consecutive(rows: Rows) -> bool:
    last = len(rows) - 1
    return int(rows[-1]) - int(rows[0]) == last and np.count_nonzero(rows[1:] > rows[:-1]) == last


def _restore_array(arrays: Iterator[Buffer], kind: Any, left: object) -> Array:
    dtype, dimensions = _KINDS[kind]
    if not isinstance(left, list):
        raise WireError(f"{left!r} is no shape")
    size = dtype.itemsize
    for extent in left:
        # Not isinstance: True is an int as well.
        if type(extent) is not int or not 0 <= extent < _MOST:
            raise WireError(f"{left!r} is no shape")
        size *= extent
    if dtype is _ROWS and len(left) == 2:
        return _consecutive_rows(*left)
    frame = next(arrays, None)
    if frame is None or len(left) != dimensions:
        raise WireError(f"an array of shape {left!r}")
    if len(frame) != size:
        raise WireError(f"an array of shape {left} in {len(frame)} bytes")
    return np.frombuffer(frame, dtype).reshape(left)


def _consecutive_rows(first: int, end: int) -> Rows:
    if not first < end <= _MOST_ROWS:
        raise WireError(f"consecutive rows from {first} to {end}")
    return np.arange(first, end, dtype=np.int64)
