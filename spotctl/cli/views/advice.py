"""Shows advice: the ranked markets with the evidence behind each, for people and for programs."""

from __future__ import annotations

import math
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pricing_data.model.units import HOUR_S, Instant, Seconds, format_instant
from spotctl.cli.format import event_text
from spotctl.prices.advice import Advice, RankedMarket, Wish
from spotctl.prices.estimates import Basis, Estimate

_READ: Final = {
    Basis.CROSSINGS: (
        "beta from price crossings of the last 90 days, with what the coming week should keep to"
    ),
    Basis.CAPACITY: (
        "beta from what was seen of the market's capacity, of a machine started when it was last seen, with"
        " its interval at 95 %"
    ),
    Basis.RATE: (
        "beta from a published rate, read as a constant hazard; a band counts at its upper end. Machines that"
        " their users ended early count too: one that stays is likelier to be lost"
    ),
    Basis.OPEN_RATE: "a published rate without an upper end: beta is at least this; ranked after those known",
    Basis.UNKNOWN: "beta ?: no eviction rate is known; ranked last, by the plain price",
}


def draw_advice(answer: Advice, wish: Wish, horizon_s: Seconds) -> RenderableType:
    """Draws a line for each market, then how to read it, for people."""
    if not answer.ranked:
        return Text(f"none of {answer.known} markets fits; see `spotctl prices status`")
    rows = [advised.row for advised in answer.ranked]
    kinds = dict.fromkeys(row.estimate.basis for row in rows)
    notes = [_READ[kind] for kind in _READ if kind in kinds]
    if any(row.last.rules == "aws-2016" for row in rows):
        notes.append(
            "aws-2016 rules: the hour of an eviction is free, so bids that are often lost can be cheapest"
        )
    if any(row.last.rules == "aws" and row.estimate.basis is Basis.CAPACITY for row in rows):
        notes.append(
            "aws rules: a first hour that AWS ends is free, so markets that lose machines soon can be"
            " cheapest, while they have any"
        )
    if any(row.market.cloud == "gcp" and row.estimate.basis is Basis.RATE for row in rows):
        notes.append(
            "GCP publishes which share of a day's stops were preemptions: as if machines stopped once a day"
        )
    if 0 < answer.stale < answer.fitting:
        notes.append("stale prices are ranked after all others")
    span = event_text.format_span(horizon_s)
    title = Text(
        f"{len(answer.ranked)} of {answer.fitting} markets that fit, wanted for {span}", style="bold"
    )
    return Group(title, _draw_table(answer, wish), Text(""), *(Text(note, style="dim") for note in notes))


def advice_warnings(answer: Advice, label: str) -> list[str]:
    """Returns what to know before trusting it: its source, its age, and what was left out."""
    lines = [label] if label else []
    if answer.stale:
        lines.append(
            f"stale: the prices of {answer.stale} of {answer.fitting} markets are older than they should be;"
            " `spotctl prices fetch` gets new ones"
        )
    if answer.evidence_stale:
        lines.append(
            f"stale: beta of {answer.evidence_stale} of {answer.fitting} markets rests on capacity that was"
            " last seen weeks ago; `spotctl prices import` takes newer probes"
        )
    lines += [f"not ranked: {count} markets: {reason}" for reason, count in answer.unranked]
    return lines


