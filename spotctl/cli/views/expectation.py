"""Describes a plan's expected outcome: cost and finish against on demand, and whether limits hold."""

from __future__ import annotations

import math
from typing import Any

from bidbrain.deadline.feasibility import Promise, round_up_budget
from pricing_data.model.units import Instant, format_instant, format_micros, seconds_after, to_micros
from spotctl.cli.format import event_text
from spotctl.control.checkpoint_transfer import highest_transfer_cost
from spotctl.report.final import baselines_document
from spotctl.report.summary import MEANINGS
from spotctl.session.launch_plan import JobPlan


def cost_and_finish(plan: JobPlan) -> list[str]:
    """Describes what is expected, for people."""
    ahead, terms = plan.ahead, plan.terms
    if not math.isfinite(ahead.expected_s):
        return ["These machines would not finish the job in a hundred years."]
    whole = (
        ""
        if terms.work.stop.is_bounded
        else f" for one {event_text.progress_unit(terms)}; the number of them is unknown"
    )
    lasting = event_text.format_span(ahead.expected_s)
    return [
        "expected cost    "
        f"{event_text.format_money(to_micros(ahead.expected_cost))}{_describe_savings(plan)}{whole}",
        *_on_demand(plan),
        f"expected finish  {format_instant(_expected_finish(plan))}, {lasting} after the "
        f"start{whole}{_explain_late_finish(plan)}",
    ]


def describe_limits(plan: JobPlan) -> list[str]:
    """Describes what moves would take, and whether deadline and budget can be kept, for people."""
    return [*_describe_moves(plan), *_kept_limits(plan)]


def expectation_fields(plan: JobPlan) -> dict[str, Any]:
    """Returns the same for programs."""
    terms, ahead = plan.terms, plan.ahead
    return {
        "expected_cost": event_text.format_estimate(ahead.expected_cost),
        "expected_seconds": event_text.finite_or_none(ahead.expected_s),
        "expected_finish": format_instant(_expected_finish(plan))
        if math.isfinite(ahead.expected_s)
        else None,
        "expected_evictions": event_text.finite_or_none(ahead.expected_evictions),
        "on_demand_cost": None if plan.baselines is None else format_micros(plan.baselines.rental.cost),
        "baselines": baselines_document(plan.baselines, None),
        "deadline_seconds": terms.objective.deadline_s,
        "promise": None if plan.promise is None else _promise_fields(plan.promise),
        "budget": None if terms.objective.budget is None else format_micros(terms.objective.budget),
        "move": _move_fields(plan),
    }


def explain_broken_promise(plan: JobPlan, promise: Promise) -> str:
    """Explains what cannot be promised, and names the least that can: typed in, it works."""
    # Rounded up to whole minutes: what is named here must be accepted when typed in.
    told, least = [], math.ceil(promise.least_deadline_s / 60)
    if not promise.in_time:
        told.append(
            f"The shortest deadline that can be promised is {least}m: on-demand machines alone need that "
            f"long. (The expected time is {event_text.format_span(plan.ahead.expected_s)}, but spot machines "
            "guarantee nothing.)"
        )
    if not promise.within_budget:
        which = "this one" if promise.in_time else f"one of {least}m"
        told.append(
            f"A promised deadline rests on on-demand machines, which may cost "
            f"{event_text.format_money(round_up_budget(promise.least_budget))}: no lower budget can be "
            f"promised with {which}. "
            "Without a deadline the job is expected to cost "
            f"{event_text.format_money(to_micros(plan.ahead.expected_cost))}."
        )
    return " ".join(told)


def _promise_fields(promise: Promise) -> dict[str, Any]:
    return {
        "holds": promise.is_feasible,
        "least_deadline_seconds": promise.least_deadline_s,
        "least_budget": format_micros(round_up_budget(promise.least_budget, step=1)),
    }


