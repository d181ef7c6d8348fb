"""Watches a run for a person at a terminal, a log file, or a program.

Each observer gets every entry of the ledger with the state it led to, and decides what to show. None
decides anything about the run, except for a person's answer to Ctrl-C.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from threading import Event, Lock
from types import TracebackType
from typing import Final, Self

from rich.live import Live

from pricing_data.model.units import Instant, format_instant
from spotctl.cli.format import event_text, json_lines, output
from spotctl.cli.watch.line_writer import LineWriter
from spotctl.cli.watch.live_view import (
    HAPPENED_ROWS,
    LiveView,
    describe_objective,
    describe_progress,
    done_fraction,
)
from spotctl.cli.watch.run_status import describe_waits
from spotctl.control.entries import Entry, Granted, ObjectiveReported, Progressed
from spotctl.control.state import State
from spotctl.records import background
from spotctl.records.background import Front
from spotctl.records.run import Run
from spotctl.session.interrupts import CLOSED, DETACHED, KILLED, LEFT, Answer
from spotctl.timesource import stopwatch

_ANSWERS: Final[dict[str | None, Answer]] = {"g": "continue", "c": "cancel", "d": "down", "l": "detach"}
_QUESTION: Final = "\nCtrl-C: the job goes on meanwhile. What now? (Ctrl-C again cancels it)"
_MEANINGS: Final = {
    "g": "go on",
    "c": "cancel gracefully: the model is saved, then the machines end",
    "d": "take the machines away now: what this run has learned is lost",
    "l": "leave it running without this terminal",
}
_REDRAWS_PER_S: Final = 4
_LOOK_EVERY_S: Final = 1.0
"""How often to read, from files, what takes processes long."""
_LINES_OF_PROGRESS: Final = 10
"""How often a log tells of mere progress, in a whole run."""


class _LineObserver(LineWriter):
    """Writes lines of a run that may have a terminal.

    ``front``: the process in front of it there. ``detaches``: the run goes on without a terminal as soon as
    it has machines; then all output goes to its log.
    """

    def __init__(self, front: Front | None = None, *, detaches: bool = False) -> None:
        super().__init__()
        self._front = front
        self._detaches = detaches
        self._run: Run | None = None
        # Lines wait until the job has machines; from then on they go to its log.
        if detaches:
            self.hold_back()

    def leave_terminal(self, why: str) -> None:
        if why == LEFT and self._run is not None:
            output.write_note(how_to_follow(self._run))
        _leave_terminal(self._run, self._front, why)
        self.go_on()

    def _detach_if_due(self, entry: Entry) -> None:
        if not (self._detaches and isinstance(entry, Granted) and self._run is not None):
            return
        self._detaches = False
        self._tell_detached(self._run)
        _leave_terminal(self._run, self._front, DETACHED)
        self.go_on()

    def _tell_detached(self, run: Run) -> None:
        output.write_note(how_to_follow(run))

    def watch_run(self, run: Run) -> None:
        """Watches that run, without a word about it."""
        self._run = run

    def suspend(self) -> None:
        self.hold_back()

    def resume(self) -> None:
        self.go_on()


class RunJsonLines(_LineObserver):
    """Writes one line per entry, for programs."""

    def on_start(self, run: Run, prices: str) -> None:
        """Writes nothing: the first entry says all of it."""
        self._run = run

    def tick(self, now: Instant) -> None:
        """Does nothing: only entries are written."""

    def on_entry(self, _: State, entry: Entry) -> None:
        self._detach_if_due(entry)
        self.put_line(output.write_event, json_lines.event_line(entry))

    def _tell_detached(self, run: Run) -> None:
        log = str(background.log_of(run))
        detached = {"schema": "spotctl.detached/1", "job": run.name, "run": run.id, "log": log}
        output.write_event(json_lines.object_line(detached))

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        return "cancel"


class RunLogLines(_LineObserver):
    """Writes for logs, pipes and plain terminals: one line per notable event, and a few of progress."""

    def __init__(self, front: Front | None = None, *, detaches: bool = False) -> None:
        super().__init__(front, detaches=detaches)
        self._told = 0

    def on_start(self, run: Run, prices: str) -> None:
        self._run = run
        self.put_line(output.write_note, f"{run.name}: prices from {prices}, record in {run.folder}")

    def tick(self, now: Instant) -> None:
        """Does nothing: only events are written."""

    def on_entry(self, state: State, entry: Entry) -> None:
        self._detach_if_due(entry)
        said = event_text.describe_entry(state, entry) or self._describe_progress(state, entry)
        if said is not None:
            self.put_line(output.write_note, f"{format_instant(entry.at)} {said}")

    def _describe_progress(self, state: State, entry: Entry) -> str | None:
        # A job without a known end has no share, and so no lines of progress.
        reached = int((done_fraction(state) or 0.0) * _LINES_OF_PROGRESS)
        if not isinstance(entry, Progressed | ObjectiveReported) or reached <= self._told:
            return None
        self._told = reached
        return (
            describe_progress(state)
            if state.training.objective is None
            else f"{describe_progress(state)}, objective {describe_objective(state)}"
        )

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        self.hold_back()
        answer = _ask_user(self._front, withdrawn)
        self.go_on()
        return answer


class Screen:
    """Shows the live view to people, redrawn in place while the run goes on. Entered with ``with``.

    Drawing happens in rich's own thread, which is only ever handed a finished, immutable view.
    """

    def __init__(self, pace: str, front: Front | None = None) -> None:
        self._pace = pace
        self._front = front
        self._lines = RunLogLines(front)
        self._left = False
        self._drawing = Lock()
        self._happened: deque[tuple[Instant, str]] = deque(maxlen=HAPPENED_ROWS)
        self._view: LiveView | None = None
        self._run: Run | None = None
        self._waits: tuple[str, ...] = ()
        self._look_at = 0.0
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(
            console=output.stderr_console(),
            get_renderable=lambda: self._view or "starting",
            refresh_per_second=_REDRAWS_PER_S,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._drawing:
            self._live.stop()
        self._lines.__exit__(kind, error, trace)

    def on_start(self, run: Run, prices: str) -> None:
        """Notes the run; the first entry gives the view's header."""
        self._run = run
        self._lines.watch_run(run)

    def on_entry(self, state: State, entry: Entry) -> None:
        if self._left:
            self._lines.on_entry(state, entry)
            return
        said = event_text.describe_entry(state, entry)
        if said is not None:
            self._happened.append((entry.at, said))
        self._view = LiveView(state, state.now, self._pace, tuple(self._happened), self._waits)

    @property
    def view(self) -> LiveView | None:
        """Returns what is shown; None before the first entry."""
        return self._view

    def tick(self, now: Instant) -> None:
        if self._view is None:
            return
        if self._run is not None and stopwatch() >= self._look_at:
            # Reads files, which takes longer than the time between two redraws.
            self._look_at = stopwatch() + _LOOK_EVERY_S
            self._waits = describe_waits(self._run, self._view.state)
        self._view = replace(self._view, now=now, waits=self._waits)

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        self.suspend()
        answer = _ask_user(self._front, withdrawn)
        # Nothing to draw on any more once the run has left the terminal.
        if not (answer == "detach" or withdrawn.is_set()):
            self.resume()
        return answer

    def leave_terminal(self, why: str) -> None:
        """Sends all further output to the run's log, in lines."""
        self._left = True
        self.suspend()
        self._lines.leave_terminal(why)

    def suspend(self) -> None:
        """Stops drawing. The old view stays on the screen; a new one would draw over it."""
        with self._drawing:
            self._live.transient = True  # it is drawn anew below; otherwise it would stand there twice
            self._live.stop()

    def resume(self) -> None:
        with self._drawing:
            # The stopped view is transient and would vanish in the end; a new one stays.
            if not (self._left or self._live.is_started):
                self._live = self._new_live()
                self._live.start()


