"""Defines ``backtest``: what a job would have cost from many moments of the past, by every strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.commands import options
from spotctl.cli.commands.launch import AvailabilityOption, RulesOption, TraceMarketOption
from spotctl.cli.format import output
from spotctl.errors import UsageError


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verb of this module."""
    app.command()(backtest)


def backtest(
    job: options.JobFile,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin of the window, UTC; earlier prices are training data. Default: 30 days in.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="End of the window, UTC. Default: the end of the prices."),
    ] = None,
    starts: Annotated[
        int,
        typer.Option(min=1, max=100_000, metavar="N", help="Number of random start times within the window."),
    ] = 1000,
    strategies: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Strategies to compare with on-demand. Default: all."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed of the start times.")] = 0,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Recorded spot prices; repeatable. Default: the job file's prices, else the price store if "
            "it has a month of them, else the bundled market.",
        ),
    ] = None,
    trace_market: TraceMarketOption = None,
    rules: RulesOption = None,
    availability: AvailabilityOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Also draw the costs of every strategy.")
    ] = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Compare strategies on past prices, from many start times.

    Shows costs and run times against the clairvoyant optimum: the least cost if all prices were known in
    advance. Eviction estimates use only prices before the window, and no strategy sees the future. A job
    with a deadline is also run from some of the start times with the deadline enforced.

    \b
    Examples:
      spotctl backtest movies.yaml
      spotctl backtest movies.yaml --from 2016-06-11 --starts 200 --plot costs.svg
    """
    # Refused before the work and not after it.
    if plot is not None and plot.suffix.lower() != ".svg":
        raise UsageError(f"--plot {plot}: expected a name that ends in .svg")
    first, last = options.parse_time_option("--from", begin), options.parse_time_option("--to", end)
    from dataclasses import replace

    from spotctl.backtest import chart
    from spotctl.backtest.prepare import BacktestOptions, prepare_backtest
    from spotctl.backtest.result import run_backtest
    from spotctl.backtest.strategies import check_names
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import backtest as backtestview
    from spotctl.job.file import load_job
    from spotctl.job.locations import locate_errors
    from spotctl.timesource import stopwatch

    # Names are checked before prices are read, which takes far longer.
    wanted = tuple(name.strip() for name in strategies.split(",") if name.strip()) if strategies else ()
    check_names(wanted)
    chosen = BacktestOptions(
        traces=tuple(trace or ()),
        markets=tuple(trace_market or ()),
        rules=rules,
        availability=availability,
        first=first,
        last=last,
        starts=starts,
        strategies=wanted,
        seed=seed,
    )
    began = stopwatch()
    spec = load_job(job)
    with locate_errors(job), backtestview.show_progress() as told:
        result = run_backtest(spec.name, prepare_backtest(spec, chosen), chosen, 0.0, told)
    # The time that the user waited, reading included.
    result = replace(result, elapsed_s=round(stopwatch() - began, 3))
    if plot is not None:
        _write_chart(plot, chart.draw_svg(result))
    if options.wants_json(form, as_json):
        output.write_data(json_lines.to_document(backtestview.backtest_document(result)))
    else:
        output.show_picture(backtestview.draw_backtest(result))
    if plot is not None:
        output.write_note(f"written to {plot}")


def _write_chart(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--plot {path}: cannot be written: {error.strerror}") from error
