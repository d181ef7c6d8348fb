"""Converts ledger entries to JSON and back, by their own type hints. No type of ours is named here twice.

Handles what entries and settings are made of: frozen dataclasses, enums, tuples, mappings with text keys,
optionals and plain values. Floats survive exactly (JSON prints their repr).
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from spotctl.control import entries

_ENTRIES: Mapping[str, type] = {
    cls.__name__: cls
    for cls in vars(entries).values()
    if dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__module__ == entries.__name__
}
_JSON: Final = json.JSONEncoder(separators=(",", ":"))


class CodecError(ValueError):
    """Raised for text that is not an entry of this version's ledger."""


def to_json(value: Any) -> Any:
    """Returns a JSON-able copy of ``value``."""
    kind: Any = type(value)
    return _writer_for(kind)(value)


@cache
def _writer_for(kind: type) -> Callable[[Any], Any]:
    """Returns ``to_json`` specialised for a type, so that the type is inspected once."""
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
        return lambda value: {name: to_json(getattr(value, name)) for name in names}
    if issubclass(kind, Enum):
        return attrgetter("value")
    if issubclass(kind, Path):
        return str
    if issubclass(kind, (tuple, list)):
        return lambda value: [to_json(item) for item in value]
    if issubclass(kind, Mapping):
        return lambda value: {str(key): to_json(item) for key, item in value.items()}
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else str(value)  # JSON has no infinity
    return _as_it_is


def from_json(hint: Any, raw: Any) -> Any:
    """Returns the value of type ``hint`` from which ``to_json`` made ``raw``. Raises CodecError."""
    return _reader_for(hint)(raw)


@cache
def _reader_for(hint: Any) -> Callable[[Any], Any]:
    """Returns ``from_json`` specialised for a hint, so that the hint is inspected once."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return partial(_read_union, get_args(hint))
    if origin is tuple:
        return partial(_read_tuple, get_args(hint)[0])
    if origin is Mapping:
        return partial(_read_mapping, get_args(hint)[1])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return partial(_read_dataclass, hint)
    if isinstance(hint, type) and issubclass(hint, (Enum, Path)):
        return hint
    return float if hint is float or getattr(hint, "__supertype__", None) is float else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _read_union(options: tuple[Any, ...], raw: Any) -> Any:
    if raw is None:
        return None
    hints = [option for option in options if option is not type(None)]
    if len(hints) == 1:
        return from_json(hints[0], raw)
    return tuple(raw) if isinstance(raw, list) else raw  # plain values, told apart by JSON itself


def _read_tuple(item: Any, raw: Any) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        raise CodecError(f"expected a list, found {raw!r}")
    return tuple(map(_reader_for(item), raw))


def _read_mapping(item: Any, raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise CodecError(f"expected a mapping, found {raw!r}")
    return {key: from_json(item, value) for key, value in raw.items()}


def _read_dataclass(cls: type, raw: Any) -> Any:
    if not isinstance(raw, dict):
        raise CodecError(f"expected the fields of {cls.__name__}, found {raw!r}")
    readers = _field_readers(cls)
    if unknown := raw.keys() - readers.keys():
        raise CodecError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
    return cls(**{name: readers[name](value) for name, value in raw.items()})


@cache
def _field_readers(cls: type) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(cls)
    return {field.name: _reader_for(hints[field.name]) for field in dataclasses.fields(cls)}


def encode_entry(entry: entries.Entry) -> tuple[str, str]:
    """Returns (type name, JSON text) of an entry."""
    return type(entry).__name__, _JSON.encode(to_json(entry))


def decode_entry(kind: str, body: str) -> entries.Entry:
    """Returns the entry that ``encode_entry`` made. Raises CodecError for an unknown type or malformed
    text.
    """
    cls = _ENTRIES.get(kind)
    if cls is None:
        raise CodecError(f"{kind!r} is no kind of ledger entry")
    try:
        entry: entries.Entry = from_json(cls, json.loads(body))
    except (TypeError, ValueError) as error:
        raise CodecError(f"a {kind} entry cannot be read: {error}") from error
    return entry
