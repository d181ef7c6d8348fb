"""Defines the kinds of value that only job files have: amounts, columns, arguments, secrets and places."""

from __future__ import annotations

import re
from collections.abc import Callable
from glob import glob
from pathlib import Path
from typing import Final

import yaml

from pricing_data.model.units import MicroUsd, Seconds, to_micros
from spotctl.job.price_sources import PRICE_SOURCES
from spotctl.job.spec import Amount, Argument
from spotctl.schema.document import NULL_TAG, Mismatch, describe_node
from spotctl.schema.kinds import (
    Place,
    Unfit,
    ValueKind,
    any_text,
    duration,
    full_pattern,
    list_of,
    number,
    scalar,
    whole_number,
    word,
)

JOB_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""A run's folder carries the name, so it must be a valid name everywhere."""
INSTANCE_TYPE: Final = r"[A-Za-z0-9][\w.-]*"
VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"
AN_INTERVAL: Final = "clocks, like 20, or a time with its unit, like 10m"
_A_CLASS: Final = "a class like agileml.apps.mf:MatrixFactorization or mine.py:Mine"
_APP: Final = r"([A-Za-z_][\w.]*|[^\n]*\.py):[A-Za-z_][\w]*"
_AMOUNT: Final = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(\+?)"
_LARGEST_BUDGET: Final = 1e9
_NAME: Final = "the name of a variable"

ABOVE_ZERO: Final = number(above=0)
FRACTION: Final = number(above=0, most=1)
SOME_TIME: Final = duration(positive=True)
PLACE: Final = word("a folder or a URL")


def absolute_location(written: str, folder: Path) -> str:
    """Returns a URL as it is, and a path as an absolute one; relative paths start from ``folder``."""
    return written if "://" in written else str((folder / Path(written).expanduser()).resolve())


def location(expected: str, find: Callable[[str], str] = lambda _: "") -> ValueKind[str]:
    """Returns the kind of a path or a URL. ``find`` says what is wrong with an absolute path, if anything."""
    text = word(expected)

    def read(node: yaml.Node, place: Place) -> str:
        written = text.read(node, place)
        found = absolute_location(written, place.document.folder)
        if wrong := find(found):
            raise Mismatch(node, f"found {written!r}, but {wrong}")
        return found

    return ValueKind(read, text.schema, expected)


def _read_app(node: yaml.Node, place: Place) -> str:
    """Reads a class of an installed module, or of a file beside the job's."""
    written = _CLASS.read(node, place)
    file, _, name = written.rpartition(":")
    if not file.endswith(".py"):
        return written
    found = absolute_location(file, place.document.folder)
    if not Path(found).is_file():
        raise Mismatch(node, f"found {written!r}, but there is no file {found}")
    return f"{found}:{name}"


def _read_store(node: yaml.Node, place: Place) -> str:
    if PLACE.read(node, place).startswith("memory://"):
        raise Mismatch(node, "found memory://, expected a place that outlives a machine")
    return LOCATION.read(node, place)


def _parse_amount(text: str) -> Amount:
    match = re.fullmatch(_AMOUNT, text)
    if match is None:
        raise Unfit
    return Amount(float(match[1]), or_more=match[2] == "+")


def _read_prices(node: yaml.Node, place: Place) -> str:
    """Reads the name of a source of prices, or a recorded file."""
    known = " or ".join(PRICE_SOURCES)
    written = word(f"{known}, or a recorded file").read(node, place)
    if written in PRICE_SOURCES:
        return written
    found = absolute_location(written, place.document.folder)
    if not Path(found).is_file():
        raise Mismatch(node, f"found {written!r}, expected {known}, and there is no file {found}")
    return found


def _read_plain(node: yaml.Node, place: Place) -> str | int | float | bool:
    text = _SCALAR.read(node, place)
    quoted = isinstance(node, yaml.ScalarNode) and node.style is not None
    if not quoted and text in ("true", "false"):
        return text == "true"
    for kind in () if quoted else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _read_argument(node: yaml.Node, place: Place) -> Argument:
    if isinstance(node, yaml.SequenceNode):
        return tuple(_read_plain(element, place) for element in node.value)
    return _read_plain(node, place)


