"""Summarises runs: from the file of a run that has ended, else from the fold of its ledger.

RUN/summary.json holds the summary of a run that ended, beside its ledger. It is made when the run ends, or by
the first command that needs it. It is used only where its version, its checksum and the stamp of its ledger
are right, else made anew. So the ledger stays the only truth, and nothing is lost with the file.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pricing_data.model.units import Instant, format_instant
from spotctl.errors import SpotctlError
from spotctl.records import background
from spotctl.records.run import Run
from spotctl.report.summary import VERSION, RunSummary
from spotctl.timesource import wall_clock

if TYPE_CHECKING:
    from agileml.node.agent.watchdog import RecordedStall
    from spotctl.control.state import State

UNATTENDED: Final = "unattended"
"""The state of a run that has not ended, and that no process drives."""


def summarize_runs(runs: Iterable[Run]) -> tuple[dict[Run, RunSummary], list[str]]:
    """Returns a summary of each run, and what is wrong with those whose record cannot be read."""
    found, failures = {}, []
    for run in runs:
        try:
            found[run] = summary_of(run)
        except SpotctlError as error:
            failures.append(f"{run.name}: {error}; `spotctl gc` ends what is left of its machines")
    return found, failures


def summary_of(run: Run) -> RunSummary:
    """Returns the summary of a run. Raises LedgerError where its record cannot be read."""
    return _load_summary(run) or fold_summary(run)


def keep_summary(run: Run, state: State) -> None:
    """Stores the summary of a run that has just ended as ``state``, so that its ledger need not be
    folded.
    """
    from spotctl.report.summarize import summarize

    if state.ending.closed is None:
        return
    with suppress(SpotctlError):  # the run has ended all the same: the next command reports the error
        stamp = _ledger_stamp(run)
        _store_summary(run, summarize(state, run.began_at(), run_status(run, state)), stamp)


def fold_summary(run: Run) -> RunSummary:
    """Returns the summary of a run from its ledger, and stores it where the run has ended."""
    from spotctl.report.summarize import summarize  # folding loads all of the core: only where needed

    stamp = _ledger_stamp(run)
    state, began = run.fold_state(), run.began_at()
    summary = summarize(state, began, run_status(run, state))
    if state.ending.closed is not None:
        _store_summary(run, summary, stamp)
    return summary


def run_status(run: Run, state: State) -> dict[str, Any]:
    """Returns a run's object of ``status --json``, with what its processes report while it goes on."""
    from spotctl.report.status import status_document

    overdue = [
        {
            "instance": wait.machine,
            "process": wait.process,
            "what": wait.what,
            "real_seconds": round(waited_s(wait), 3),
        }
        for wait in waits_of(run, state)
    ]
    document = status_document(state, run.ledger_path, run_state(run, state), died_of(run, state), overdue)
    ends = lease_ends(run, state)
    return {
        **document,
        "background": background.detachment_reason(run) or None,
        "lease_ends": None if ends is None else format_instant(ends),
    }


def waits_of(run: Run, state: State) -> tuple[RecordedStall, ...]:
    """Returns what processes of its machines take unusually long over, as they report themselves."""
    from agileml.node.agent.watchdog import recorded_stalls

    live = {instance.name for instance in state.live_instances()}
    return (
        tuple(wait for wait in recorded_stalls(run.machines_folder) if wait.machine in live) if live else ()
    )


def waited_s(wait: RecordedStall) -> float:
    """Returns how long the wait has lasted, in seconds of the wall clock."""
    return max(0.0, wall_clock() - wait.since)


def run_state(run: Run, state: State) -> str:
    """Returns one word for what became of the run, or what it is doing."""
    if state.ending.closed is not None:
        return state.ending.closed.outcome.value
    return state.phase.value if run.is_live() else UNATTENDED


def lease_ends(run: Run, state: State) -> Instant | None:
    """Returns when machines that no process drives end themselves, or did; None where one drives them."""
    if state.ending.closed is not None or run.is_live():
        return None
    from agileml.node.hosts.nominal_time import lapses_at  # only for runs that were left

    at = lapses_at(run.training_folder)
    return None if at is None or not math.isfinite(at) else Instant(int(at))


def died_of(run: Run, state: State) -> str | None:
    """Returns why the processes of a failed run died."""
    return (
        run.died_of()
        if state.ending.closed is not None and state.ending.closed.outcome.value == "failed"
        else None
    )


def _ledger_stamp(run: Run) -> list[int]:
    """Returns size and time of the ledger, which change with it."""
    found = run.ledger_path.stat()
    return [found.st_size, found.st_mtime_ns]


def _load_summary(run: Run) -> RunSummary | None:
    """Loads a stored summary; None where there is none, or where it cannot be trusted."""
    try:
        head, _, body = run.summary_path.read_bytes().partition(b"\n")
        if json.loads(head) != [VERSION, zlib.crc32(body), *_ledger_stamp(run)]:
            return None
        summary = RunSummary.parse(json.loads(body))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    # The path is set anew, since homes are moved and copied.
    return replace(summary, status={**summary.status, "ledger": str(run.ledger_path)})


def _store_summary(run: Run, summary: RunSummary, stamp: list[int]) -> None:
    body = json.dumps(summary.to_document()).encode()
    head = json.dumps([VERSION, zlib.crc32(body), *stamp]).encode()
    partial = run.summary_path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_bytes(head + b"\n" + body)
        partial.replace(run.summary_path)
    except OSError:  # without write access or room the next command folds again
        with suppress(OSError):
            partial.unlink()
