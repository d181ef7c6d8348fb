"""Defines the kinds of value that a key may have: how each reads a YAML node, and its JSON Schema.

A schema takes what an editor makes of YAML 1.2, so a number may be a text too: quotes change nothing here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import yaml

from pricing_data.model.units import Seconds, parse_duration
from spotctl.schema.document import NULL_TAG, Document, Mismatch, describe_node, suggest_nearest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
JsonSchema: TypeAlias = Mapping[str, Any]

_UNTAGGED: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "timestamp", "value", "merge")
)
"""Tags that YAML guesses for plain scalars; the user wrote every other tag."""
_WHOLE: Final = r"[-+]?[0-9]{1,18}"
_TOO_LONG: Final = re.compile(r"[-+]?[0-9]{19,}")
_NUMBER: Final = r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
_LONGEST_S: Final = 10 * 365 * 86400
"""Longest duration; longer ones are typing errors, and later than a date can say."""
_DURATION: Final = r"(\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*)+"
_SHOWN_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_SIZE: Final = r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([KMGT]?)(i?)B"
_SIZE_UNITS: Final = ("", "K", "M", "G", "T")
_LARGEST_BYTES: Final = 10**15
_SCALAR: Final = ("string", "number", "boolean")
"""What YAML makes of a word: 2024 and true are words as well."""


class Place(NamedTuple):
    """Locates a value: its file, and the dotted path of its key."""

    document: Document
    path: str


class Readable(Protocol[T_co]):
    """Defines what a key may hold: a value, or a mapping with keys of its own."""

    @property
    def schema(self) -> JsonSchema:
        """Returns the JSON Schema of what is taken, or of a little more."""
        ...

    @property
    def expected(self) -> str:
        """Returns what to write, in words; empty where the schema says it all."""
        ...

    def read(self, node: yaml.Node, place: Place) -> T_co:
        """Returns the value of ``node``. Raises Mismatch where it has none of this kind."""
        ...


@dataclass(frozen=True)
class ValueKind(Generic[T]):
    """Defines what a value may be. ``read`` turns a node into the value, or raises Mismatch.

    ``show`` writes a value as a file would.
    """

    read: Callable[[yaml.Node, Place], T]
    schema: JsonSchema
    expected: str = ""
    show: Callable[[T], Any] = lambda value: value


class Unfit(Exception):
    """Raised by what parses a scalar; the message says what was expected, if not what its kind says."""


def scalar(
    expected: str,
    parse: Callable[[str], T],
    schema: JsonSchema,
    show: Callable[[T], Any] = lambda value: value,
) -> ValueKind[T]:
    """Returns the kind of a scalar whose text ``parse`` takes, or refuses by raising Unfit."""

    def read(node: yaml.Node, _: Place) -> T:
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _UNTAGGED:
            raise _refuse_node(node, expected)
        try:
            return parse(str(node.value))
        except Unfit as error:
            message = f"found {describe_node(node)}, expected {str(error) or expected}"
            raise Mismatch(node, message) from None

    return ValueKind(read, schema, expected, show)


def _refuse_node(node: yaml.Node, expected: str) -> Mismatch:
    """Returns the error for a node that is no scalar, says nothing, or has a tag of its own."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == NULL_TAG:
        return Mismatch(node, f"found {describe_node(node)}, expected {expected}")
    return Mismatch(node, f"found the tag {node.tag}, expected {expected} without a tag")


def full_pattern(pattern: str) -> str:
    r"""Returns ``pattern`` for the whole of a text, in the dialect of JSON Schema.

    There, ``\w`` knows no letters beyond ASCII; this takes all characters beyond it for letters.
    """
    return f"^(?:{pattern})$".replace(r"\w", "0-9A-Za-z_\u0080-\uffff")


def word(expected: str, pattern: str = "") -> ValueKind[str]:
    r"""Returns the kind of a text that matches all of ``pattern``; by default, of one line that is not blank.

    ``pattern`` has ``\w`` within brackets only, and no flags.
    """

    def parse(text: str) -> str:
        if re.fullmatch(pattern or r".*\S.*", text) is None:
            raise Unfit
        return text

    return scalar(expected, parse, {"type": _SCALAR, "pattern": full_pattern(pattern) if pattern else r"\S"})


def any_text(expected: str, *, blank: bool = True) -> ValueKind[str]:
    """Returns the kind of a text of any number of lines."""

    def parse(text: str) -> str:
        if not blank and not text.strip():
            raise Unfit
        return text

    return scalar(expected, parse, {"type": _SCALAR} if blank else {"type": _SCALAR, "pattern": r"\S"})


def one_of(*choices: str) -> ValueKind[str]:
    """Returns the kind of a word out of ``choices``."""

    def parse(text: str) -> str:
        if text not in choices:
            raise Unfit(f"one of {', '.join(choices)}{suggest_nearest(text, choices)}")
        return text

    return scalar(f"one of {', '.join(choices)}", parse, {"enum": choices})


def switch(yes: str = "true", no: str = "false") -> ValueKind[bool]:
    """Returns the kind of a value that is one of two words."""
    words = {yes: True, no: False}

    def parse(text: str) -> bool:
        if text not in words:
            raise Unfit
        return words[text]

    literals = (True, False) if yes == "true" else ()
    return scalar(
        f"{yes} or {no}",
        parse,
        {"enum": (*literals, yes, no)},
        lambda value: value if literals else yes if value else no,
    )


