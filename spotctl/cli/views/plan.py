"""Shows the plan: what would be bought now, at which prices, the alternatives, and the expected outcome."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pricing_data.formats.quality import FlawFinding
from pricing_data.formats.traces import Recording
from pricing_data.model.units import Seconds, UsdPerHour, format_instant
from spotctl.cli.format import event_text
from spotctl.cli.format.json_lines import to_public
from spotctl.cli.views import candidates, expectation, job_size, setbacks
from spotctl.control.bidding import ReliablePlacement, may_be_on_spot
from spotctl.control.run_spec import CheckpointPolicy, RunSpec
from spotctl.session.launch_plan import JobPlan

_MARKETS_NAMED: Final = 5


def draw_plan(plan: JobPlan, data: str | None, speed: float) -> RenderableType:
    """Draws for people what would be bought, the alternatives to the first purchase, what to expect.

    ``data``: how the columns of the input are read. ``speed``: at which a launch would go.
    """
    terms = plan.terms
    warnings = (*set_aside(plan), *candidates.list_unknowns(plan), *setbacks.setback_warnings(plan))
    return Group(
        Text.assemble(
            (terms.job, "bold"),
            f"  prices: {terms.origin.prices}, {terms.rules.name} rules, {terms.objective.strategy}",
        ),
        Text(
            f"starts {format_instant(terms.start)}, the prices' own time{_describe_reproduction(plan)}",
            style="dim",
        ),
        *([] if data is None else [Text(f"reads {data}", style="dim")]),
        *(Text(line, style="yellow") for line in warnings),
        Text(""),
        _draw_steps(plan),
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


def _draw_steps(plan: JobPlan) -> Table:
    """Draws what would be done, one thing after the other; long lines go on below their beginning."""
    steps = Table.grid(padding=(0, 3))
    steps.add_column(no_wrap=True)
    steps.add_column(overflow="fold")
    for number, said in enumerate((*_describe_reliable(plan), *(one.why for one in plan.ahead.decisions))):
        steps.add_row("then" if number else "first", Text(said))
    return steps


def _describe_reliable(plan: JobPlan) -> list[str]:
    """Describes the reliable machines, which come first; nothing where checkpoints take their place."""
    terms, at = plan.terms, plan.reliable
    if not terms.reliable_count:
        return []
    if at is None:
        return ["wait for a market that has a machine to keep the model: on demand it would cost more"]
    machines = event_text.format_machines(terms.reliable_count, at.market)
    if at.bid is None:
        return [f"{machines}, on-demand at {_format_rate(at.price)}{_may_be_cheaper(terms)}"]
    return [
        f"{machines}, on spot at {_format_rate(at.price)} "
        f"(on demand ${event_text.format_price(terms.reliable.on_demand)}), to keep the model. "
        f"{_reliable_risk(at)}"
    ]


def _may_be_cheaper(terms: RunSpec) -> str:
    """Says how a job without checkpoints could make its most expensive machine cheaper."""
    if terms.recovery.keeps is not None or not may_be_on_spot(
        replace(terms, recovery=replace(terms.recovery, keeps=CheckpointPolicy(10, Seconds(0.0))))
    ):
        return ""
    return "; with checkpoint: {store: FOLDER, every: 10} it may run on spot"


def _reliable_risk(at: ReliablePlacement) -> str:
    """Describes the risk of keeping the model on a machine that may be taken."""
    if at.losses_per_hour < 0.001:
        often = "Hardly ever taken; if it is"
    else:
        often = f"Taken about once in {1 / at.losses_per_hour:.0f} hours; then"
    return (
        f"{often}, all machines end and the job begins again from its newest checkpoint, which costs about "
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
    """Returns where reliable machines would run; ``bid`` is null on demand, ``runs_at`` where none is
    available.
    """
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
    """Says which prices are not used: nothing for a flawless file, otherwise a line for each flaw."""
    return [*_rows_set_aside(plan.recording), *_markets_set_aside(plan)]


def _rows_set_aside(recording: Recording) -> list[str]:
    if not recording.rows_quarantined:
        return []
    lines = [f"{recording.rows_quarantined} of {recording.rows_read} price rows are not used:"]
    for finding in recording.findings:
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
    return [f"not used, as the catalogue does not know {whose} on demand: {named}"]


def _left_out(plan: JobPlan) -> list[str]:
    """Returns markets that the job allows and the prices have, but decisions may not use."""
    return [
        str(market) for market in sorted(plan.recording.series.keys() - {t.market for t in plan.terms.spot})
    ]


def _describe_reproduction(plan: JobPlan) -> str:
    """Says how to repeat a start that follows from the clock; nothing where it was named."""
    return f"; again with {_reproduce_options(plan)}" if plan.start_follows_clock else ""


def start_told(plan: JobPlan) -> list[str]:
    """Says when a start from the clock is, and how to repeat it; nothing where it was named."""
    if not plan.start_follows_clock:
        return []
    terms = plan.terms
    return [
        f"{terms.job}: starts {format_instant(terms.start)}, as the clock says{_describe_reproduction(plan)}"
    ]


def _reproduce_options(plan: JobPlan) -> str:
    """Returns the options that repeat the same start, whatever the clock says."""
    return f"--trace-start {format_instant(plan.terms.start)} --seed {plan.terms.origin.seed}"


def _format_rate(price: UsdPerHour) -> str:
    return f"${event_text.format_price(price)} per hour each"
