"""Ledger entries to JSON and back, by their own type hints. No type of ours is named here twice.

Handles what entries and settings are made of: frozen dataclasses, enums, tuples, mappings with text keys,
optionals and plain values. Floats survive exactly (JSON prints their repr).
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from spotctl.control import events

_ENTRIES: Mapping[str, type] = {
    cls.__name__: cls
    for cls in vars(events).values()
    if dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__module__ == events.__name__
}


class CodecError(ValueError):
    """Text that is not an entry of this version's ledger."""


def to_json(value: Any) -> Any:
    """A JSON-able copy of ``value``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value


def from_json(hint: Any, raw: Any) -> Any:
    """The value of type ``hint`` that ``to_json`` made ``raw`` from. Raises CodecError where it cannot be."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union(get_args(hint), raw)
    if origin is tuple:
        return _tuple(get_args(hint), raw)
    if origin is Mapping:
        if not isinstance(raw, dict):
            raise CodecError(f"expected a mapping, found {raw!r}")
        return {key: from_json(get_args(hint)[1], item) for key, item in raw.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint, raw)
    if isinstance(hint, type) and issubclass(hint, (Enum, Path)):
        return hint(raw)
    return float(raw) if hint is float or getattr(hint, "__supertype__", None) is float else raw


def _union(options: tuple[Any, ...], raw: Any) -> Any:
    if raw is None:
        return None
    hints = [option for option in options if option is not type(None)]
    if len(hints) == 1:
        return from_json(hints[0], raw)
    return tuple(raw) if isinstance(raw, list) else raw  # plain values, told apart by JSON itself


def _tuple(items: tuple[Any, ...], raw: Any) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        raise CodecError(f"expected a list, found {raw!r}")
    return tuple(from_json(items[0], item) for item in raw)


def _dataclass(cls: type, raw: Any) -> Any:
    if not isinstance(raw, dict):
        raise CodecError(f"expected the fields of {cls.__name__}, found {raw!r}")
    hints = _hints(cls)
    if unknown := set(raw) - set(hints):
        raise CodecError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
    return cls(**{name: from_json(hints[name], value) for name, value in raw.items()})


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def encode(entry: events.Entry) -> tuple[str, str]:
    """(type name, JSON text) of an entry."""
    return type(entry).__name__, json.dumps(to_json(entry), separators=(",", ":"))


def decode(kind: str, body: str) -> events.Entry:
    """The entry that ``encode`` made. Raises CodecError for an unknown type or text that is no such entry."""
    cls = _ENTRIES.get(kind)
    if cls is None:
        raise CodecError(f"{kind!r} is no kind of ledger entry")
    try:
        entry: events.Entry = from_json(cls, json.loads(body))
    except (TypeError, ValueError) as error:
        raise CodecError(f"a {kind} entry cannot be read: {error}") from error
    return entry
