"""How a run ended and what it cost, made of the final object that scripts read too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from spotctl.cli import words

_TOO_FAST: Final = 1.1
"""Beside nominal: above it a comparison with machines at nominal rate is said to be flattered."""


def picture(final: Mapping[str, Any]) -> Table:
    """The summary under which a launch ends."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(final):
        table.add_row(name, Text(text))
    return table


def _rows(final: Mapping[str, Any]) -> list[tuple[str, str]]:
    cost = final["cost"]
    return [
        (final["job"], words.ending(final["state"], final["why"])),
        *([] if final["died_of"] is None else [("because", words.died_of(final["died_of"], final["job"]))]),
        ("prices", f"{final['prices']}, {final['rules']} rules"),
        ("cost", _cost(cost)),
        ("", words.NOMINAL),
        ("refunded", f"${cost['refunded']} for hours in which machines were evicted"),
        ("on-demand alone", _baseline(final)),
        ("took", _took(final)),
        ("work", _work(final)),
        *_speeds(final["measured"]),
        ("objective", _objective(final)),
        _kept(final),
        ("left running", _left(final["instances_left"])),
        ("record", final["ledger"]),
    ]


def _cost(cost: Mapping[str, Any]) -> str:
    egress = f" + ${cost['egress']} egress" if float(cost["egress"]) else ""
    return f"${cost['total']} = ${cost['spot']} spot + ${cost['on_demand']} on-demand{egress}"


def _speeds(measured: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """How fast each type was, where that was measured."""
    if measured is None:
        return []
    told = [
        f"{name} as {speed['value']:.3g} cores ({speed['low']:.3g} to {speed['high']:.3g}; taken for "
        f"{speed['nominal']:.3g}, it has {speed['cores']:g})"
        for name, speed in measured["speeds"].items()
    ]
    return [("measured", ", ".join(told))]


def _took(final: Mapping[str, Any]) -> str:
    """Training goes on while nominal time is held for real machines, so long holds flatter the bill."""
    most = "at most " if final["ended_at_latest"] else ""
    took = f"{most}{words.span(final['sim_seconds'])} of the prices' time, {final['wall_seconds']:.1f} s here"
    held = final["held_seconds"]
    return (
        f"{took}, {held:.1f} s of them held for machines to be ready while training went on" if held else took
    )


def _left(instances: int) -> str:
    return "nothing" if not instances else f"{instances} MACHINES; `spotctl gc` ends them"


def _baseline(final: Mapping[str, Any]) -> str:
    against, savings = final["baseline"], final["savings_fraction"]
    if against is None or savings is None:
        return "no work was done that could be compared"
    verdict = words.savings(savings)
    if final["state"] == "failed" and final["model"] is None:
        verdict += ", had anything come of it"
    machines = f"{against['instances']} x {against['instance_type']} in {words.span(against['seconds'])}"
    told = f"${final['cost']['on_demand_baseline']} for the same work by {machines}: {verdict}"
    pace = against["pace"]
    if pace > _TOO_FAST:
        return (
            f"{told}; but here it went {pace:.1f} times as fast as it is reckoned with, which flatters that"
        )
    return told


def _work(final: Mapping[str, Any]) -> str:
    unit = "clocks" if final["engine"] == "agileml" else "steps"
    before = f" ({final['resumed_from']} of them by an earlier run)" if final["resumed_from"] else ""
    again = f", begun again {words.times(final['restarts'])}" if final["restarts"] else ""
    evicted, taken = final["evictions"], final["instances_evicted"]
    told = [
        words.counted(evicted, "eviction") + (f" of {words.counted(taken, 'machine')}" if evicted else ""),
        words.counted(final["failures"], "failure"),
    ]
    if final["engine"] == "agileml":
        told.append(words.counted(final["stage_transitions"], "change") + " of stage")
    done = f"{final['clocks']} {unit}{before}, {_redone(final)}{again}"
    return f"{done}; {', '.join(told)}"


def _redone(final: Mapping[str, Any]) -> str:
    """Steps, and for how long the program ran for nothing: one that says nothing of steps redoes none."""
    steps, seconds = f"{final['clocks_redone']} computed twice", final["seconds_redone"]
    if not seconds:
        return steps
    ran = f"its program ran {words.span(seconds)} for nothing and began again"
    return f"{steps}: {ran}" if final["clocks_redone"] else ran


def _kept(final: Mapping[str, Any]) -> tuple[str, str]:
    """What came of it. A program may keep nothing, and lose all with its machine: that is said."""
    if final["engine"] == "agileml":
        return "model", final["model"] or "not saved"
    return "checkpoint", final["model"] or "none: the program left no whole one"


def _objective(final: Mapping[str, Any]) -> str:
    score, reported = final["objective"], final["last_reported"]
    if score is None:
        told = "not measured" if reported is None else f"{reported:.6g}, as it reported last"
        return (
            told if final["not_scored"] is None else f"{told}; not of the saved model: {final['not_scored']}"
        )
    value = f"{score['metric']} {score['value']:.6g}"
    if not math.isfinite(score["value"]):
        return f"{value}: training has diverged, or the application's objective is at fault"
    if score["reference"] is None:
        return value
    return f"{value}; {score['reference_name']} on the same data: {score['reference']:.6g}"
