"""Writes our values as the JSON that scripts may rely on.

Rule 1: money is a string of dollars with six decimals, a time is RFC 3339 in UTC, a duration is a
number of seconds, and what is not finite is null. The ledger's own encoding (``codec``) differs:
we must read it back exactly, others must read this one.
Rule 2: every object has ``schema``, its kind and version.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from pricing_data.model.units import Instant, MicroUsd, Usd, UsdPerHour, format_instant, format_micros

if TYPE_CHECKING:
    from spotctl.control.entries import Entry

_EVENT: Final = "spotctl.event/1"


def event_line(entry: Entry) -> str:
    """Writes one ledger entry as one line."""
    return _dump_line({"schema": _EVENT, "event": type(entry).__name__, **to_public(entry)})


def job_event_line(job: str, entry: Entry) -> str:
    """Writes one ledger entry of one job among several as one line."""
    return _dump_line({"schema": _EVENT, "event": type(entry).__name__, "job": job, **to_public(entry)})


_SAID_LATER = ("schema", "objective", "not_scored")
"""Keys of the final object left out: its own schema, and what takes time to find out."""


def run_ended_line(final: Mapping[str, Any]) -> str:
    """Writes the outcome and the bill of a run as a line of their own, before its model is scored."""
    known = {name: value for name, value in final.items() if name not in _SAID_LATER}
    return _dump_line(to_public({"schema": _EVENT, "event": "RunEnded", "at": final["ended"], **known}))


def object_line(fields: Mapping[str, Any]) -> str:
    """Writes an object in one line; an objective that is not a number, say, is null in it."""
    return _dump_line(to_public(fields))


def _dump_line(fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"), allow_nan=False)


def to_document(fields: Mapping[str, Any]) -> str:
    """Writes one object for the whole answer, indented for people who look."""
    return json.dumps(to_public(fields), indent=2, allow_nan=False)


def plain_document(fields: Mapping[str, Any]) -> str:
    """Writes a document of plain JSON values in a fraction of the time; there may be very many."""
    try:
        return json.dumps(fields, indent=2, allow_nan=False)
    except ValueError:  # an objective that is not a number is null
        return to_document(fields)


def to_public(value: Any, hint: Any = Any) -> Any:
    """Returns a JSON-able copy of ``value``; ``hint``, its declared type, says what its numbers mean."""
    if value is None or isinstance(value, (bool, str)):
        return value.value if isinstance(value, Enum) else value
    kind: Any = type(value)
    if hints := _field_hints(kind):
        shown = {name: to_public(getattr(value, name), hint) for name, hint in hints.items()}
        for name in getattr(kind, "FLAT_OUTSIDE", ()):
            shown |= shown.pop(name)
        return shown
    if isinstance(value, Mapping):
        return {str(key): to_public(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        arguments = get_args(hint)
        return [to_public(item, arguments[0] if arguments else Any) for item in value]
    return _public_number(value, _without_none(hint))


def _public_number(value: int | float, hint: Any) -> str | int | float | None:
    if hint is Instant:
        return format_instant(Instant(int(value)))
    if hint is MicroUsd:
        return format_micros(MicroUsd(int(value)))
    if not math.isfinite(value):
        return None
    if hint in (Usd, UsdPerHour):
        return f"{value:.6f}"
    return value


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    (only, *others) = (option for option in get_args(hint) if option is not type(None))
    return Any if others else only


@cache
def _field_hints(cls: type) -> dict[str, Any]:
    """Returns the declared types of a dataclass or a struct; nothing of other classes."""
    names = getattr(cls, "__struct_fields__", ())
    if dataclasses.is_dataclass(cls):
        names = tuple(field.name for field in dataclasses.fields(cls))
    hints = get_type_hints(cls) if names else {}
    return {name: hints[name] for name in names}
