"""Shows runs for ``status`` and ``wait``: one row each, or JSON. Imports nothing that decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pricing_data.model.units import MicroUsd
from spotctl.cli.format import amounts
from spotctl.cli.format.text_tables import TextTable
from spotctl.records.run import Run, replay_runs
from spotctl.records.run_history import UNATTENDED
from spotctl.report.summary import RunSummary

_UNATTENDED: Final = 1
"""Exit code for an unfinished run that no process drives."""


def none_yet() -> str:
    """Returns a note that there are no runs, and how to list replays if there are any."""
    told = "no runs yet; `spotctl launch JOB.yaml` starts one"
    kept = replay_runs()
    return f"{told}. To list replays, set SPOTCTL_HOME={kept.root}" if kept.list_runs() else told


def runs_table(runs: Mapping[Run, RunSummary]) -> TextTable:
    """Builds a table with a row for each run."""
    figures = ("stage", "machines", "progress", "objective", "cost", "saved", "evictions")
    cells = [_run_cells(run, summary) for run, summary in runs.items()]
    return TextTable(("job", "run", "state", *figures), cells, left=3)


def status_document(runs: Iterable[RunSummary]) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.status/1``."""
    return {"schema": "spotctl.status/1", "runs": [dict(summary.status) for summary in runs]}


def exit_code(summary: RunSummary) -> int:
    """Returns the exit code that ``launch`` ended with."""
    code = summary.status["exit_code"]
    return _UNATTENDED if code is None else int(code)


def _describe_state(found: Mapping[str, Any]) -> str:
    """Describes the state of a run, and whether it runs without a terminal."""
    goes_on = found["exit_code"] is None and found["state"] != UNATTENDED
    return f"{found['state']}, detached" if found["background"] and goes_on else str(found["state"])


def _run_cells(run: Run, summary: RunSummary) -> tuple[str, ...]:
    found = summary.status
    savings, objective = found["savings_fraction"], found["objective"]
    return (
        run.name,
        run.id,
        _describe_state(found),
        str(found["stage"]),
        str(sum(len(allocation["instances"]) for allocation in found["footprint"])),
        summary.progress,
        "-" if objective is None else f"{objective:.6g}",
        amounts.format_money(MicroUsd(summary.total)),
        "-" if savings is None else f"{savings:.1%}",
        str(found["evictions"]),
    )
