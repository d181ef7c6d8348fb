"""Draws a plan: the machines to request now and their prices, the alternatives, and the expected outcome."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.model import Decision
from pricing_data.formats.quality import FlawFinding
from pricing_data.formats.traces import Recording
from pricing_data.model.market import Market
from pricing_data.model.units import Seconds, format_instant
from spotctl.cli.format import event_text
from spotctl.cli.format.json_lines import to_public
from spotctl.cli.views import candidates, expectation, job_size, setbacks
from spotctl.control.bidding import ReliablePlacement, may_be_on_spot
from spotctl.control.run_spec import CheckpointPolicy, RunSpec
from spotctl.session.launch_plan import JobPlan

_MARKETS_NAMED: Final = 5


def draw_plan(plan: JobPlan, data: str | None, speed: float) -> RenderableType:
    """Draws the plan for people.

    ``data`` says how the input's columns are read; None for a command. ``speed``, nominal seconds per real
    second, gives the real duration of a launch.
    """
    terms = plan.terms
    warnings = (*set_aside(plan), *candidates.list_unknowns(plan), *setbacks.setback_warnings(plan))
    return Group(
        Text.assemble(
            (terms.job, "bold"),
            f"  prices: {terms.origin.prices}, {terms.rules.name} rules, {terms.objective.strategy}",
        ),
        Text(
            f"starts {format_instant(terms.start)} in the prices' time{_describe_reproduction(plan)}",
            style="dim",
        ),
        *([] if data is None else [Text(f"reads {data}", style="dim")]),
        *(Text(line, style="yellow") for line in warnings),
        Text(""),
        *_draw_steps(plan),
        *candidates.draw_candidates(plan),
        Text(""),
        *_describe_expectation(plan, speed),
    )


def _describe_expectation(plan: JobPlan, speed: float) -> list[Text]:
    told = expectation.cost_and_finish(plan)
    if not math.isfinite(plan.ahead.expected_s):
        return [
            *(Text(line, style="bold") for line in told),
            *(Text(line) for line in job_size.describe_size(plan)),
        ]
    here = job_size.real_time(plan, speed)
    return [
        Text(line)
        for line in (*told, *here, *job_size.describe_size(plan), *expectation.describe_limits(plan))
    ]


def _draw_steps(plan: JobPlan) -> list[RenderableType]:
    """Draws a row for each request in order, then the reasons, by the number of their step."""
    steps = Table(box=None, pad_edge=False, header_style="bold")
    steps.add_column("step", justify="right")
    steps.add_column("request", no_wrap=True)
    for title in ("price", "bid", "risk", "$/core-h now", "after"):
        steps.add_column(title, justify="right", no_wrap=True)
    reasons = Table.grid(padding=(0, 2))
    reasons.add_column(justify="right", min_width=len("step"))
    reasons.add_column(overflow="fold")
    number = 0
    if plan.terms.reliable_count:
        number = 1
        steps.add_row("1", *_reliable_cells(plan))
        reasons.add_row("1", Text(_describe_reliable(plan)))
    for place, decision in enumerate(plan.ahead.decisions):
        number += 1
        if decision.market is not None:
            steps.add_row(str(number), *_request_cells(plan, decision, decision.market))
        # The reason of a later request repeats that of the first, with other figures; --json has them all.
        if decision.market is None or place == 0:
            reasons.add_row(str(number), Text(decision.why))
    return [*((steps, Text("")) if steps.row_count else ()), reasons]


def _reliable_cells(plan: JobPlan) -> tuple[str, ...]:
    at = plan.reliable
    if at is None:
        return ("wait", "-", "-", "-", "-", "-")
    bid = "on-demand" if at.bid is None else event_text.format_price(at.bid)
    machines = f"{plan.terms.reliable_count} x {at.market}"
    return (machines, event_text.format_price(at.price), bid, "-", "-", "-")


def _request_cells(plan: JobPlan, decision: Decision, market: Market) -> tuple[str, ...]:
    """Returns a request with the risk of an eviction in its first hour, and the cost of work it leads to."""
    # Strategies without a search weigh nothing, so risk and cost stay unknown.
    chosen = next((weighed for weighed in decision.weighed if weighed.chosen), None)
    price = (
        plan.terms.market_option(market).on_demand
        if decision.bid is None
        else plan.state.history.price(market, plan.state.now)
    )
    return (
        f"{decision.count} x {market}",
        "-" if price is None else event_text.format_price(price),
        "on-demand" if decision.bid is None else event_text.format_price(decision.bid),
        "-" if chosen is None else f"{chosen.beta:.3f}",
        candidates.format_work_cost(decision.cost_per_work_now),
        "-" if chosen is None else candidates.format_work_cost(chosen.cost_per_work),
    )


def _describe_reliable(plan: JobPlan) -> str:
    """Explains where the reliable machines run, and the risk of a spot market."""
    terms, at = plan.terms, plan.reliable
    if at is None:
        return "Wait for a spot machine to keep the model: on demand, the job would cost more than it may."
    if at.bid is None:
        return f"Keeps the model{_may_be_cheaper(terms)}."
    return (
        f"On spot, to keep the model (on demand: ${event_text.format_price(terms.reliable.on_demand)} an "
        f"hour). {_reliable_risk(at)}"
    )


def _may_be_cheaper(terms: RunSpec) -> str:
    """Returns advice to a job without checkpoints, whose reliable machine could then run on spot."""
    if terms.recovery.keeps is not None or not may_be_on_spot(
        replace(terms, recovery=replace(terms.recovery, keeps=CheckpointPolicy(10, Seconds(0.0))))
    ):
        return ""
    return "; with checkpoint: {store: FOLDER, every: 10} it may run on spot"


def _reliable_risk(at: ReliablePlacement) -> str:
    """Describes how often the model's machine is lost, and the cost of that."""
    # Once in over a thousand hours: a figure would claim more than the history shows.
    if at.losses_per_hour < 0.001:
        often = "Hardly ever evicted; if it is"
    else:
        often = f"Evicted about once in {1 / at.losses_per_hour:.0f} hours; then"
    return (
        f"{often}, all machines end and the job restarts from its newest checkpoint, which costs about "
        f"${at.loss:.2f} each time."
    )


