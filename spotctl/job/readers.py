"""Reads the kinds of value that job files have: a lease, an amount, places, keys that are the user's own.

Readers depend on no file, so each is made once, here. The code that reads a field says what it means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import yaml

from pricing_data.model.units import MicroUsd, Seconds, to_micros
from spotctl.job.spec import STRATEGIES, Amount, Argument
from spotctl.job.yaml_reader import (
    Mismatch,
    Reader,
    Section,
    describe_node,
    duration,
    list_of,
    number,
    one_of,
    size,
    switch,
    whole_number,
    word,
)

T = TypeVar("T")

JOB_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Matches names of jobs. A run's folder carries the name, so it must be a valid name everywhere."""
INSTANCE_TYPE: Final = r"[A-Za-z0-9][\w.-]*"
VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"
A_NAME: Final = "a name of letters, digits, '.', '_' and '-', at most 64 of them"
A_CLASS: Final = "a class like agileml.apps.mf:MatrixFactorization or mine.py:Mine"
AN_INTERVAL: Final = "clocks, like 20, or a time with its unit, like 10m"
_APP: Final = r"([A-Za-z_][\w.]*|.*\.py):[A-Za-z_]\w*"
_AMOUNT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(\+?)")
_LARGEST_BUDGET: Final = 999_999_999.99
_LEAST_LEASE_S: Final = 60.0
_LONGEST_LEASE_S: Final = 30 * 86400.0
_MOST_MACHINES: Final = 10_000
"""Most machines at once; a plan weighs every number of them. Larger numbers are typing errors."""
_MOST_PARTS: Final = 1_000_000
"""Most parts of a model or an input; every process knows every part by name."""
_MOST_CLOCKS: Final = 999_999_999
_MOST_WORK: Final = 1e12
"""Most work of one clock, in core-seconds: that of thirty thousand cores for a year."""
_LONGEST_S: Final = 1e9
"""Thirty years."""


YES_OR_NO: Final = switch()
ON_OR_OFF: Final = switch("on", "off")
STAGES: Final = switch("measured", "by-ratio")
FROM_0: Final = whole_number(0)
FROM_1: Final = whole_number(1)
MACHINES_FROM_0: Final = whole_number(0, _MOST_MACHINES)
MACHINES: Final = whole_number(1, _MOST_MACHINES)
PARTS: Final = whole_number(1, _MOST_PARTS)
CLOCKS: Final = whole_number(1, _MOST_CLOCKS)
ABOVE_ZERO: Final = number("a number above 0", above=0)
RATIO: Final = number("a number of at least 0", least=0)
SHARE: Final = number("a number above 0 and at most 1", above=0, most=1)
DOLLARS: Final = number("dollars above 0, like 5.00", above=0, most=_LARGEST_BUDGET)
WORK: Final = number(f"a number above 0 and at most {_MOST_WORK:g}", above=0, most=_MOST_WORK)
DURATION: Final = duration()
_SECONDS: Final = number(f"a number above 0 and at most {_LONGEST_S:g}", above=0, most=_LONGEST_S)
SPAN: Final = duration(positive=True)
CLASS: Final = word(A_CLASS, _APP)
NAME: Final = word(A_NAME, JOB_NAME)
PRICES: Final = word("the name of a source of prices, or a recorded file")
TEXT: Final = word("text", r"(?s).*")
PLACE: Final = word("a folder or a URL")
DATA: Final = word("a file or a URL")
METRIC: Final = word("the name of a metric")
TYPE: Final = word("an instance type")
REGION: Final = word("a region")
ZONE: Final = word("a zone")
COLUMN: Final = word("the name of a column, or its place from 0")
CLOUD: Final = one_of("aws", "gcp", "azure")
GOAL: Final = one_of("cost")
STRATEGY: Final = one_of(*STRATEGIES)
PROGRESS: Final = one_of("measured", "modelled")
CLOUD_LIST: Final = list_of(CLOUD, "a list of clouds")
COLUMNS: Final = list_of(COLUMN, "a list of columns")
TYPES: Final = list_of(word("one of the instance types"), "a list of instance types")
REGIONS: Final = list_of(word("one of the regions"), "a list of regions")
ZONES: Final = list_of(word("one of the zones"), "a list of zones")
_PLAIN: Final = word("a number, a word, true, false, or a list of those", r"(?s).*")


def absolute_location(written: str, folder: Path) -> str:
    """Returns a URL as it is, and a path as an absolute one; relative paths start from ``folder``."""
    return written if "://" in written else str((folder / Path(written).expanduser()).resolve())


def own_keys(section: Section, read: Reader[T], pattern: str, expected: str) -> Mapping[str, T]:
    """Reads a mapping whose keys are the user's own; ``expected`` says what they look like."""
    values: dict[str, T] = {}
    for key in section.entries:
        if re.fullmatch(pattern, key) is None:
            section.reject(key, f"found the key {key!r}, expected {expected}")
        value = section.get(key, read, None)
        if value is not None:
            values[key] = value
    return values


def read_seconds(node: yaml.Node) -> Seconds:
    """Reads a nominal time in seconds."""
    return Seconds(_SECONDS(node))


def read_interval(node: yaml.Node) -> tuple[int, Seconds]:
    """Reads a number of clocks, or a nominal time."""
    if isinstance(node, yaml.ScalarNode) and node.value.isdigit():
        return FROM_1(node), Seconds(0.0)
    try:
        return 0, SPAN(node)
    except Mismatch:
        raise Mismatch(node, f"found {describe_node(node)}, expected {AN_INTERVAL}") from None


def read_lease(node: yaml.Node) -> Seconds:
    """Reads a lease. It has to end: machines that nothing drives cost money."""
    span = DURATION(node)
    if not _LEAST_LEASE_S <= span <= _LONGEST_LEASE_S:
        raise Mismatch(node, f"found {describe_node(node)}, expected a time from 1m to 30d")
    return span


def read_amount(node: yaml.Node) -> Amount:
    """Reads 4 (exactly) or 4+ (at least)."""
    expected = "an amount like 4 (exactly) or 4+ (at least)"
    match = _AMOUNT.fullmatch(word(expected)(node))
    if match is None:
        raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
    return Amount(float(match[1]), or_more=match[2] == "+")


def read_memory(node: yaml.Node) -> int:
    """Reads a size above zero, in bytes."""
    found = size()(node)
    if found == 0:
        raise Mismatch(node, f"found {describe_node(node)}, expected a size above zero")
    return found


def read_budget(node: yaml.Node) -> MicroUsd:
    """Reads dollars."""
    return to_micros(DOLLARS(node))


def read_argument(node: yaml.Node) -> Argument:
    """Reads an application's argument: a number, a word, true, false, or a list of those."""
    if isinstance(node, yaml.SequenceNode):
        return tuple(_read_plain(element) for element in node.value)
    return _read_plain(node)


def _read_plain(node: yaml.Node) -> str | int | float | bool:
    text = _PLAIN(node)
    quoted = isinstance(node, yaml.ScalarNode) and node.style is not None
    if not quoted and text in ("true", "false"):
        return text == "true"
    for kind in () if quoted else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
