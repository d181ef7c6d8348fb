"""Arguments and options that several verbs share, so that they read alike everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from pricing_data.units import Instant, MicroUsd, Seconds, micros, parse_duration, parse_instant
from spotctl.errors import UsageError


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class ReportFormat(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


JobFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="JOB.yaml", help="The job file.", show_default=False)
]
JobName: TypeAlias = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's name, or that of one run.", show_default=False)
]
FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="How to write to standard output.")]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Short for --format json.")]

_LARGEST_BUDGET: Final = 1e9


def wants_json(form: Format, as_json: bool) -> bool:
    return as_json or form is Format.JSON


def duration(option: str, text: str | None) -> Seconds | None:
    """Read the value of a duration option. Raises UsageError that names the option."""
    if text is None:
        return None
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if value <= 0:
        raise UsageError(f"{option}: found {text!r}, expected a duration above zero")
    return value


def moment(option: str, text: str | None) -> Instant | None:
    """Read the value of a time option. Raises UsageError that names the option."""
    if text is None:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def dollars(option: str, text: str | None) -> MicroUsd | None:
    """Read the value of a money option. Raises UsageError that names the option."""
    if text is None:
        return None
    try:
        value = float(text.removeprefix("$"))
    except ValueError:
        value = 0.0
    if not 0 < value < _LARGEST_BUDGET:
        raise UsageError(f"{option}: found {text!r}, expected dollars above 0, like 5.00")
    return micros(value)


def variables(option: str, pairs: list[str]) -> dict[str, str]:
    """Read repeated K=V options. Raises UsageError for one without a name or an equals sign."""
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{option}: found {pair!r}, expected NAME=VALUE")
        values[name] = value
    return values
