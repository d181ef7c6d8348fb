"""Shows current prices and price histories, with source and age, to people and to programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table

from pricing_data.model.market import Series
from pricing_data.model.units import Instant, format_instant
from spotctl.cli.format import event_text, json_lines
from spotctl.cli.format.report_format import ReportFormat
from spotctl.cli.views.advice import format_age
from spotctl.cli.views.store import NO_PRICES
from spotctl.prices.quotes import Quote

_COLUMNS: Final = ("time_utc", "cloud", "region", "zone", "instance_type", "price_usd_hour", "source")


def draw_quotes(quotes: Sequence[Quote], now: Instant) -> RenderableType:
    """Draws a row for each market."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("market", no_wrap=True)
    for title in ("$/h", "since", "age", "rows"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("remarks")
    for quote in quotes:
        table.add_row(
            str(quote.market),
            "-" if quote.price is None else event_text.format_price(quote.price),
            format_instant(quote.since),
            format_age(quote.age_s(now)),
            f"{quote.rows:,}",
            quote.source,
            _describe_remarks(quote, now),
        )
    return table


def quote_warnings(quotes: Sequence[Quote], now: Instant) -> list[str]:
    """Returns warnings about all of them: none stored, or stale ones."""
    if not quotes:
        return [NO_PRICES]
    stale = sum(quote.is_stale(now) for quote in quotes)
    if not stale:
        return []
    return [f"{stale} of {len(quotes)} prices are stale; `spotctl prices fetch` updates them"]


def _describe_remarks(quote: Quote, now: Instant) -> str:
    approximate = "times are approximate" if quote.approximate else ""
    return "; ".join(filter(None, ("stale" if quote.is_stale(now) else "", quote.doubt, approximate)))


def quotes_document(quotes: Sequence[Quote], now: Instant) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.prices.show/1``."""
    return {"schema": "spotctl.prices.show/1", "prices": [quote_fields(quote, now) for quote in quotes]}


def quote_fields(quote: Quote, now: Instant) -> dict[str, Any]:
    """Returns one quote for programs."""
    return {
        "cloud": quote.market.cloud,
        "region": quote.market.region,
        "zone": quote.market.zone,
        "instance_type": quote.market.instance_type,
        "price": None if quote.price is None else f"{quote.price:.6f}",
        "since": format_instant(quote.since),
        "observed": format_instant(quote.observed),
        "age_seconds": quote.age_s(now),
        "stale": quote.is_stale(now),
        "first": format_instant(quote.first),
        "rows": quote.rows,
        "source": quote.source,
        "sources": list(quote.sources),
        "semantics": str(quote.semantics),
        "approximate": quote.approximate,
        "doubt": quote.doubt or None,
    }


# ---- histories ----------------------------------------------------------------------------------


def describe_origin(quote: Quote, now: Instant) -> list[str]:
    """Returns the source of a history, the age of its end, and remarks."""
    said = (
        f"{quote.market}: {quote.source}, a{'n' if quote.semantics[0] in 'aeiou' else ''} {quote.semantics}"
    )
    lines = [f"{said}; last seen {format_age(quote.age_s(now))} ago"]
    others = [source for source in quote.sources if source != quote.source]
    if others:
        lines.append(f"gaps are filled from: {', '.join(others)}")
    return lines + ([f"warning: {_describe_remarks(quote, now)}"] if _describe_remarks(quote, now) else [])


def draw_history(quote: Quote, steps: Series) -> RenderableType:
    """Draws every price change, and how long the price held."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("from (UTC)", no_wrap=True)
    for title in ("$/h", "for"):
        table.add_column(title, justify="right", no_wrap=True)
    ends = [*steps.times[1:].tolist(), max(quote.observed, *steps.times[-1:].tolist())]
    for begin, price, end in zip(steps.times.tolist(), steps.prices.tolist(), ends, strict=True):
        table.add_row(format_instant(Instant(begin)), event_text.format_price(price), format_age(end - begin))
    return table


def history_text(quote: Quote, steps: Series, form: ReportFormat, now: Instant) -> str:
    """Writes CSV, or one JSON object: ``spotctl.prices.history/1``."""
    rows = list(_list_steps(steps))
    if form is ReportFormat.JSON:
        listed = [{"time": at, "price": f"{price:.6f}"} for at, price in rows]
        about = {"schema": "spotctl.prices.history/1", **quote_fields(quote, now)}
        return json_lines.to_document({**about, "steps": listed})
    market, text = quote.market, io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    names = (market.cloud, market.region, market.zone, market.instance_type)
    writer.writerows((at, *names, event_text.format_price(price), quote.source) for at, price in rows)
    return text.getvalue().rstrip("\n")


def _list_steps(steps: Series) -> Iterator[tuple[str, float]]:
    for at, price in zip(steps.times.tolist(), steps.prices.tolist(), strict=True):
        yield format_instant(Instant(at)), price
