"""Values to JSON and arrays, and back: what the types of messages say is made into functions.

Types say the same every time, so each is looked at once. A *writer* makes JSON of a value and collects its
arrays; a *reader* is the inverse and trusts nobody: whatever does not fit its type is a WireError. A clock of
a small model costs more for its descriptions than for its arrays, so what goes as it is costs no call at all.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np

from agileml.messages import Matrix, Rows

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Buffer: TypeAlias = bytes | bytearray | memoryview

_ARRAYS: Final[dict[Any, tuple[str, int]]] = {Rows: ("<i8", 1), Matrix: ("<f4", 2)}
"""Type of a field -> what its bytes are, and the number of dimensions."""
_MOST_ROWS: Final = 2**32
"""Of one partition. Their numbers are made here, so a peer must not name as many as it likes."""
_AS_IT_IS: Final = (bool, int, float, str)


class WireError(ValueError):
    """What came over the wire is not a message of this version."""


_Arrays: TypeAlias = list[np.ndarray[Any, Any]]
_Writer: TypeAlias = Callable[[Any, _Arrays], Any]
"""Makes JSON of a value; arrays are collected in order and leave their shape behind, or the ends of what they
list."""
_Reader: TypeAlias = Callable[[Json, Iterator[Buffer]], Any]
"""Makes a value of JSON and the array frames that come with it."""


def packed(value: Any, arrays: _Arrays) -> Any:
    """JSON of a dataclass's value, whose arrays are added to those given."""
    kind: Any = type(value)
    return _dataclass_writer(kind)(value, arrays)


@cache
def reader(hint: Any) -> _Reader:
    """What reads values of this type."""
    if hint in _ARRAYS:
        return partial(_read_array, hint)
    if isinstance(hint, types.UnionType):
        some = reader(_not_none(hint))
        return lambda data, arrays: None if data is None else some(data, arrays)
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return partial(_read_tuple, hint, _plain(item), reader(item))
    if is_dataclass(hint) and isinstance(hint, type):
        of = typing.get_type_hints(hint)
        names = [field.name for field in fields(hint)]
        return partial(_read_dataclass, hint, {name: (_plain(of[name]), reader(of[name])) for name in names})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_read_word, {word.value: word for word in hint}, hint)
    return partial(_read_plain, hint)


def _not_none(hint: types.UnionType) -> Any:
    return next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)


def _plain(hint: Any) -> Any:
    """The type of a value that JSON has as it is, and that needs no reader where it fits."""
    return hint if hint in _AS_IT_IS else None


# ---- writing -----------------------------------------------------------------------------------


def _special_writer(hint: Any) -> _Writer | None:
    """None where JSON has the value as it is: a StrEnum is a string already."""
    if hint in _ARRAYS:
        return _write_array
    if isinstance(hint, types.UnionType):
        some = _special_writer(_not_none(hint))
        return None if some is None else partial(_write_optional, some)
    if typing.get_origin(hint) is tuple:
        return partial(_write_tuple, _special_writer(typing.get_args(hint)[0]))
    if is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_writer(hint)
    return None


@cache
def _dataclass_writer(kind: type) -> _Writer:
    names, of = tuple(field.name for field in fields(kind)), typing.get_type_hints(kind)
    special = {name: write for name in names if (write := _special_writer(of[name])) is not None}
    plain = tuple(name for name in names if name not in special)
    if len(plain) < 2:  # attrgetter makes a tuple only of more
        return partial(_write_fields, {name: special.get(name, _write_plain) for name in names})
    if not special:
        return partial(_write_plain_fields, names, attrgetter(*names))
    return partial(_write_some_fields, names, attrgetter(*names), tuple(special.items()))


def _write_plain(value: Any, _: _Arrays) -> Any:
    return value


def _write_fields(writers: Mapping[str, _Writer], value: Any, arrays: _Arrays) -> Any:
    return {name: write(getattr(value, name), arrays) for name, write in writers.items()}


def _write_plain_fields(
    names: tuple[str, ...], get: Callable[[Any], tuple[Any, ...]], value: Any, _: _Arrays
) -> Any:
    return dict(zip(names, get(value), strict=True))


def _write_some_fields(
    names: tuple[str, ...],
    get: Callable[[Any], tuple[Any, ...]],
    special: tuple[tuple[str, _Writer], ...],
    value: Any,
    arrays: _Arrays,
) -> Any:
    made = dict(zip(names, get(value), strict=True))
    for name, write in special:
        made[name] = write(made[name], arrays)
    return made


def _write_optional(write: _Writer, value: Any, arrays: _Arrays) -> Any:
    return None if value is None else write(value, arrays)


def _write_tuple(write: _Writer | None, value: tuple[Any, ...], arrays: _Arrays) -> Any:
    return list(value) if write is None else [write(item, arrays) for item in value]


def _write_array(value: np.ndarray[Any, Any], arrays: _Arrays) -> Any:
    if value.dtype == np.int64 and len(value) and _are_consecutive(value):
        return [int(value[0]), int(value[-1]) + 1]
    arrays.append(np.ascontiguousarray(value))
    return list(value.shape)


def _are_consecutive(rows: Rows) -> bool:
    return int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all())


# ---- reading -----------------------------------------------------------------------------------


def _read_tuple(
    hint: Any, plain: Any, read: _Reader, data: Json, arrays: Iterator[Buffer]
) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise WireError(f"{data!r} where {hint} was expected")
    return tuple([item if type(item) is plain else read(item, arrays) for item in data])


def _read_dataclass(
    kind: type, readers: Mapping[str, tuple[Any, _Reader]], data: Json, arrays: Iterator[Buffer]
) -> Any:
    if not isinstance(data, dict) or data.keys() != readers.keys():
        raise WireError(f"{data!r} where {kind.__name__} with {', '.join(readers)} was expected")
    found = []
    for name, (plain, read) in readers.items():
        item = data[name]
        found.append(item if type(item) is plain else read(item, arrays))
    return kind(*found)


def _read_word(words: Mapping[str, StrEnum], kind: type[StrEnum], data: Json, _: Iterator[Buffer]) -> StrEnum:
    word = words.get(data) if isinstance(data, str) else None
    if word is None:
        raise WireError(f"{data!r} is no {kind.__name__}")
    return word


def _read_plain(kind: type, data: Json, _: Iterator[Buffer]) -> Any:
    if type(data) is kind or (kind is float and type(data) is int):
        return data
    raise WireError(f"{data!r} where {kind} was expected")


def _consecutive(first: Json, end: Json) -> Rows:
    if type(first) is not int or type(end) is not int or not 0 <= first < end <= _MOST_ROWS:
        raise WireError(f"consecutive rows from {first!r} to {end!r}")
    return np.arange(first, end, dtype=np.int64)


def _read_array(hint: Any, shape: Json, arrays: Iterator[Buffer]) -> np.ndarray[Any, Any]:
    if hint == Rows and isinstance(shape, list) and len(shape) == 2:
        return _consecutive(*shape)
    dtype, dimensions = _ARRAYS[hint]
    frame = next(arrays, None)
    if frame is None or not isinstance(shape, list) or len(shape) != dimensions:
        raise WireError(f"an array of shape {shape!r}")
    if any(type(size) is not int or not 0 <= size < 2**40 for size in shape):
        raise WireError(f"an array of shape {shape!r}")
    sizes = [size for size in shape if isinstance(size, int)]
    size = np.dtype(dtype).itemsize
    for extent in sizes:
        size *= extent
    if len(frame) != size:
        raise WireError(f"an array of shape {shape} in {len(frame)} bytes")
    return np.frombuffer(frame, dtype).reshape(sizes)
