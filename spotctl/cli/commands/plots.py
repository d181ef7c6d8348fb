"""Plots prices in the terminal, or into a file whose suffix gives the format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pricing_data.model.market import Series
from pricing_data.model.units import Instant
from spotctl.charts import axes, drawing
from spotctl.charts.axes import PriceCurve
from spotctl.cli.views.advice import format_age
from spotctl.errors import UsageError
from spotctl.prices.quotes import Quote

_MOST_CURVES = 8
_ROWS = 8


def make_curves(
    quotes: Sequence[Quote], series: Sequence[Series], until: Instant | None, now: Instant
) -> list[PriceCurve]:
    """Makes a curve for each market with a price in the span. Raises UsageError for none, or too many."""
    drawn = [
        PriceCurve(
            str(quote.market),
            steps,
            Instant(max(min(quote.observed, until or quote.observed), int(steps.times[-1]))),
            f"{quote.source}, {format_age(quote.age_s(now))} old",
        )
        for quote, steps in zip(quotes, series, strict=True)
        if len(steps)
    ]
    if not drawn:
        raise UsageError(
            "plot: these markets have no price in that time; `spotctl prices show` lists all prices"
        )
    if len(drawn) > _MOST_CURVES:
        raise UsageError(
            f"plot: found {len(drawn)} markets, expected at most {_MOST_CURVES}; name them as TYPE@ZONE"
        )
    return drawn


def draw_in_terminal(drawn: Sequence[PriceCurve]) -> str:
    """Draws curves as wide as the terminal."""
    return axes.draw_terminal(drawn, max(shutil.get_terminal_size((100, 24)).columns, 40), _ROWS)


def write_chart(drawn: Sequence[PriceCurve], output: Path) -> None:
    """Draws into ``output``. Raises UsageError for an unknown suffix, or a file that cannot be written."""
    title = ", ".join(curve.name for curve in drawn)
    ending = output.suffix.lower()
    if ending == ".svg":
        content = drawing.to_svg(drawn, title).encode()
    elif ending in (".html", ".htm"):
        content = drawing.to_html(drawn, title).encode()
    elif ending == ".png":
        content = _draw_png(drawn, title)
    else:
        raise UsageError(f"--output {output}: expected a name that ends in .svg, .html or .png")
    try:
        # Renamed into place, so that a viewer that has the file open never reads half of it.
        scratch = output.with_name(f".{output.name}.{os.getpid()}")
        scratch.write_bytes(content)
        scratch.replace(output)
    except OSError as error:
        raise UsageError(f"--output {output}: cannot be written: {error.strerror}") from error


def _draw_png(drawn: Sequence[PriceCurve], title: str) -> bytes:
    try:
        from spotctl.charts.png import to_png
    except ImportError as error:
        raise UsageError(
            f"PNG needs Pillow, which cannot be loaded ({error}): pip install 'spotctl[plot]', "
            "or write .svg or .html"
        ) from error
    return to_png(drawing.draw_curves(drawn, title))