def plan_document(plan: JobPlan) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.plan/1``."""
    terms, ahead = plan.terms, plan.ahead
    return {
        "schema": "spotctl.plan/1",
        "job": terms.job,
        "prices": terms.origin.prices,
        "rules": terms.rules.name,
        "start": format_instant(terms.start),
        "reproduce": _reproduce_options(plan),
        "reliable": {"count": terms.reliable_count, **to_public(terms.reliable), **_reliable_at(plan)},
        "work": ahead.work,
        "core_seconds_per_clock": terms.work.core_seconds_per_clock,
        **job_size.size_fields(plan),
        **expectation.expectation_fields(plan),
        "setbacks": setbacks.setback_fields(plan.setbacks),
        "price_rows": {"read": plan.recording.rows_read, "quarantined": plan.recording.rows_quarantined},
        "markets_left_out": _left_out(plan),
        **candidates.candidate_fields(plan),
        "price_findings": to_public(plan.recording.findings, tuple[FlawFinding, ...]),
        "decisions": [to_public(decision) for decision in ahead.decisions],
    }


def _reliable_at(plan: JobPlan) -> dict[str, Any]:
    """Returns the market of the reliable machines. ``bid`` is null on demand, and ``runs_at`` if none has
    room."""
    at = plan.reliable
    if at is None:
        return {"runs_at": None, "bid": None, "losses_per_hour": 0.0, "loss": None}
    return {
        "runs_at": str(at.market),
        "bid": at.bid,
        "losses_per_hour": at.losses_per_hour,
        "loss": event_text.format_estimate(at.loss) if at.bid is not None else None,
    }


def set_aside(plan: JobPlan) -> list[str]:
    """Returns a warning for each kind of price row, and for the markets, that the plan does not use."""
    return [*_rows_set_aside(plan.recording), *_markets_set_aside(plan)]


def _rows_set_aside(recording: Recording) -> list[str]:
    if not recording.rows_quarantined:
        return []
    lines = [f"{recording.rows_quarantined} of {recording.rows_read} price rows are not used:"]
    for finding in recording.findings:
        # Other findings are about rows that are used all the same.
        if finding.kind.is_quarantining:
            example = f", first line {finding.examples[0].line}" if finding.examples else ""
            lines.append(f"  {finding.count} x {finding.kind}{example}")
    return lines


def _markets_set_aside(plan: JobPlan) -> list[str]:
    left = _left_out(plan)
    if not left:
        return []
    named = ", ".join(left[:_MARKETS_NAMED]) + (", ..." if len(left) > _MARKETS_NAMED else "")
    whose = "its type or its price" if len(left) == 1 else "their types or their prices"
    return [f"not used, since the catalogue lacks {whose} on demand: {named}"]


def _left_out(plan: JobPlan) -> list[str]:
    """Returns markets that the job allows and the prices have, but decisions may not use."""
    return [
        str(market) for market in sorted(plan.recording.series.keys() - {t.market for t in plan.terms.spot})
    ]


def _describe_reproduction(plan: JobPlan) -> str:
    """Returns how to repeat a start that follows from the clock; empty if the user named it."""
    return f"; reproduce with {_reproduce_options(plan)}" if plan.start_follows_clock else ""


def start_told(plan: JobPlan) -> list[str]:
    """Returns the start that follows from the clock, and how to repeat it; empty if the user named it."""
    # A named start is in the user's own command already.
    if not plan.start_follows_clock:
        return []
    terms = plan.terms
    return [
        f"{terms.job}: starts {format_instant(terms.start)} in the prices' time{_describe_reproduction(plan)}"
    ]


def _reproduce_options(plan: JobPlan) -> str:
    """Returns the options that repeat the same start, whatever the clock says."""
    return f"--trace-start {format_instant(plan.terms.start)} --seed {plan.terms.origin.seed}"
