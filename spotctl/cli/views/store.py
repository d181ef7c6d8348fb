"""Shows the state of the price store, to people and to programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pricing_data.model.units import Instant, format_instant
from pricing_data.store.findings import StoreFinding
from spotctl.cli.format import json_lines
from spotctl.cli.views.advice import format_age
from spotctl.prices.store_status import RegionStatus, StoreStatus

NO_PRICES: Final = "no prices yet; add some with `spotctl prices fetch` or `spotctl prices import FILE`"


def is_empty(found: StoreStatus) -> bool:
    """Tells whether the store has nothing at all."""
    return not (found.corners or found.findings or found.probes or found.lifetimes)


def draw_store(found: StoreStatus, now: Instant) -> RenderableType:
    """Draws regions, then the source used where several have one market, then findings."""
    seen = found.probes + found.lifetimes
    parts: list[RenderableType] = [_draw_regions(found, now) if found.corners else Text(NO_PRICES)]
    if found.rates:
        parts.append(Text(f"{found.rates:,} published eviction rates"))
    if seen:
        parts.append(Text(f"{found.probes:,} capacity probes, {found.lifetimes:,} machine lifetimes"))
    if found.disputes:
        parts += [
            Text(""),
            Text("markets with several sources; the first is used where they overlap", "bold"),
        ]
        parts += [
            Text(f"{d.markets:,} markets: {d.believed}, then {', '.join(d.others)}") for d in found.disputes
        ]
    if found.findings:
        parts += [Text(""), Text(f"findings; {found.quarantined_rows:,} rows in quarantine", "bold")]
        parts += [Text(line) for finding in found.findings for line in _describe_finding(finding)]
    return Group(*parts)


def _draw_regions(found: StoreStatus, now: Instant) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("cloud", "region"):
        table.add_column(title, no_wrap=True)
    for title in ("markets", "rows", "from", "to", "age", "stale"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("sources")
    for corner in found.corners:
        table.add_row(
            corner.cloud,
            corner.region,
            f"{corner.markets:,}",
            f"{corner.rows:,}",
            format_instant(corner.first)[:10],
            format_instant(corner.last)[:10],
            format_age(max(now - corner.observed, 0)),
            f"{corner.stale:,}",
            "; ".join(_list_sources(corner)),
        )
    return table


def _list_sources(corner: RegionStatus) -> Iterator[str]:
    for source, markets in corner.believed:
        yield source if len(corner.believed) == 1 else f"{source} ({markets:,})"
    if corner.gone:
        yield f"{corner.gone:,} no longer listed"
    if corner.doubted:
        yield f"{corner.doubted:,} in doubt"


def _describe_finding(finding: StoreFinding) -> Iterator[str]:
    fate = "in quarantine" if finding.kind.is_quarantining else "kept"
    yield f"{finding.count:,} x {finding.kind} ({fate}), {finding.source}"
    for example in finding.examples[:3]:
        yield f"    {example}"


def store_document(found: StoreStatus, now: Instant) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.prices.status/1``."""
    return {
        "schema": "spotctl.prices.status/1",
        "regions": [
            {
                **json_lines.to_public(corner),
                "age_seconds": max(now - corner.observed, 0),
                "believed": [{"source": name, "markets": count} for name, count in corner.believed],
            }
            for corner in found.corners
        ],
        "disputes": [json_lines.to_public(dispute) for dispute in found.disputes],
        "eviction_rates": found.rates,
        "probes": found.probes,
        "lifetimes": found.lifetimes,
        "quarantined": found.quarantined_rows,
        "findings": [
            {
                "source": finding.source,
                "kind": str(finding.kind),
                "count": finding.count,
                "quarantined": finding.kind.is_quarantining,
                "examples": list(finding.examples),
            }
            for finding in found.findings
        ],
    }
