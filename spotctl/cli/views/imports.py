"""Shows the result of an import, to people and to programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pricing_data.model.units import Instant, format_instant
from pricing_data.store.importing import ImportedFile


def describe_import(done: ImportedFile) -> str:
    """Describes one file; the counts add up to the rows read."""
    counts = (
        (done.added.new, "new"),
        (done.added.known, "already stored"),
        (done.added.quarantined, "in quarantine"),
        (done.rows_left_out, "left out: not Linux"),
    )
    told = ", ".join(f"{count:,} {what}" for count, what in counts if count) or "nothing"
    beside = "".join(
        f"; {count:,} on-demand prices {what}"
        for count, what in ((done.list_prices.new, "new"), (done.list_prices.quarantined, "in quarantine"))
        if count
    )
    return f"{done.path}: {done.rows_read:,} rows read, {_describe_span(done)}: {told}{beside}"


def describe_interrupt(outcomes: Sequence[ImportedFile], asked: int) -> str:
    """Describes the store after Ctrl-C."""
    return (
        f"interrupted: {len(outcomes)} of {asked} files are in the store, and perhaps whole batches of the "
        "next; run the same command again to continue"
    )


def import_document(outcomes: Sequence[ImportedFile], failures: Sequence[str]) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.prices.import/1``."""
    return {
        "schema": "spotctl.prices.import/1",
        "files": [_file_fields(done) for done in outcomes],
        "unreadable": list(failures),
    }


def _describe_span(done: ImportedFile) -> str:
    if done.first is None or done.last is None:
        return "without a time"
    return f"{format_instant(done.first)[:10]} to {format_instant(done.last)[:10]}"


def _file_fields(done: ImportedFile) -> dict[str, Any]:
    return {
        "path": done.path,
        "sources": list(done.sources),
        "rows_read": done.rows_read,
        "new": done.added.new,
        "known": done.added.known,
        "quarantined": done.added.quarantined,
        "left_out": done.rows_left_out,
        "list_prices": {"new": done.list_prices.new, "quarantined": done.list_prices.quarantined},
        "first": _format_optional(done.first),
        "last": _format_optional(done.last),
    }


def _format_optional(at: Instant | None) -> str | None:
    return None if at is None else format_instant(at)