def _move_fields(plan: JobPlan) -> dict[str, Any] | None:
    """Returns what moving the checkpoint to another region takes, at most; None within one region."""
    luggage = plan.terms.recovery.luggage
    if luggage is None:
        return None
    return {
        "checkpoint_bytes": luggage.size_bytes,
        "seconds": luggage.size_bytes / luggage.bytes_per_s,
        "egress": format_micros(highest_transfer_cost(plan.terms)),
    }


def _describe_savings(plan: JobPlan) -> str:
    """Compares with the cheaper way on demand."""
    cost, found = to_micros(plan.ahead.expected_cost), plan.baselines
    if found is None or not found.rental.cost:
        return ""
    than, less = MEANINGS[found.headline], 1 - cost / found.rental.cost
    return f", {less:.0%} less than {than}" if less >= 0 else f", {-less:.0%} MORE than {than}"


def _on_demand(plan: JobPlan) -> list[str]:
    """Describes both ways to do the same on demand, by name."""
    if plan.baselines is None:
        return []
    found = plan.baselines
    return [
        f"{'':17}{event_text.format_money(way.cost)} is {MEANINGS[name]}: {way.machines} x "
        f"{way.market.instance_type} in {event_text.format_span(way.seconds)}"
        + ("" if found.keeps_deadline(way) else ", after the deadline")
        for name, way in found.by_name.items()
    ]


def _describe_moves(plan: JobPlan) -> list[str]:
    luggage = plan.terms.recovery.luggage
    if luggage is None:
        return []
    # Stated, as the expected cost leaves it out.
    if not luggage.size_bytes:
        return ["moves            to another region count as free, since checkpoint.size is not set"]
    carried_s = event_text.format_span(luggage.size_bytes / luggage.bytes_per_s)
    return [
        f"moves            to another region: {event_text.format_size(luggage.size_bytes)} in {carried_s}, "
        f"egress up to {event_text.format_money(highest_transfer_cost(plan.terms))}"
    ]


def _kept_limits(plan: JobPlan) -> list[str]:
    """Returns a line for the deadline and one for the budget, if there are any."""
    terms, ahead = plan.terms, plan.ahead
    lines, unknown = [], f"the number of {event_text.progress_unit(terms)}s is unknown"
    if terms.objective.deadline_s is not None:
        met = "is met" if terms.work.stop.is_bounded else f"is not promised: {unknown}"
        kept = met if ahead.expected_s <= terms.objective.deadline_s else "IS SHORTER than the expected time"
        lines.append(
            f"deadline         {event_text.format_span(terms.objective.deadline_s)} "
            f"{_describe_promise(plan.promise) or kept}"
        )
    if terms.objective.budget is not None:
        lasts = "is kept" if terms.work.stop.is_bounded else f"ends the job when it is spent: {unknown}"
        kept = (
            lasts
            if to_micros(ahead.expected_cost) <= terms.objective.budget
            else "IS LESS than the expected cost"
        )
        if plan.promise is not None and not plan.promise.within_budget:
            kept = "CANNOT BE PROMISED with the deadline"
        lines.append(f"budget           {event_text.format_money(terms.objective.budget)} {kept}")
    return lines


def _describe_promise(promise: Promise | None) -> str:
    """Describes whether a deadline can be promised, and why; empty if nothing is to be promised."""
    if promise is None:
        return ""
    if not promise.in_time:
        return "CANNOT BE PROMISED"
    least, cost = (
        event_text.format_span(promise.least_deadline_s),
        event_text.format_money(round_up_budget(promise.least_budget)),
    )
    return f"is promised: on-demand machines alone need {least} and up to {cost}"


def _explain_late_finish(plan: JobPlan) -> str:
    """Explains a finish after a promised deadline: the expectation leaves out the safety net."""
    deadline = plan.terms.objective.deadline_s
    # Only a promise that holds has a safety net to mention.
    if deadline is None or plan.promise is None or not plan.promise.in_time:
        return ""
    late = plan.ahead.expected_s > deadline
    return " with spot machines alone; on-demand machines will keep the deadline" if late else ""


def _expected_finish(plan: JobPlan) -> Instant:
    return seconds_after(plan.terms.start, plan.ahead.expected_s)
