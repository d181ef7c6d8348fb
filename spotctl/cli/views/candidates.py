"""Draws the alternatives to a plan's first request: a row for each market, and the evidence of its risk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.eviction.base import Beta
from bidbrain.model import Candidate, Decision
from pricing_data.model.units import HOUR_S, format_instant
from spotctl.cli.format import event_text
from spotctl.control.state import State
from spotctl.session.launch_plan import JobPlan

_Judged: TypeAlias = tuple[Candidate, Beta | None]

_MARKETS_SHOWN: Final = 20
"""Alternatives to show; more do not help to decide."""


def draw_candidates(plan: JobPlan) -> list[RenderableType]:
    """Draws the table and the evidence of its risks; nothing if the first decision compared nothing."""
    first = plan.ahead.decisions[0]
    if not first.weighed:
        return []
    best = _best_by_market(first)
    judged = _with_betas(plan.state, best[:_MARKETS_SHOWN])
    return [
        Text(""),
        Text(f"alternatives for the first request ({first.considered} considered)", "bold"),
        _draw_table(plan.state, judged),
        *_describe_rest(best),
        *_describe_evidence(plan.state, judged),
    ]


def list_unknowns(plan: JobPlan) -> list[str]:
    """Returns a warning if the risks leave out evictions for lack of capacity."""
    if plan.terms.rules.cleared_by_bid or plan.state.knowledge.capacity.markets:
        return []
    return [
        f"risk is underestimated: {plan.terms.rules.name} rules evict for lack of capacity, and the prices",
        "  show only rises above the bid; give recorded capacity with --availability FILE",
    ]


def candidate_fields(plan: JobPlan) -> dict[str, Any]:
    """Returns the same for programs."""
    return {"beta_covers": _beta_covers(plan), "betas": _beta_fields(plan)}


def _beta_fields(plan: JobPlan) -> list[dict[str, Any]]:
    """Returns the best request for each market, with the evidence of its beta."""
    rows = []
    for weighed, beta in _with_betas(plan.state, _best_by_market(plan.ahead.decisions[0])):
        if beta is not None:
            newest = beta.evidence.newest
            rows.append(
                {
                    "market": str(weighed.market),
                    "bid_delta": weighed.bid_delta,
                    "beta": beta.value,
                    "low": beta.low,
                    "high": beta.high,
                    "source": beta.evidence.source,
                    "newest": None if newest is None else format_instant(newest),
                }
            )
    return rows


def _beta_covers(plan: JobPlan) -> str:
    if plan.terms.rules.cleared_by_bid:
        return "prices"
    return "capacity" if plan.state.knowledge.capacity.markets else "prices only, not capacity"


def _describe_evidence(state: State, judged: Sequence[_Judged]) -> list[Text]:
    """Returns a line for each kind of evidence, with the age of its newest observation."""
    ages: dict[str, list[float]] = {}
    for _, beta in judged:
        if beta is not None:
            kind = beta.evidence.source.partition(",")[0] or "no evidence"
            ages.setdefault(kind, []).append(beta.age_s(state.now) or 0.0)
    return [
        Text(
            f"risk: eviction in 1 h, by {kind} of {len(found)} markets, "
            f"up to {event_text.format_span(max(found))} old",
            style="dim",
        )
        for kind, found in ages.items()
    ]


def _draw_table(state: State, judged: Sequence[_Judged]) -> Table:
    """Draws the best alternative of each market, cheapest work first. It fits into eighty columns."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("market", no_wrap=True)
    for title in ("price", "bid", "risk", "95 %", "$/core-h", "vs best"):
        table.add_column(title, justify="right", no_wrap=True)
    least = min(weighed.cost_per_work for weighed, _ in judged)
    for weighed, beta in judged:
        table.add_row(*_candidate_row(state, weighed, beta, least), style="bold" if weighed.chosen else "")
    return table


def _describe_rest(best: Sequence[Candidate]) -> list[Text]:
    """Returns how many markets the table leaves out."""
    more = len(best) - _MARKETS_SHOWN
    return [Text(f"and {more} more at higher cost; see --json", style="dim")] if more > 0 else []


def _with_betas(state: State, best: Sequence[Candidate]) -> list[_Judged]:
    """Pairs each candidate with its beta and evidence."""
    return [(weighed, _first_hour_beta(state, weighed)) for weighed in best]


def _best_by_market(decision: Decision) -> list[Candidate]:
    """Returns the best alternative of each market, cheapest work first."""
    best: dict[object, Candidate] = {}
    for weighed in sorted(decision.weighed, key=lambda w: (not w.chosen, w.cost_per_work)):
        best.setdefault(weighed.market, weighed)
    return sorted(best.values(), key=lambda w: w.cost_per_work)


def _candidate_row(state: State, weighed: Candidate, beta: Beta | None, least: float) -> tuple[str, ...]:
    price = None if weighed.market is None else state.history.price(weighed.market, state.now)
    bid = None if price is None or weighed.bid_delta is None else price + weighed.bid_delta
    return (
        "nothing more" if weighed.market is None else f"{weighed.count} x {weighed.market}",
        "-" if price is None else event_text.format_price(price),
        "-" if bid is None else event_text.format_price(bid),
        f"{weighed.beta:.3f}",
        "-" if beta is None else f"{beta.low:.2f}-{beta.high:.2f}",
        format_work_cost(weighed.cost_per_work),
        _versus_best(weighed, least),
    )


def format_work_cost(cost_per_work: float) -> str:
    """Formats dollars per core-hour, from dollars per core-second; "-" if no work would be done."""
    return f"{cost_per_work * HOUR_S:.5f}" if math.isfinite(cost_per_work) else "-"


def _first_hour_beta(state: State, weighed: Candidate) -> Beta | None:
    """Returns the beta of a request within its first hour, with its interval and evidence."""
    if weighed.market is None or weighed.bid_delta is None:
        return None
    return state.knowledge.evictions.beta(weighed.market, weighed.bid_delta, 0.0, HOUR_S)


def _versus_best(weighed: Candidate, least: float) -> str:
    if weighed.chosen:
        return "chosen"
    if not math.isfinite(weighed.cost_per_work) or least <= 0:
        return "no work"
    return f"{weighed.cost_per_work / least - 1:.1%}"
