"""Defines arguments and options that several verbs share, so that they read alike everywhere."""

from __future__ import annotations

import datetime as dt
import glob
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from pricing_data.model.units import Instant, MicroUsd, Seconds, parse_duration, parse_instant, to_micros
from spotctl.errors import UsageError


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def complete_jobs(incomplete: str) -> list[str]:
    """Returns names of jobs on record that begin like ``incomplete``, for the shell."""
    return sorted(
        folder.name for folder in _jobs_folder().glob(f"{glob.escape(incomplete)}*") if folder.is_dir()
    )


def complete_rules(incomplete: str) -> list[str]:
    """Returns names of billing rules that begin like ``incomplete``, for the shell."""
    from pricing_data.model.rules import RULES

    return [name for name in RULES if name.startswith(incomplete)]


def _jobs_folder() -> Path:
    from spotctl.records.run import default_root

    return default_root() / "jobs"


JobFile: TypeAlias = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="Job file.", show_default=False)]
JobName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Name of a job (its newest run), or ID of a run.",
        show_default=False,
        autocompletion=complete_jobs,
    ),
]
FormatOption: TypeAlias = Annotated[OutputFormat, typer.Option("--format", help="Format of standard output.")]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Same as --format json.")]

_LARGEST_BUDGET: Final = 1e9


def wants_json(form: OutputFormat, as_json: bool) -> bool:
    return as_json or form is OutputFormat.JSON


def parse_duration_option(option: str, text: str | None) -> Seconds | None:
    """Reads the value of a duration option. Raises UsageError that names the option."""
    if text is None:
        return None
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if value <= 0:
        raise UsageError(f"{option}: found {text!r}, expected a duration above zero")
    return value


def parse_time_option(option: str, text: str | None) -> Instant | None:
    """Reads the value of a time option. Raises UsageError that names the option."""
    if text is None:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def parse_since_option(option: str, text: str | None, now: float) -> Instant | None:
    """Reads since when to count: 7d (ago), yesterday, today, or a time.

    Days begin at midnight of this computer's time zone. ``now``: seconds since the epoch. Raises UsageError
    that names the option.
    """
    days = {"today": 0, "yesterday": 1}
    if text in days:
        midnight = (
            dt.datetime.fromtimestamp(now).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        )
        return Instant(int((midnight - dt.timedelta(days=days[text])).timestamp()))
    if text is not None:
        try:
            return Instant(int(now - parse_duration(text)))
        except ValueError:
            pass
    try:
        return parse_time_option(option, text)
    except UsageError:
        raise UsageError(
            f"{option}: {text!r} is not a time; write it like 7d, yesterday or 2026-11-01T08:00:00Z"
        ) from None


def parse_dollars_option(option: str, text: str | None) -> MicroUsd | None:
    """Reads the value of a money option. Raises UsageError that names the option."""
    if text is None:
        return None
    try:
        value = float(text.removeprefix("$"))
    except ValueError:
        value = 0.0
    if not 0 < value < _LARGEST_BUDGET:
        raise UsageError(f"{option}: found {text!r}, expected dollars above 0, like 5.00")
    return to_micros(value)


def parse_variables_option(option: str, pairs: list[str]) -> dict[str, str]:
    """Reads repeated K=V options. Raises UsageError for one without a name or an equals sign."""
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{option}: found {pair!r}, expected NAME=VALUE")
        values[name] = value
    return values