def _ask_user(front: Front | None, withdrawn: Event) -> Answer:
    """Asks a person who pressed Ctrl-C; without one, or without an answer, returns a graceful cancel."""
    if not output.can_ask():
        return "cancel"
    offered = {key: meaning for key, meaning in _MEANINGS.items() if front is not None or key != "l"}
    return _ANSWERS.get(output.ask_choice(_QUESTION, offered, withdrawn), "cancel")


def how_to_follow(run: Run) -> str:
    """Says how to follow a run that goes on without a terminal."""
    return (
        f"{run.name} goes on without this terminal. spotctl status {run.name} shows it, logs -f {run.name} "
        f"follows it, wait {run.name} waits for its end, cancel {run.name} ends it. Its output goes to "
        f"{background.log_of(run)}"
    )


def _leave_terminal(run: Run | None, front: Front | None, why: str) -> None:
    """Goes on without a terminal. A reader of its output may wait for a detached run."""
    # A killed front raises the same signal as a closed terminal; only its absence tells them apart.
    if why == CLOSED and front is not None and front.is_gone:
        why = KILLED
    # A detached run gives up pipes as well, since their readers wait for them to close.
    streams = [stream for stream in (0, 1, 2) if why == DETACHED or os.isatty(stream)]
    if run is not None:
        background.record_detachment(run, why)
        background.redirect_streams(streams, background.log_of(run))
    if front is not None:
        # Last: the shell shows its prompt as soon as the front ends.
        front.release_front(as_wanted=why == DETACHED)