def advice_document(answer: Advice, wish: Wish, horizon_s: Seconds, label: str) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.advice/1``."""
    return {
        "schema": "spotctl.advice/1",
        "horizon_seconds": horizon_s,
        "unit": wish.unit,
        "prices": label or "store",
        "markets": {
            "known": answer.known,
            "fitting": answer.fitting,
            "stale": answer.stale,
            "beta_stale": answer.evidence_stale,
        },
        "not_ranked": [{"reason": reason, "markets": count} for reason, count in answer.unranked],
        "ranked": [_market_fields(advised) for advised in answer.ranked],
    }


def format_age(seconds: float) -> str:
    """Formats an age the way people say it: "3h", "12d", "4y"."""
    for size, unit in ((365.25 * 24 * HOUR_S, "y"), (24 * HOUR_S, "d"), (HOUR_S, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def _draw_table(answer: Advice, wish: Wish) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("market", no_wrap=True)
    for title in (wish.unit + "s", "$/h", "bid", "beta", "interval", f"$/useful {wish.unit}-h", "age"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("from")
    for advised in answer.ranked:
        table.add_row(*_market_cells(advised, wish))
    return table


def _market_cells(advised: RankedMarket, wish: Wish) -> tuple[str, ...]:
    row, estimate = advised.row, advised.row.estimate
    # NaN where no bid is needed, or the market has no price.
    bid = row.last.price + estimate.bid_delta
    old = f"{format_age(advised.age_s)}{' stale' if advised.stale else ''}"
    return (
        f"{row.market}",
        str(row.machine.vcpus if wish.gpu is None else row.machine.gpus),
        event_text.format_price(row.last.price),
        "-" if math.isnan(bid) else event_text.format_price(bid),
        _format_beta(estimate),
        "-" if math.isnan(estimate.low) else f"{_format_share(estimate.low)}-{_format_share(estimate.high)}",
        f"{advised.usd_per_unit_hour:.5f}" if math.isfinite(advised.usd_per_unit_hour) else "no useful work",
        old,
        _describe_origin(advised),
    )


def _describe_origin(advised: RankedMarket) -> str:
    """Names the source of the price, and the source and time of beta's evidence."""
    source, estimate = advised.row.last.source, advised.row.estimate
    # Crossings rest on the prices themselves, so their source is named already.
    if not estimate.source or estimate.basis is Basis.CROSSINGS:
        return source
    until = format_instant(Instant(estimate.until))[:10]
    return f"{source}; beta: {estimate.source}, until {until}{' (stale)' if advised.evidence_stale else ''}"


def _format_beta(estimate: Estimate) -> str:
    if math.isnan(estimate.beta):
        return "?"
    return f"{'>=' if estimate.basis is Basis.OPEN_RATE else ''}{_format_share(estimate.beta)}"


def _format_share(value: float) -> str:
    """Formats three digits after the point, or as many as tell a small share from none."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.5f}"


def _market_fields(advised: RankedMarket) -> dict[str, Any]:
    market, last, machine = advised.row.market, advised.row.last, advised.row.machine
    estimate = advised.row.estimate
    return {
        "cloud": market.cloud,
        "region": market.region,
        "zone": market.zone,
        "instance_type": market.instance_type,
        "vcpus": machine.vcpus,
        "memory_gib": _finite_or_none(machine.memory_gib),
        "gpus": machine.gpus,
        "gpu_name": machine.gpu_name,
        "price": f"{last.price:.6f}",
        "on_demand": _format_dollars(machine.on_demand),
        "price_since": format_instant(Instant(last.since)),
        "observed": format_instant(Instant(last.observed)),
        "age_seconds": advised.age_s,
        "stale": advised.stale,
        "source": last.source,
        "semantics": last.semantics,
        "generated": bool(last.generated),
        "rules": last.rules,
        "beta": _finite_or_none(estimate.beta),
        "beta_low": _finite_or_none(estimate.low),
        "beta_high": _finite_or_none(estimate.high),
        "beta_basis": str(estimate.basis),
        "beta_effective_starts": _finite_or_none(estimate.effective),
        "beta_source": estimate.source,
        "beta_stale": advised.evidence_stale,
        "beta_until": format_instant(Instant(estimate.until)) if estimate.source else None,
        "bid": _format_dollars(last.price + estimate.bid_delta),
        "cost_per_useful_hour": _format_dollars(advised.usd_per_unit_hour),
    }


def _format_dollars(amount: float) -> str | None:
    return f"{amount:.6f}" if math.isfinite(amount) else None


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
