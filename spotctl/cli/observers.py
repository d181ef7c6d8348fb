"""Who watches a run: a person at a terminal, a log file, or a program.

Each is told every entry of the ledger with the state it led to, and decides what to show. None of them
decides anything about the run, but for what a person answers to Ctrl-C.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from rich.live import Live

from pricing_data.traces import Recording
from pricing_data.units import Instant, format_instant
from spotctl.cli import jsonlines, screen, words
from spotctl.cli.lines import Lines
from spotctl.cli.live import HAPPENED_ROWS, LiveView, clocks, done, objective
from spotctl.cli.runview import waiting
from spotctl.control.events import Entry, ObjectiveReported, Progressed
from spotctl.control.state import State
from spotctl.interrupts import Answer
from spotctl.runs import Run
from spotctl.timesource import stopwatch

_ANSWERS: Final[dict[str, Answer]] = {"g": "continue", "c": "cancel", "d": "down", "l": "detach"}
_MEANINGS: Final = {
    "g": "go on",
    "c": "cancel gracefully: the model is saved, then the machines end",
    "d": "take the machines away now: what this run has learned is lost",
    "l": "leave it running and end only this view",
}
_REDRAWS_PER_S: Final = 4
_LOOK_EVERY_S: Final = 1.0
"""At what processes take long over, which is in files."""
_LINES_OF_PROGRESS: Final = 10
"""How often a log tells of mere progress, in a whole run."""


class JsonLines(Lines):
    """For programs: one line per entry."""

    def on_start(self, run: Run, recording: Recording) -> None:
        """The first entry says all of it."""

    def tick(self, now: Instant) -> None:
        """Only entries are written."""

    def on_entry(self, _: State, entry: Entry) -> None:
        self.put(screen.event, jsonlines.event(entry))

    def ask_interrupt(self) -> Answer:
        return "cancel"


class LogLines(Lines):
    """For logs and pipes: one line per event worth telling, and a few of progress."""

    def __init__(self) -> None:
        super().__init__()
        self._told = 0

    def on_start(self, run: Run, recording: Recording) -> None:
        self.put(screen.note, f"{run.name}: prices from {recording.label}, record in {run.folder}")

    def tick(self, now: Instant) -> None:
        """Only what happens is written."""

    def on_entry(self, state: State, entry: Entry) -> None:
        said = words.sentence(state, entry) or self._progress(state, entry)
        if said is not None:
            self.put(screen.note, f"{format_instant(entry.at)} {said}")

    def _progress(self, state: State, entry: Entry) -> str | None:
        reached = int((done(state) or 0.0) * _LINES_OF_PROGRESS)
        if not isinstance(entry, Progressed | ObjectiveReported) or reached <= self._told:
            return None
        self._told = reached
        return clocks(state) if state.objective is None else f"{clocks(state)}, objective {objective(state)}"

    def ask_interrupt(self) -> Answer:
        return "cancel"


class Screen:
    """For people: the live view, redrawn in place while the run goes on. Entered with ``with``.

    Drawing happens in rich's own thread, which is only ever handed a finished, immutable view.
    """

    def __init__(self, pace: str) -> None:
        self._pace = pace
        self._happened: deque[tuple[Instant, str]] = deque(maxlen=HAPPENED_ROWS)
        self._view: LiveView | None = None
        self._run: Run | None = None
        self._waits: tuple[str, ...] = ()
        self._look_at = 0.0
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(
            console=screen.canvas(),
            get_renderable=lambda: self._view or "starting",
            refresh_per_second=_REDRAWS_PER_S,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def on_start(self, run: Run, recording: Recording) -> None:
        """The view's header is made of the first entry."""
        self._run = run

    def on_entry(self, state: State, entry: Entry) -> None:
        said = words.sentence(state, entry)
        if said is not None:
            self._happened.append((entry.at, said))
        self._view = LiveView(state, state.now, self._pace, tuple(self._happened), self._waits)

    @property
    def view(self) -> LiveView | None:
        """What is shown; None before the first entry."""
        return self._view

    def tick(self, now: Instant) -> None:
        if self._view is None:
            return
        if self._run is not None and stopwatch() >= self._look_at:
            self._look_at = stopwatch() + _LOOK_EVERY_S
            self._waits = waiting(self._run, self._view.state)
        self._view = replace(self._view, now=now, waits=self._waits)

    def ask_interrupt(self) -> Answer:
        if not screen.can_ask():
            return "cancel"
        self._live.transient = True  # it is drawn anew below the question: else it would stand there twice
        self._live.stop()
        answer = _ANSWERS[screen.choose("\nCtrl-C: the job still runs. What now?", _MEANINGS, "c")]
        if answer != "detach":
            self._live = self._new_live()  # the old one would draw over the question
            self._live.start()
        return answer
