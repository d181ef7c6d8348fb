"""Defines ``report``: where the money went."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pricing_data.model.units import parse_instant
from spotctl.cli.commands import options
from spotctl.cli.commands.options import JsonOption
from spotctl.cli.format import output as screen
from spotctl.cli.format.report_format import ReportFormat
from spotctl.errors import SpotctlError, UsageError
from spotctl.report.groupings import Grouping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotctl.report.summary import RunSummary

_STAMP: Final = len("20261120T093214Z")
"""Length of the moment with which a run's id begins."""


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verb of this module."""
    app.command()(report)


def report(
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only runs that began since then: 7d (ago), yesterday, 2026-11-01 (UTC)."
        ),
    ] = None,
    by: Annotated[
        Grouping, typer.Option(help="What a row is. A run belongs to the day it began, in local time.")
    ] = Grouping.JOB,
    form: Annotated[
        ReportFormat, typer.Option("--format", help="Format of the report.")
    ] = ReportFormat.TABLE,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of standard output."),
    ] = None,
) -> None:
    """Show what runs cost, and what they saved.

    Savings are relative to the same work on demand.

    \b
    Examples:
      spotctl report --since 7d
      spotctl report --since 2026-11-01 --by market --format csv -o nov.csv
    """
    from spotctl.cli.views import runs as runtable
    from spotctl.records.run import RunStore
    from spotctl.records.run_history import summarize_runs

    begin = options.parse_since_option("--since", since, time.time())
    every = RunStore().list_runs()
    chosen = [run for run in every if begin is None or parse_instant(run.id[:_STAMP]) >= begin]
    found, unreadable = summarize_runs(chosen)
    runs = {f"{run.name}/{run.id}": summary for run, summary in found.items()}
    if as_json:
        form = ReportFormat.JSON
    if not chosen:
        screen.write_note(f"no run began since {since}" if every else runtable.none_yet())
    if chosen or output is not None or form is not ReportFormat.TABLE:
        _write_report(runs, by, form, output)
    if unreadable:
        raise SpotctlError("\n".join((*unreadable, "what these have cost is not in the report")))


def _write_report(
    runs: Mapping[str, RunSummary], by: Grouping, form: ReportFormat, output: Path | None
) -> None:
    from spotctl.cli.views import report as reportview

    if form is ReportFormat.TABLE and output is None:
        screen.show_rows(reportview.report_table(runs, by))
        return
    text = {
        ReportFormat.TABLE: reportview.plain_table,
        ReportFormat.CSV: reportview.rows_csv,
        ReportFormat.JSON: reportview.report_document,
    }[form](runs, by)
    if output is None:
        screen.write_data(text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: cannot be written: {error.strerror}") from error
    screen.write_note(f"written to {output}")
