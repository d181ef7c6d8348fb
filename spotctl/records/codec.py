"""Converts entries and settings to JSON and back, by their own type hints.

msgspec does, but for two things. Paths are text. JSON has no infinity, so numbers that are not finite are
words; finite floats survive exactly, as JSON prints their repr.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import msgspec

from spotctl.control.entries import Entry

T = TypeVar("T")

_ENTRIES: Final[dict[str, Any]] = {cls.__name__: cls for cls in get_args(Entry)}
_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class CodecError(ValueError):
    """Raised for text that is not an entry of this version's ledger."""


def to_json(value: object) -> Any:
    """Returns a JSON-able copy of ``value``."""
    return _spell_infinities(msgspec.to_builtins(value, enc_hook=_make_plain))


def _make_plain(value: object) -> object:
    """Returns what msgspec does not know as what it knows; numbers and words of numpy, say."""
    if isinstance(value, (Path, str)):
        return str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be recorded")


def _spell_infinities(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _spell_infinities(item) for key, item in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [_spell_infinities(item) for item in tree]
    return str(tree) if isinstance(tree, float) and not math.isfinite(tree) else tree


def from_json(kind: type[T], raw: Any) -> T:
    """Returns the value of type ``kind`` from which ``to_json`` made ``raw``.

    Fields with defaults may be missing. Raises CodecError for all else, unknown fields at any depth included.
    """
    value = _convert(kind, raw)
    if unknown := _unknown_fields(raw, to_json(value)):
        raise CodecError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return value


def _convert(kind: type[T], raw: Any) -> T:
    try:  # not strict, for the sake of numbers that are words
        return msgspec.convert(raw, kind, strict=False, dec_hook=_make_path)
    except msgspec.ValidationError as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def _make_path(kind: type, raw: Any) -> Path:
    if kind is Path:
        return Path(raw)
    raise TypeError(f"a {kind.__name__} cannot be read")


def _unknown_fields(raw: Any, known: Any) -> set[str]:
    """Returns the keys of ``raw`` that are not in ``known``, where a value that was read is written again."""
    if isinstance(raw, dict) and isinstance(known, dict):
        below = (_unknown_fields(raw[key], known[key]) for key in raw.keys() & known.keys())
        return (raw.keys() - known.keys()).union(*below)
    if isinstance(raw, list) and isinstance(known, list):
        return set().union(*map(_unknown_fields, raw, known))
    return set()


def encode_entry(entry: Entry) -> tuple[str, str]:
    """Returns (type name, JSON text) of an entry."""
    fields = msgspec.to_builtins(entry, enc_hook=_make_plain)
    try:
        body = _JSON.encode(fields)
    except ValueError:  # few entries have an infinity, and looking for them takes half of the time
        body = _JSON.encode(_spell_infinities(fields))
    return type(entry).__name__, body


def decode_entry(kind: str, body: str) -> Entry:
    """Returns the entry that ``encode_entry`` made.

    Raises CodecError for an unknown type, malformed text, and fields that are missing or unknown.
    """
    cls = _ENTRIES.get(kind)
    if cls is None:
        raise CodecError(f"{kind!r} is no kind of ledger entry")
    try:
        entry: Entry = _convert(cls, json.loads(body))
    except (TypeError, ValueError) as error:
        raise CodecError(f"a {kind} entry cannot be read: {error}") from error
    return entry
