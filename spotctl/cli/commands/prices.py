"""Defines ``prices``: the history of prices and eviction rates: fetch it, look at it, take it elsewhere."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pricing_data.errors import TraceError
from pricing_data.model.units import Instant
from spotctl.cli.commands import options
from spotctl.cli.format import output as screen
from spotctl.cli.format.report_format import ReportFormat
from spotctl.errors import Interrupted, UsageError
from spotctl.job.choices import CloudName

if TYPE_CHECKING:
    from pricing_data.store.store import PriceStore


class ExportFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"


Markets: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MARKET...]", help="TYPE or TYPE@ZONE, like m4.xlarge@us-east-1a. Default: all."),
]
CloudsOption: TypeAlias = Annotated[
    list[CloudName] | None, typer.Option("--cloud", help="Only this cloud; repeatable.")
]
RegionsOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--region", metavar="REGION", help="Only this region; repeatable.")
]
FromOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Begin, UTC, like 2016-06-01. Default: the first price."),
]
ToOption: TypeAlias = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="End, UTC. Default: the last price.")
]
OutputOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of standard output."),
]

group = typer.Typer(
    help="""Fetch, inspect and export spot prices.

    \b
    Examples:
      spotctl prices fetch --cloud aws
      spotctl prices status
      spotctl prices show c5.xlarge
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` this group of verbs."""
    app.add_typer(group, name="prices")


@group.command()
def fetch(
    clouds: CloudsOption = None,
    regions: RegionsOption = None,
    zones: Annotated[
        list[str] | None, typer.Option("--zone", metavar="ZONE", help="Only this zone; repeatable.")
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this instance type; repeatable.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Go back to this time, UTC. Default: to the newest stored row."),
    ] = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Fetch prices, eviction rates and instance types into the store.

    Queries every cloud for which this computer has access, and gives the reason for each of the others. If
    interrupted, keeps the fetched rows, and the same command continues from there. --region, --zone and
    --type need exactly one --cloud. GCP answers preemption rates per zone and type: naming a few saves most
    of the time.

    \b
    Examples:
      spotctl prices fetch
      spotctl prices fetch --cloud aws --region us-east-1 --since 2026-10-01
    """
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import fetch as fetchview
    from spotctl.prices import fetch_plan

    asked = fetch_plan.FetchRequest(
        clouds=tuple(map(str, clouds or ())),
        regions=tuple(regions or ()),
        zones=tuple(zones or ()),
        types=tuple(types or ()),
        since=options.parse_time_option("--since", since),
    )
    with _open_store() as store, fetchview.make_watcher() as watcher:
        report = fetch_plan.run_fetch(asked, store, watcher.expect_parts, watcher.report_part)
    status = fetch_plan.exit_code(report)
    if options.wants_json(form, as_json):
        screen.write_data(json_lines.to_document(fetchview.fetch_document(report, status)))
    else:
        screen.write_data("\n".join(fetchview.summarize_fetch(report)))
    # Advice tables take seconds to update; after Ctrl-C the next verb that needs them does it.
    if report.interrupted:
        raise typer.Exit(Interrupted.exit_code)
    if any(part.new or part.known or part.quarantined for part in report.parts):
        with _open_store() as store:
            _update_tables(store)
    raise typer.Exit(status)


@group.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Recorded prices: CSV, gzipped CSV or Parquet."),
    ],
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time, UTC, from which undated rows apply, like 2014-11-01."),
    ] = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Import recorded files into the store.

    Reads spot prices, eviction bands, capacity probes, machine lifetimes, on-demand prices, instance types,
    and exports of another store. The rows of one source in a file are added all together or not at all.
    Implausible rows go to quarantine, with the reason.

    \b
    Examples:
      spotctl prices import prices-2015.csv.gz prices-2016.csv.gz
    """
    from pricing_data.store.importing import import_file
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import imports

    outcomes, failures, since = [], [], options.parse_time_option("--as-of", as_of)
    try:
        with _open_store() as store:
            for file in files:
                try:
                    outcomes.append(import_file(store, file, _wall_instant(), as_of=since))
                    screen.write_note(imports.describe_import(outcomes[-1]))
                # One bad file must not keep the others out of the store.
                except TraceError as error:
                    failures.append(str(error))
            if any(outcome.added.new or outcome.added.quarantined for outcome in outcomes):
                _update_tables(store)
    except KeyboardInterrupt:
        # Whole files stay in the store: each is added in one transaction.
        raise Interrupted(imports.describe_interrupt(outcomes, len(files))) from None
    if options.wants_json(form, as_json):
        screen.write_data(json_lines.to_document(imports.import_document(outcomes, failures)))
    if failures:
        raise UsageError("\n".join(failures))


@group.command()
def status(
    clouds: CloudsOption = None,
    regions: RegionsOption = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show what the store contains, and problems with its data.

    Lists markets, rows, time span and age by cloud, region and source, then findings with examples, and gaps.
    Where several sources have one market, shows which of them is used.

    \b
    Examples:
      spotctl prices status
      spotctl prices status --cloud aws --json
    """
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import store as storeview
    from spotctl.prices.store_status import read_store_status

    with _without_garbage_collection(), _open_store() as store:
        found = read_store_status(store, _wall_instant(), tuple(map(str, clouds or ())), tuple(regions or ()))
    if options.wants_json(form, as_json):
        screen.write_data(json_lines.to_document(storeview.store_document(found, _wall_instant())))
    elif storeview.is_empty(found):
        screen.write_note(storeview.NO_PRICES)
    else:
        screen.show_picture(storeview.draw_store(found, _wall_instant()))


@group.command()
def show(
    markets: Markets = None,
    clouds: CloudsOption = None,
    regions: RegionsOption = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show current prices, with age and source.

    \b
    Examples:
      spotctl prices show --cloud aws
      spotctl prices show c5.xlarge p3.2xlarge@us-east-1c
    """
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import quotes as quoteview
    from spotctl.prices.quotes import list_quotes, select_quotes

    with _open_store() as store:
        found = select_quotes(
            list_quotes(store), markets or [], tuple(map(str, clouds or ())), tuple(regions or ())
        )
    if options.wants_json(form, as_json):
        screen.write_data(json_lines.to_document(quoteview.quotes_document(found, _wall_instant())))
    else:
        screen.write_note(*quoteview.quote_warnings(found, _wall_instant()))
        if found:
            screen.show_picture(quoteview.draw_quotes(found, _wall_instant()))


@group.command()
def history(
    market: Annotated[
        str, typer.Argument(metavar="MARKET", help="TYPE@ZONE, or TYPE if only one zone has it.")
    ],
    begin: FromOption = None,
    end: ToOption = None,
    form: Annotated[
        ReportFormat, typer.Option("--format", help="Format of standard output.")
    ] = ReportFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show every price change of one market.

    The first row is the price in force at the beginning.

    \b
    Examples:
      spotctl prices history m4.xlarge@us-east-1a --from 2016-06-01 --format csv
    """
    from spotctl.cli.views import quotes as quoteview
    from spotctl.prices.quotes import cut_series, find_quote, list_quotes

    first, last = options.parse_time_option("--from", begin), options.parse_time_option("--to", end)
    with _open_store() as store:
        quote = find_quote(list_quotes(store), market)
        steps = cut_series(store.series(quote.market), first, last)
    # --json stands for --format json in every verb.
    form = ReportFormat.JSON if as_json else form
    screen.write_note(*quoteview.describe_origin(quote, _wall_instant()))
    screen.show_picture(
        quoteview.draw_history(quote, steps)
    ) if form is ReportFormat.TABLE else screen.write_data(
        quoteview.history_text(quote, steps, form, _wall_instant())
    )


@group.command()
def plot(
    markets: Annotated[
        list[str] | None,
        typer.Argument(metavar="MARKET...", help="TYPE or TYPE@ZONE, like m4.xlarge@us-east-1a; up to 8."),
    ] = None,
    begin: FromOption = None,
    end: ToOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Draw into FILE: .svg, .html or .png."),
    ] = None,
) -> None:
    """Plot prices over time, in the terminal or into a file.

    PNG needs Pillow: pip install 'spotctl[plot]'.

    \b
    Examples:
      spotctl prices plot c5.xlarge
      spotctl prices plot c5.xlarge --from 2026-10-01 -o c5.svg
    """
    from spotctl.cli.commands import plots
    from spotctl.prices.quotes import cut_series, list_quotes, select_quotes

    if not markets:
        raise UsageError("plot: expected at least one MARKET, like m4.xlarge@us-east-1a")
    first, last = options.parse_time_option("--from", begin), options.parse_time_option("--to", end)
    with _open_store() as store:
        found = select_quotes(list_quotes(store), markets, (), ())
        curves = plots.make_curves(
            found, [cut_series(store.series(q.market), first, last) for q in found], last, _wall_instant()
        )
    if output is None:
        screen.write_data(plots.draw_in_terminal(curves))
    else:
        plots.write_chart(curves, output)
        screen.write_note(f"written to {output}")


@group.command()
def export(
    markets: Markets = None,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="Format; parquet needs -o.")
    ] = ExportFormat.CSV,
    output: OutputOption = None,
) -> None:
    """Export the rows of the store.

    Writes every accepted row with its source and observation time. `spotctl prices import` reads the file.

    \b
    Examples:
      spotctl prices export c5.xlarge > c5.csv
      spotctl prices export --format parquet -o prices.parquet
    """
    from spotctl.prices.exports import export_rows as write

    if form is ExportFormat.PARQUET and output is None:
        raise UsageError("export: Parquet is not text; name a file with -o")
    with _open_store() as store:
        rows = write(store, markets or [], form.value, output, sys.stdout.buffer)
    screen.write_note(f"{rows:,} rows written" + (f" to {output}" if output else ""))


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Stops garbage collection: tens of thousands of small values are made and kept, none of them garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _update_tables(store: PriceStore) -> None:
    """Updates the tables that `spotctl advise` reads; otherwise the next `advise` makes them."""
    screen.write_note("updating the tables that `spotctl advise` reads")
    try:
        from spotctl.prices import market_table_build

        market_table_build.refresh_tables(store)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted: all rows are in the store; `spotctl advise` will take longer once"
        ) from None


@contextlib.contextmanager
def _open_store() -> Iterator[PriceStore]:
    """Opens this user's store; reports errors of it, or of a file, in a line."""
    from pricing_data.store.store import PriceStore
    from spotctl.job.price_sources import prices_root, report_errors

    with report_errors():
        yield PriceStore(prices_root())


def _wall_instant() -> Instant:
    from spotctl.timesource import wall_clock

    return Instant(int(wall_clock()))
