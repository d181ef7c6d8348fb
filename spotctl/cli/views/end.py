"""Draws the end of a run, its cost and its model's quality, from the final object that scripts read too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from spotctl.cli.format import event_text

_NAMES_WIDTH: Final = len("cheapest on demand")


def draw_end(final: Mapping[str, Any]) -> Table:
    """Draws the summary at the end of a launch; ``draw_quality`` comes after it."""
    return _draw_table(_summary_rows(final))


def draw_quality(final: Mapping[str, Any]) -> Table:
    """Draws the model's quality, which comes last since scoring takes time."""
    return _draw_table([("objective", _describe_objective(final))])


def _draw_table(rows: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=_NAMES_WIDTH)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, Text(text))
    return table


def _summary_rows(final: Mapping[str, Any]) -> list[tuple[str, str]]:
    cost = final["cost"]
    return [
        (final["job"], event_text.describe_end(final["state"], final["why"])),
        *(
            []
            if final["died_of"] is None
            else [("because", event_text.describe_death(final["died_of"], final["job"]))]
        ),
        ("prices", f"{final['prices']}, {final['rules']} rules"),
        ("cost", _describe_cost(cost)),
        ("", event_text.NOMINAL),
        # Rows appear only where they say something: most rules refund nothing.
        *_refund_rows(cost),
        *_baseline_rows(final),
        *_plan_rows(final),
        ("took", _describe_duration(final)),
        ("work", _describe_work(final)),
        *_speed_rows(final["measured"]),
        _artifact_row(final),
        ("left running", _describe_leftovers(final["instances_left"])),
        ("record", final["ledger"]),
    ]


def _describe_cost(cost: Mapping[str, Any]) -> str:
    egress = f" + ${cost['egress']} egress" if float(cost["egress"]) else ""
    return f"${cost['total']} = ${cost['spot']} spot + ${cost['on_demand']} on-demand{egress}"


def _refund_rows(cost: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the refunds; nothing where there were none, as under most rules."""
    if not float(cost["refunded"]):
        return []
    return [("refunded", f"${cost['refunded']} for hours in which machines were evicted")]


def _speed_rows(measured: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Returns how fast each type was, where that was measured."""
    if measured is None:
        return []
    told = [
        f"{name} works as {speed['value']:.3g} cores ({speed['low']:.3g} to {speed['high']:.3g}; assumed: "
        f"{speed['nominal']:.3g}; it has {speed['cores']:g})"
        for name, speed in measured["speeds"].items()
    ]
    return [("measured", ", ".join(told))]


def _describe_duration(final: Mapping[str, Any]) -> str:
    """Describes the nominal and the real duration."""
    most = "at most " if final["ended_at_latest"] else ""
    nominal = event_text.format_span(final["sim_seconds"])
    took = f"{most}{nominal} of the prices' time, {final['wall_seconds']:.1f} s here"
    held = final["held_seconds"]  # nominal time stands still until real machines are ready
    return f"{took}, {held:.1f} s of them waiting for machines to be ready" if held else took


def _describe_leftovers(instances: int) -> str:
    return "nothing" if not instances else f"{instances} MACHINES; release them with `spotctl gc`"


def _baseline_rows(final: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns both ways on demand, and the savings relative to the cheaper one, or why there are none."""
    rows = [
        (event_text.BESIDE[name], _describe_rental(way))
        for name, way in final["baselines"].items()
        if way is not None
    ]
    # Both ways are shown even without a saving: they tell what the work was worth.
    savings, reason = final["savings_fraction"], final["no_savings_reason"]
    if savings is None:
        return [*rows, ("saved", f"not known: {reason}")]
    cheaper = final["baseline"]["means"]
    # In words: a negative share reads like a small saving.
    if savings < 0:
        return [*rows, ("not saved", f"{event_text.format_savings(savings)} than {cheaper}")]
    return [*rows, ("saved", f"{savings:.1%} against {cheaper}")]


def _describe_rental(way: Mapping[str, Any]) -> str:
    machines = f"{way['instances']} x {way['instance_type']} in {event_text.format_span(way['seconds'])}"
    late = "" if way["keeps_deadline"] else ", after the deadline"
    return f"${way['cost']} for the same work by {machines}{late}"


def _plan_rows(final: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the plan's forecast, the outcome, and why they differ."""
    plan, came = final["plan"], final["outcome"]
    if plan is None:
        return []
    actual = event_text.count_noun(final["evictions"], "eviction")
    rows = [
        (
            "planned",
            f"${plan['cost']} in {event_text.format_span(plan['seconds'])}, {plan['evictions']:.1f} "
            "evictions",
        ),
        ("actual", f"${came['cost']} in {event_text.format_span(came['seconds'])}, {actual}"),
    ]
    if final["why_not_as_planned"]:
        rows.append(("because", "; ".join(final["why_not_as_planned"])))
    return rows


def _describe_work(final: Mapping[str, Any]) -> str:
    unit = "clocks" if final["engine"] == "agileml" else "steps"
    before = f" ({final['resumed_from']} of them by an earlier run)" if final["resumed_from"] else ""
    again = f", restarted {event_text.format_times(final['restarts'])}" if final["restarts"] else ""
    evicted, taken = final["evictions"], final["instances_evicted"]
    told = [
        event_text.count_noun(evicted, "eviction")
        + (f" of {event_text.count_noun(taken, 'machine')}" if evicted else ""),
        event_text.count_noun(final["failures"], "failure"),
    ]
    if final["engine"] == "agileml":
        told.append(event_text.count_noun(final["stage_transitions"], "change") + " of stage")
    done = f"{final['clocks']} {unit}{before}, {_describe_redone(final)}{again}"
    return f"{done}; {', '.join(told)}"


def _describe_redone(final: Mapping[str, Any]) -> str:
    """Describes repeated steps, and the time of a program that had to start again."""
    steps, seconds = f"{final['clocks_redone']} computed twice", final["seconds_redone"]
    if not seconds:
        return steps
    ran = f"its program lost {event_text.format_span(seconds)} of work and restarted"
    return f"{steps}: {ran}" if final["clocks_redone"] else ran


def _artifact_row(final: Mapping[str, Any]) -> tuple[str, str]:
    """Returns where the model or the newest checkpoint is, or that there is none."""
    if final["engine"] == "agileml":
        return "model", final["model"] or "not saved"
    return "checkpoint", final["model"] or "none: the program left no complete one"


def _describe_objective(final: Mapping[str, Any]) -> str:
    score, reported = final["objective"], final["last_reported"]
    if score is None:
        told = "not measured" if reported is None else f"{reported:.6g}, the last that training reported"
        return (
            told if final["not_scored"] is None else f"{told}; saved model not scored: {final['not_scored']}"
        )
    value = f"{score['metric']} {score['value']:.6g}"
    # NaN compares as neither better nor worse, and would pass for a result.
    if not math.isfinite(score["value"]):
        return f"{value}: training diverged, or the application computes its objective wrongly"
    if score["reference_name"] is None:
        return value
    note = score["reference_note"]
    if score["reference"] is None:
        return f"{value}; {score['reference_name']} on the same data {note}"
    return f"{value}; {score['reference_name']} on the same data: {score['reference']:.6g}" + (
        f" {note}" if note else ""
    )