def _read_interval(node: yaml.Node, place: Place) -> tuple[int, Seconds]:
    """Reads a number of clocks, or a nominal time; the other one is 0."""
    if isinstance(node, yaml.ScalarNode) and node.value.isdigit():
        return _SOME_CLOCKS.read(node, place), Seconds(0.0)
    try:
        return 0, SOME_TIME.read(node, place)
    except Mismatch:
        raise Mismatch(node, f"found {describe_node(node)}, expected {AN_INTERVAL}") from None


def _read_secrets(node: yaml.Node, place: Place) -> tuple[str, ...]:
    """Reads names alone. A value is refused without being shown."""
    if not isinstance(node, yaml.MappingNode):
        return _NAMES.read(node, place)
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or re.fullmatch(VARIABLE, key.value) is None:
            raise Mismatch(key, f"found {describe_node(key)}, expected {_NAME}")
        if not isinstance(value, yaml.ScalarNode) or value.tag != NULL_TAG:
            told = f"expected nothing: export {key.value} before you launch, so that no file has it"
            raise Mismatch(value, f"found a value for the secret {key.value}, {told}")
    return tuple(key.value for key, _ in node.value)


def _read_budget(node: yaml.Node, place: Place) -> MicroUsd:
    return to_micros(_DOLLARS.read(node, place))


def word_list(plural: str) -> ValueKind[tuple[str, ...]]:
    return list_of(word(f"one of the {plural}"), f"a list of {plural}")


_CLASS: Final = word(_A_CLASS, _APP)
LOCATION: Final = location(PLACE.expected)
_SOME_CLOCKS: Final = whole_number(1)
_SCALAR: Final = any_text("a number, a word, true, false, or a list of those")
_DOLLARS: Final = number(above=0, most=_LARGEST_BUDGET, words="dollars above 0, like 5.00")
_NAMES: Final = list_of(word(_NAME, VARIABLE), f"a list of secrets, each {_NAME}")
_COLUMN: Final = word("the name of a column, or its place from 0")
_PLAIN: Final = {"type": ("string", "number", "boolean")}

NAME: Final = word("a name of letters, digits, '.', '_' and '-', at most 64 of them", JOB_NAME)
APP: Final = ValueKind(_read_app, _CLASS.schema, _A_CLASS)
STORE: Final = ValueKind(_read_store, PLACE.schema, PLACE.expected)
AMOUNT: Final = scalar(
    "an amount like 4 (exactly) or 4+ (at least)",
    _parse_amount,
    {"type": ("number", "string"), "minimum": 0, "pattern": f"^{_AMOUNT}$"},
    str,
)
BUDGET: Final = ValueKind(_read_budget, _DOLLARS.schema, _DOLLARS.expected)
ARGUMENT: Final = ValueKind(_read_argument, {"anyOf": (_PLAIN, {"type": "array", "items": _PLAIN})})
PRICES: Final = ValueKind(_read_prices, PLACE.schema, "store, bundled, or a recorded file")
INTERVAL: Final = ValueKind(_read_interval, {"anyOf": (_SOME_CLOCKS.schema, SOME_TIME.schema)}, AN_INTERVAL)
SECRETS: Final = ValueKind(
    _read_secrets,
    {
        "anyOf": (
            _NAMES.schema,
            {
                "type": "object",
                "propertyNames": {"pattern": full_pattern(VARIABLE)},
                "additionalProperties": {"type": "null"},
            },
        )
    },
    _NAMES.expected,
)


def _read_column(node: yaml.Node, place: Place) -> str | tuple[str, ...]:
    return (_COLUMNS if isinstance(node, yaml.SequenceNode) else _COLUMN).read(node, place)


_COLUMNS: Final = list_of(_COLUMN, "a list of columns")
COLUMN: Final = ValueKind(_read_column, {"anyOf": (_COLUMN.schema, _COLUMNS.schema)})


def _missing(there: str, *, pattern: bool = False) -> Callable[[str], str]:
    """Returns what says that nothing is at a path, which may be a ``pattern``. URLs are not looked at."""

    def find(place: str) -> str:
        found = "://" in place or Path(place).exists() or (pattern and glob(place))
        return "" if found else f"{there} {place}"

    return find


DATA: Final = location("a file or a URL", _missing("there is no file", pattern=True))
SOURCE: Final = location("a file, a folder or a URL", _missing("there is nothing at"))
FOLDER: Final = location(
    "a folder", lambda place: "" if Path(place).is_dir() else f"there is no folder {place}"
)
