"""Defines mappings by tables of their keys, and reads them, reporting all problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

import yaml

from spotctl.schema.document import Document, Mismatch, describe_node, suggest_nearest
from spotctl.schema.kinds import JsonSchema, Place, Readable, ValueKind, elements_of, full_pattern

T = TypeVar("T")
Values: TypeAlias = dict[str, Any]

FROM_EMPTY: Final[Any] = object()
"""As the default of a key whose value is a mapping: what an empty mapping says."""


@dataclass(frozen=True)
class Key:
    """Defines one key of a mapping.

    ``default`` is its value where the key is absent, and stands in for one that is wrong. ``needs`` says what
    to write where the key has to be there. ``otherwise`` describes a default that is no fixed value.
    ``field`` names the value for what makes a value of the mapping; by default it is the key's name.
    """

    name: str
    kind: Readable[Any]
    text: str
    default: Any = None
    needs: str = ""
    otherwise: str = ""
    field: str = ""

    @property
    def shown_default(self) -> Any:
        """Returns the default as a file would have it; None where it is no fixed value."""
        # A derived default, like the number of cores, has no text that a file could have.
        fixed = self.default not in (None, FROM_EMPTY) and not self.needs and not self.otherwise
        return self.kind.show(self.default) if fixed and isinstance(self.kind, ValueKind) else None

    @property
    def description(self) -> str:
        """Returns what it means, without the links of the documentation."""
        return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", self.text)

    @property
    def schema(self) -> JsonSchema:
        """Returns the JSON Schema of its value, with description and default for editors."""
        text = self.description
        if self.kind.expected not in text and "enum" not in self.kind.schema:
            text = f"{text}. Expected: {self.kind.expected}" if text else self.kind.expected
        default = {} if self.shown_default is None else {"default": self.shown_default}
        return {"description": text, **default, **self.kind.schema}


@dataclass(frozen=True)
class KeyTable(Generic[T]):
    """Defines a mapping by its keys. ``make`` turns their values into the value of the mapping.

    It gets the section too, for problems that involve several keys. ``refused``: keys that other mappings
    have, and what to say of them here. ``any_of``: what to write where a mapping has none of its keys.
    """

    make: Callable[[Section, Values], T]
    keys: tuple[Key, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    any_of: str = ""
    expected: str = ""

    def read(self, node: yaml.Node, place: Place) -> T:
        """Reads a mapping. Raises Mismatch where ``node`` is none; reports what is wrong within."""
        return self.read_section(Section(place, node, self.expected))

    def read_section(self, section: Section) -> T:
        """Reads the values of a mapping, reports keys that it cannot have, and makes its value."""
        written, values = section.entries, dict[str, Any]()
        # Refused keys stay in ``unknown`` too; ``reject`` keeps them from being reported twice.
        unknown = set(written)
        for name in written.keys() & self.refused.keys():
            section.reject(name, self.refused[name])
        for key in self.keys:
            unknown.discard(key.name)
            # Most keys of a file are absent, and mean their defaults: those are not asked for.
            asked = key.name in written or key.needs or key.default is FROM_EMPTY
            values[key.field or key.name] = section.get(key) if asked else key.default
        if self.any_of and len(unknown) == len(written):
            section.report_empty(self.any_of)
        if unknown:
            section.report_unknown([key.name for key in self.keys])
        return self.make(section, values)

    @property
    def schema(self) -> JsonSchema:
        needed = tuple(key.name for key in self.keys if key.needs)
        return {
            "type": "object",
            "properties": {key.name: key.schema for key in self.keys},
            "additionalProperties": False,
            **({"required": needed} if needed else {}),
            **({"minProperties": 1} if self.any_of else {}),
        }


class Section:
    """Holds one mapping while it is read. An absent mapping reads as if it were empty.

    One that was already reported as missing or malformed is ``silent`` about its own missing keys.
    Raises Mismatch where ``node`` is no mapping; ``holds`` names what it should hold.
    """

    def __init__(
        self, place: Place, node: yaml.Node | None, holds: str = "", *, silent: bool = False
    ) -> None:
        if node is not None and not isinstance(node, yaml.MappingNode):
            expected = f"a mapping: {holds}" if holds else "a mapping"
            raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
        self._document, self._path = place
        self._silent = silent
        self._mark = node.start_mark if node else None
        self._rejected: set[str] = set()
        self.entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        """The keys as written, each with its nodes."""
        for key, value in node.value if node else ():
            # YAML loaders keep the last of two equal keys silently; here the first counts and the second is a
            # problem.
            if isinstance(key, yaml.ScalarNode) and key.value not in self.entries:
                self.entries[key.value] = (key, value)
            else:
                self._report_key(key)

    def _report_key(self, key: yaml.Node) -> None:
        if isinstance(key, yaml.ScalarNode):
            first = self.entries[key.value][0].start_mark.line + 1
            message = f"found a second time, expected once (first in line {first})"
            self._document.report_problem(key.start_mark, self._place_of(key.value).path, message)
        else:
            message = f"found {describe_node(key)} as a key, expected a word"
            self._document.report_problem(key.start_mark, self._path, message)

    def _place_of(self, key: str) -> Place:
        return Place(self._document, f"{self._path}.{key}" if self._path else key)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    @property
    def document(self) -> Document:
        """Returns the file that the mapping is part of."""
        return self._document

    def node(self, key: str) -> yaml.Node:
        """Returns the node below ``key``, which has to be there, as it was written."""
        return self.entries[key][1]

    def word_at(self, key: str) -> str:
        """Returns the word below ``key`` as written; an empty one where there is none."""
        node = self.entries[key][1] if key in self.entries else None
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""

    def get(self, key: Key) -> Any:
        """Returns the value of ``key``, or its default where it is absent, or wrong (which is reported)."""
        place = Place(self._document, f"{self._path}.{key.name}" if self._path else key.name)
        if key.name in self.entries:
            node = self.entries[key.name][1]
            try:
                return key.kind.read(node, place)
            except Mismatch as mismatch:
                self._document.report_problem(mismatch.node.start_mark, place.path, str(mismatch))
        elif key.needs:
            self._report_missing(place.path, key.needs)
        if key.default is FROM_EMPTY and isinstance(key.kind, KeyTable):
            # One problem is reported once, not again for every key below a missing mapping.
            silent = self._silent or bool(key.needs) or key.name in self.entries
            return key.kind.read_section(Section(place, None, silent=silent))
        return key.default

    def reject(self, key: str, message: str) -> None:
        """Reports a key that is known but cannot be there, or cannot have its value, beside the others."""
        self._rejected.add(key)
        # A key that is absent has no line; its mapping's line is the nearest one.
        mark = self.entries[key][1].start_mark if key in self.entries else self._mark
        self._document.report_problem(mark, self._place_of(key).path, message)

    def report_empty(self, expected: str) -> None:
        """Reports that the mapping has none of its keys."""
        self._report_missing(self._path, expected)

    def _report_missing(self, path: str, expected: str) -> None:
        if not self._silent:
            self._document.report_problem(self._mark, path, f"missing, expected {expected}")

    def report_unknown(self, known: list[str]) -> None:
        """Reports the keys that are neither ``known`` nor rejected already, with the nearest known one."""
        listed = ", ".join(sorted(known))
        for name in self.entries.keys() - set(known) - self._rejected:
            message = f"unknown key, expected one of {listed}{suggest_nearest(name, known)}"
            self._document.report_problem(
                self.entries[name][0].start_mark, self._place_of(name).path, message
            )


def mapping_of(kind: Readable[T], pattern: str, expected: str) -> ValueKind[dict[str, T]]:
    """Returns the kind of a mapping whose keys are the user's own; ``expected`` says what they look like."""

    def read(node: yaml.Node, place: Place) -> dict[str, T]:
        section = Section(place, node)
        values = {name: section.get(Key(name, kind, "")) for name in section.entries}
        for name in values:
            if re.fullmatch(pattern, name) is None:
                section.reject(name, f"found the key {name!r}, expected {expected}")
        # Wrong values are None here, and were reported.
        return {name: value for name, value in values.items() if value is not None}

    names = {"pattern": full_pattern(pattern)}
    return ValueKind(
        read, {"type": "object", "propertyNames": names, "additionalProperties": kind.schema}, expected
    )


def list_of_mappings(table: KeyTable[T], expected: str) -> ValueKind[tuple[T, ...]]:
    """Returns the kind of a list of at least one such mapping; problems name the list's key, not an index."""

    def read(node: yaml.Node, place: Place) -> tuple[T, ...]:
        return tuple(table.read(element, place) for element in elements_of(node, expected))

    return ValueKind(read, {"type": "array", "items": table.schema, "minItems": 1}, expected)


def make_from(cls: Callable[..., T]) -> Callable[[Section, Values], T]:
    """Returns what makes a ``cls`` of the values of a mapping, by its fields' names."""
    return lambda _, values: cls(**values)


def keep_values(_: Section, values: Values) -> Values:
    """Makes a plain mapping of a section: what holds it uses the values."""
    return values
