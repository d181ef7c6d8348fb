"""The report: as a table for people, as CSV, as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any, Final

from rich.table import Table

from pricing_data.units import HOUR_S, MicroUsd, format_micros
from spotctl.cli import jsonlines, screen, words
from spotctl.control.state import State
from spotctl.report.by import By
from spotctl.report.final import MONEY
from spotctl.report.groups import Group, grouped, total

Runs = Mapping[str, State]
"""States of runs by the id of the run."""

_RUNS_NAMED: Final = 5


def table(runs: Runs, by: By) -> Table:
    """For people: hours, and dollars to the last digit so that rows add up, with the total below."""
    whole = total(runs)
    notes = "\n".join((words.NOMINAL, words.BASELINE, *_uncompared(whole), *_open(whole)))
    shown = Table(box=None, header_style="bold", pad_edge=False, caption=notes, caption_justify="left")
    shown.add_column(by.value, no_wrap=True)
    titles = ("runs", "spot h", "free h", "on-demand h", "spot", "on-demand", "egress", "total", "refunded")
    for title in (*titles, "baseline", "saved", "evictions", "machines taken", "redone"):
        shown.add_column(title, justify="right", no_wrap=True)
    for group in grouped(runs, by):
        shown.add_row(*_cells(group))
    shown.add_section()
    shown.add_row(*_cells(whole), style="bold")
    return shown


def _uncompared(whole: Group) -> list[str]:
    """What was paid that no savings are counted on."""
    runs = whole.uncompared_runs
    if not runs:
        return []
    named = ", ".join(runs[:_RUNS_NAMED]) + (", ..." if len(runs) > _RUNS_NAMED else "")
    did = f"{words.counted(len(runs), 'run')} did no work that could be compared"
    return [f"saved: without {words.exact(whole.uncompared)}, as {did}: {named}"]


def _open(whole: Group) -> list[str]:
    """What to know of a sum that is none yet."""
    if not whole.unfinished:
        return []
    have = "1 run has" if whole.unfinished == 1 else f"{whole.unfinished} runs have"
    return [f"{have} not ended: the bill is as of the last entry on record; `spotctl status` shows which"]


def plain_table(runs: Runs, by: By) -> str:
    """``table`` as text."""
    return screen.text(table(runs, by))


def rows_csv(runs: Runs, by: By) -> str:
    """One line a group, no total: whoever reads it can add."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(_fields(total(runs), by)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_fields(group, by) for group in grouped(runs, by))
    return text.getvalue().rstrip("\n")


def document(runs: Runs, by: By) -> str:
    """One JSON object."""
    rows = [_fields(group, by) for group in grouped(runs, by)]
    whole = total(runs)
    return jsonlines.document(
        {
            "schema": "spotctl.report/1",
            "by": by.value,
            "money": MONEY,
            "rows": rows,
            "total": _fields(whole, by),
            "runs_not_compared": list(whole.uncompared_runs),
        }
    )


def _fields(group: Group, by: By) -> dict[str, Any]:
    return {
        by.value: group.key,
        "runs": group.runs,
        "runs_unfinished": group.unfinished,
        "spot_seconds": group.paid_s,
        "free_seconds": group.free_s,
        "on_demand_seconds": group.on_demand_s,
        "spot": format_micros(group.spot),
        "on_demand": format_micros(group.on_demand),
        "egress": format_micros(group.egress),
        "total": format_micros(group.total),
        "refunded": format_micros(group.refunded),
        "on_demand_baseline": None if group.baseline is None else format_micros(group.baseline),
        "not_compared": None if group.clocks_redone is None else format_micros(group.uncompared),
        "savings_fraction": None if group.savings is None else round(group.savings, 6),
        "evictions": group.evictions,
        "instances_evicted": group.evicted,
        "clocks_redone": group.clocks_redone,
        "seconds_redone": group.seconds_redone,
    }


def _cells(group: Group) -> tuple[str, ...]:
    hours = (f"{seconds / HOUR_S:.2f}" for seconds in (group.paid_s, group.free_s, group.on_demand_s))
    amounts = (
        words.exact(a) for a in (group.spot, group.on_demand, group.egress, group.total, group.refunded)
    )
    return (
        group.key,
        str(group.runs),
        *hours,
        *amounts,
        _or_dash(group.baseline),
        "-" if group.savings is None else f"{group.savings:.1%}",
        str(group.evictions),
        str(group.evicted),
        _redone(group),
    )


def _redone(group: Group) -> str:
    """Clocks and steps, and for how long programs ran for nothing."""
    if group.clocks_redone is None:
        return "-"
    return f"{group.clocks_redone}" + (
        f" + {words.span(group.seconds_redone)}" if group.seconds_redone else ""
    )


def _or_dash(amount: MicroUsd | None) -> str:
    return "-" if amount is None else words.exact(amount)