def whole_number(least: int, most: int | None = None, because: str = "") -> ValueKind[int]:
    """Returns the kind of a whole number of at least ``least``, and at most ``most``."""
    expected = f"a whole number of at least {least}" + ("" if most is None else f" and at most {most}")
    if least == most:
        expected = f"{least}: {because}"
    schema = {"type": ("integer", "string"), "minimum": least, "pattern": f"^{_WHOLE}$"}

    def parse(text: str) -> int:
        if _TOO_LONG.fullmatch(text) is not None:
            raise Unfit(f"{expected} with at most 18 digits")
        if re.fullmatch(_WHOLE, text) is None or int(text) < least or (most is not None and int(text) > most):
            raise Unfit
        return int(text)

    return scalar(expected, parse, schema if most is None else {**schema, "maximum": most})


def number(
    *, above: float | None = None, least: float | None = None, most: float | None = None, words: str = ""
) -> ValueKind[float]:
    """Returns the kind of a finite number within limits. ``words``: what to call it, if not by its limits."""
    limits = {"above {:g}": above, "of at least {:g}": least, "at most {:g}": most}
    told = " and ".join(text.format(limit) for text, limit in limits.items() if limit is not None)
    bounds = {"exclusiveMinimum": above, "minimum": least, "maximum": most}
    schema = {name: limit for name, limit in bounds.items() if limit is not None}

    def parse(text: str) -> float:
        value = float(text) if re.fullmatch(_NUMBER, text) else math.nan
        fits = (above is None or value > above) and (least is None or value >= least)
        if not math.isfinite(value) or not fits or (most is not None and value > most):
            raise Unfit
        return value

    return scalar(
        words or f"a number {told}".rstrip(),
        parse,
        {"type": ("number", "string"), **schema, "pattern": f"^{_NUMBER}$"},
        lambda value: int(value) if float(value).is_integer() else value,
    )


def duration(*, positive: bool = False, least: str = "", most: str = "") -> ValueKind[Seconds]:
    """Returns the kind of a time span with its unit, as seconds and minutes look alike.

    ``least`` and ``most`` are durations too, both or neither.
    """

    def parse(text: str) -> Seconds:
        if re.fullmatch(_DURATION, text) is None:
            raise Unfit
        value = parse_duration(text)
        if positive and value <= 0:
            raise Unfit("a duration above zero")
        if least and not parse_duration(least) <= value <= parse_duration(most):
            raise Unfit(f"a time from {least} to {most}")
        if value > _LONGEST_S:
            raise Unfit("at most ten years")
        return value

    expected = "a duration with its unit, like 90s, 2m, 6h or 1h30m"
    return scalar(
        f"{expected}, from {least} to {most}" if least else expected,
        parse,
        {"type": "string", "pattern": f"^{_DURATION}$"},
        show_duration,
    )


def show_duration(seconds: float) -> str:
    """Returns a duration as a file has it, in its largest whole unit.

    >>> show_duration(600.0), show_duration(90.0)
    ('10m', '90s')
    """
    return next(
        f"{seconds / size:g}{unit}" for unit, size in _SHOWN_UNITS if seconds % size == 0 or size == 1
    )


def size(*, positive: bool = False) -> ValueKind[int]:
    """Returns the kind of a number of bytes with its unit: of thousands (MB) or of 1024 (MiB)."""

    def parse(text: str) -> int:
        match = re.fullmatch(_SIZE, text)
        if match is None:
            raise Unfit
        thousand = 1024.0 if match[3] else 1000.0
        power: int = _SIZE_UNITS.index(match[2])
        value = float(match[1]) * thousand**power
        if value > _LARGEST_BYTES:
            raise Unfit("at most 1000TB")
        if positive and value == 0:
            raise Unfit("a size above zero")
        return round(value)

    return scalar(
        "a size with its unit, like 500MB, 2GB or 1.5TB",
        parse,
        {"type": "string", "pattern": f"^{_SIZE}$"},
        lambda value: f"{value}B",
    )


def list_of(kind: Readable[T], expected: str) -> ValueKind[tuple[T, ...]]:
    """Returns the kind of a list of at least one element, none of them twice."""

    def read(node: yaml.Node, place: Place) -> tuple[T, ...]:
        values: list[T] = []
        for element in elements_of(node, expected):
            value = kind.read(element, place)
            if value in values:
                raise Mismatch(element, f"found {describe_node(element)} a second time, expected it once")
            values.append(value)
        return tuple(values)

    return ValueKind(
        read, {"type": "array", "items": kind.schema, "minItems": 1, "uniqueItems": True}, expected
    )


def elements_of(node: yaml.Node, expected: str) -> list[yaml.Node]:
    """Returns the elements of a list that has some. Raises Mismatch for all else."""
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        found = "an empty list" if isinstance(node, yaml.SequenceNode) else describe_node(node)
        raise Mismatch(node, f"found {found}, expected {expected}")
    return list(node.value)


def word_or(one: Readable[T], other: Readable[T]) -> ValueKind[T]:
    """Returns the kind that reads a word as ``one``, and all else as ``other``."""

    def read(node: yaml.Node, place: Place) -> T:
        is_word = isinstance(node, yaml.ScalarNode) and node.value
        return (one if is_word else other).read(node, place)

    return ValueKind(read, {"anyOf": (one.schema, other.schema)}, f"{one.expected}, or {other.expected}")
