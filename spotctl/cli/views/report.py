"""Writes the report as a table for people, as CSV, or as JSON."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any, Final

from pricing_data.model.units import HOUR_S, MicroUsd, format_micros
from spotctl.cli.format import amounts, json_lines
from spotctl.cli.format.text_tables import TextTable
from spotctl.report.groupings import Grouping
from spotctl.report.groups import Group, Summaries, group_all, group_runs, time_zone
from spotctl.report.summary import MONEY

_RUNS_NAMED: Final = 5


def report_table(runs: Summaries, by: Grouping) -> TextTable:
    """Builds the table for people. Dollars have all digits, so that rows add up to the total."""
    whole = group_all(runs)
    titles = ("runs", "spot h", "free h", "on-demand h", "spot", "on-demand", "egress", "total", "refunded")
    compared = ("as fast", "cheapest", "saved", "evictions", "machines lost", "redone")
    return TextTable(
        titles=(by.value, *titles, *compared),
        rows=[_group_cells(group) for group in group_runs(runs, by)],
        left=1,
        total=_group_cells(whole),
        notes=(
            *(amounts.NOMINAL, amounts.BASELINES),
            *(*_zone_notes(runs, by), *_uncompared_notes(whole), *_unfinished_notes(whole)),
        ),
    )


def _zone_notes(runs: Summaries, by: Grouping) -> list[str]:
    """Returns the time zone of the days or months, if rows are these."""
    zone = _time_zone(runs)
    if by not in (Grouping.DAY, Grouping.MONTH) or zone is None:
        return []
    return [f"a run belongs to the {by.value} on which it began, in this computer's time zone ({zone})"]


def _time_zone(runs: Summaries) -> str | None:
    """Returns the time zone in which the newest run began."""
    return time_zone(max(run.began for run in runs.values())) if runs else None


def _uncompared_notes(whole: Group) -> list[str]:
    """Returns the cost for which no saving is known, with its runs by reason."""
    lines, left_out = [], whole.comparison.uncompared_runs
    for reason, count in Counter(left_out.values()).items():
        runs = [run for run, why in left_out.items() if why == reason]
        named = ", ".join(runs[:_RUNS_NAMED]) + (", ..." if count > _RUNS_NAMED else "")
        lines.append(f"  {amounts.count_noun(count, 'run')}: {reason}: {named}")
    if not lines:
        return []
    cost = amounts.format_exact(whole.comparison.uncompared)
    return [f"saved: leaves out {cost}, for which no saving is known:", *lines]


def _unfinished_notes(whole: Group) -> list[str]:
    """Returns a note if the bills of some runs are not final."""
    if not whole.unfinished:
        return []
    have = "1 run has" if whole.unfinished == 1 else f"{whole.unfinished} runs have"
    return [f"{have} not ended: their bills are as of their last entries; `spotctl status` lists them"]


def plain_table(runs: Summaries, by: Grouping) -> str:
    """Writes ``report_table`` as text."""
    return report_table(runs, by).to_text()


def rows_csv(runs: Summaries, by: Grouping) -> str:
    """Writes one line per group, without a total: readers can add."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(_group_fields(group_all(runs), by)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_group_fields(group, by) for group in group_runs(runs, by))
    return text.getvalue().rstrip("\n")


def report_document(runs: Summaries, by: Grouping) -> str:
    """Writes one JSON object."""
    rows = [_group_fields(group, by) for group in group_runs(runs, by)]
    whole = group_all(runs)
    return json_lines.to_document(
        {
            "schema": "spotctl.report/1",
            "by": by.value,
            "money": MONEY,
            "rows": rows,
            "total": _group_fields(whole, by),
            "runs_not_compared": dict(whole.comparison.uncompared_runs),
            "time_zone": _time_zone(runs),
        }
    )


def _group_fields(group: Group, by: Grouping) -> dict[str, Any]:
    found = group.comparison
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
        "on_demand_baseline": None if found.baseline is None else format_micros(found.baseline),
        "on_demand_as_fast": None if found.as_fast is None else format_micros(found.as_fast),
        "on_demand_cheapest": None if found.cheapest is None else format_micros(found.cheapest),
        # Parts of runs have neither: nothing of them is compared.
        "not_compared": None if group.clocks_redone is None else format_micros(found.uncompared),
        "savings_fraction": None if group.savings is None else round(group.savings, 6),
        "evictions": group.evictions,
        "instances_evicted": group.evicted,
        "clocks_redone": group.clocks_redone,
        "seconds_redone": group.seconds_redone,
    }


def _group_cells(group: Group) -> tuple[str, ...]:
    hours = (f"{seconds / HOUR_S:.2f}" for seconds in (group.paid_s, group.free_s, group.on_demand_s))
    sums = (
        amounts.format_exact(a)
        for a in (group.spot, group.on_demand, group.egress, group.total, group.refunded)
    )
    return (
        group.key,
        str(group.runs),
        *hours,
        *sums,
        _or_dash(group.comparison.as_fast),
        _or_dash(group.comparison.cheapest),
        "-" if group.savings is None else f"{group.savings:.1%}",
        str(group.evictions),
        str(group.evicted),
        _format_redone(group),
    )


def _format_redone(group: Group) -> str:
    """Formats the clocks or steps computed twice, and the time that programs lost."""
    if group.clocks_redone is None:
        return "-"
    return f"{group.clocks_redone}" + (
        f" + {amounts.format_span(group.seconds_redone)}" if group.seconds_redone else ""
    )


def _or_dash(amount: MicroUsd | None) -> str:
    return "-" if amount is None else amounts.format_exact(amount)
