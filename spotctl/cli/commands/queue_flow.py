"""Leads a user through ``queue run``: plan, confirmation, run, table."""

from __future__ import annotations

from typing import Any, Final

import typer

from pricing_data.model.units import format_instant
from spotctl.cli.format import event_text, json_lines, output
from spotctl.cli.views import queue
from spotctl.cli.watch.line_writer import LineWriter
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.errors import NothingToDo, UsageError
from spotctl.queue.lifecycle.journal import QueueRun
from spotctl.queue.lifecycle.planning import plan_queue
from spotctl.queue.lifecycle.run_queue import continues_run, run_queue
from spotctl.queue.spec import QueueSettings
from spotctl.records.run import Run

EVENT: Final = "spotctl.queue-event/1"


def show_plan(settings: QueueSettings, as_json: bool) -> None:
    """Prints the plan; writes nothing. Raises DeadlineInfeasible and UsageError where a run would."""
    found = plan_queue(settings)
    if as_json:
        output.write_data(json_lines.to_document(queue.plan_object(found, settings)))
    else:
        output.show_picture(queue.draw_plan(found, settings))
    found.admission.raise_if_refused(settings.spec.name)


def run_watched(settings: QueueSettings, as_json: bool, *, ask: bool) -> int:
    """Runs the queue to its end; returns the exit code."""
    if ask and not output.can_ask():
        raise UsageError("there is no terminal to confirm at; add --yes")
    start = None
    # A resumed queue keeps its promises, so it is neither planned nor confirmed again.
    if not continues_run(settings):
        found = plan_queue(settings)
        # The run begins where the plan did: what was promised holds for these prices.
        start = found.start
        found.admission.raise_if_refused(settings.spec.name)
        if ask:
            output.stderr_console().print(queue.draw_plan(found, settings))
            if not typer.confirm("Start it?", err=True):
                raise NothingToDo("not started")
        else:
            output.write_note(*queue.too_fast(found, settings))
    with QueueJsonLines() if as_json else QueueLogLines() as watcher:
        final = run_queue(settings, watcher, start)
    if as_json:
        output.write_event(json_lines.object_line(final))
    else:
        output.show_picture(queue.draw_end(final))
    return int(final["exit_code"])


class QueueJsonLines(LineWriter):
    """Writes one line per entry of any job's ledger, for programs."""

    def on_queue(self, run: QueueRun, settings: QueueSettings) -> None:
        """Does nothing: the jobs' own entries have everything."""

    def on_start(self, run: Run, prices: str) -> None:
        """Does nothing: the first entry has everything."""

    def on_entry(self, state: State, entry: e.Entry) -> None:
        self.put_line(output.write_event, json_lines.job_event_line(state.terms.job, entry))

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        if final is None:
            fields = {"schema": EVENT, "event": "NeverBegan", "job": job}
            self.put_line(
                output.write_event, json_lines.object_line({**fields, "exit_code": exit_code, "why": why})
            )
        else:
            self.put_line(output.write_event, json_lines.object_line(final))

    def on_trouble(self, told: str) -> None:
        self.put_line(
            output.write_event, json_lines.object_line({"schema": EVENT, "event": "Trouble", "why": told})
        )


class QueueLogLines(LineWriter):
    """Writes for people and logs: a line when a job starts to train, is evicted, and ends."""

    def on_queue(self, run: QueueRun, settings: QueueSettings) -> None:
        self.put_line(output.write_note, f"{settings.spec.name}: record in {run.folder}")

    def on_start(self, run: Run, prices: str) -> None:
        """Does nothing: a line follows when the job trains."""

    def on_entry(self, state: State, entry: e.Entry) -> None:
        told = self._describe_news(state, entry)
        if told is not None:
            self.put_line(output.write_note, f"{format_instant(entry.at)} {state.terms.job}: {told}")

    def _describe_news(self, state: State, entry: e.Entry) -> str | None:
        if isinstance(entry, e.MachineJoined):
            # Only the first machine of a job is news; a queue has too many others.
            begins = sum(i.joined for i in state.instances.values()) == 1
            market = state.allocations[state.instances[entry.instance].allocation].market
            return f"starts on {event_text.format_machines(1, market)}" if begins else None
        if isinstance(entry, (e.EvictionWarned, e.ControllerDown)):
            return event_text.describe_entry(state, entry)
        return None

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        if final is None:
            self.put_line(output.write_note, f"{job}: {why}")
            return
        ending = event_text.describe_end(final["state"], why)
        self.put_line(output.write_note, f"{final['ended']} {job}: {ending}, for ${final['cost']['total']}")

    def on_trouble(self, told: str) -> None:
        self.put_line(output.write_note, told)
