"""Collects what users ask of a running job: signals, Ctrl-C, and requests that other processes leave.

A thread beside the run waits for the answer to a question: prices, decisions and machines wait for nobody.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Final, Literal, Protocol

from spotctl.control.entries import UserRequest
from spotctl.records import background
from spotctl.records.ledger import Ledger
from spotctl.records.run import Run
from spotctl.timesource import stopwatch

_LOOK_EVERY_S: Final = 0.2
_AT_ONCE_S: Final = 0.05
"""A watcher that need not ask a person has answered by then."""
CLOSED: Final = "its terminal was closed"
KILLED: Final = "the process in front of it was killed"
LEFT: Final = "it was left running"
DETACHED: Final = "it was started with --detach"

Answer = Literal["continue", "cancel", "down", "detach"]


@contextmanager
def handle_signals(
    hear: Callable[[int], None], log: Path | None = None, *, views: bool = False
) -> Iterator[None]:
    """Passes SIGINT, SIGTERM and SIGHUP to ``hear`` while inside; with ``views`` Ctrl-Z and its end too.

    A closed terminal (SIGHUP) can be neither read nor written any more: its streams lead to ``log`` from then
    on, or nowhere. Under ``nohup`` that signal is ignored, and stays so.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    terminals = [stream for stream in (0, 1, 2) if os.isatty(stream)]
    if views and 0 in terminals:
        numbers += [signal.SIGTSTP, signal.SIGCONT]

    def on_signal(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            # First of all, since writing to a closed terminal fails.
            background.redirect_streams(terminals, log)
        hear(number)

    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class InterruptHandler(Protocol):
    """Watches a run, and answers questions about it."""

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        """Asks what to do after Ctrl-C; without a terminal the answer is "cancel".

        May take as long as it likes; once ``withdrawn`` is set nothing waits for the answer any more.
        """
        ...

    def leave_terminal(self, why: str) -> None:
        """Notes that the run goes on without a terminal."""
        ...

    def suspend(self) -> None:
        """Yields the terminal to another program for a while."""
        ...

    def resume(self) -> None:
        """Takes the terminal back for the run."""
        ...


class _Question(Thread):
    """Asks the watcher. ``answer``: None until there is one."""

    def __init__(self, watcher: InterruptHandler) -> None:
        super().__init__(name="question", daemon=True)
        self.answer: Answer | None = None
        self.withdrawn = Event()
        self._watcher = watcher
        self.start()
        # An answer that needs no person is there at once, so the first call can already return it.
        self.join(_AT_ONCE_S)

    def run(self) -> None:
        self.answer = self._watcher.ask_interrupt(self.withdrawn)


class Interrupts:
    """Returns new requests; the world calls it once all earlier ones are on record.

    ``run``: the run whose terminal this is; None where something else handles signals.
    """

    def __init__(self, ledger: Ledger, watcher: InterruptHandler, run: Run | None = None) -> None:
        self._ledger = ledger
        self._watcher = watcher
        self._run = run
        self._heard: list[int] = []
        self._question: _Question | None = None
        self._stop_asked = False
        self._given = self._noted = int(ledger.read_note("asks") or 0)
        self._looked = 0.0

    @property
    def is_asking(self) -> bool:
        """Tells whether a question is still open."""
        return self._question is not None

    def __call__(self) -> tuple[UserRequest, ...]:
        asks = (*self._requests_by_signal(), *self._requests_by_answer(), *self._requests_in_ledger())
        self._stop_asked = self._stop_asked or bool(asks)
        return asks

    @property
    def stop_asked(self) -> bool:
        """Tells whether anybody asked the run to end, even if too late to be acted upon."""
        # Signals that came after the last step of the loop are not requests yet.
        heard = any(number in (signal.SIGINT, signal.SIGTERM) for number in self._heard)
        return self._stop_asked or heard or any(self._ledger.requests_after(self._given))

    @property
    def asks_taken(self) -> int:
        """Returns the number of the last recorded request that was taken up."""
        return self._given

    @contextmanager
    def catch_signals(self) -> Iterator[None]:
        """Makes SIGINT ask the watcher and SIGTERM cancel gracefully, while inside.

        The run goes on if its terminal is closed. An open question is withdrawn at the end.
        """
        with self._signal_handlers():
            try:
                yield
            finally:
                self._withdraw_question()

    def _signal_handlers(self) -> AbstractContextManager[None]:
        log = None if self._run is None else background.log_of(self._run)
        return handle_signals(self._heard.append, log, views=True)

    def _requests_by_signal(self) -> Iterator[UserRequest]:
        # A handler may append meanwhile: signals interrupt this loop at any instruction.
        while self._heard:
            number = self._heard.pop(0)
            if number == signal.SIGTERM:
                self._resume_view()
                yield UserRequest.CANCEL
            elif number == signal.SIGHUP:
                self._withdraw_question()
                self._watcher.leave_terminal(CLOSED)
            elif number == signal.SIGINT:
                yield from self._on_ctrl_c()
            elif number == signal.SIGTSTP:
                self._withdraw_question()  # what is typed now is the shell's
                self._watcher.suspend()
            # After `bg` the shell still owns the terminal.
            elif number == signal.SIGCONT and background.has_terminal():
                self._watcher.resume()

    def _on_ctrl_c(self) -> Iterator[UserRequest]:
        """Asks what to do. A second Ctrl-C, while the question of the first one is open, cancels
        gracefully.
        """
        if self._question is None:
            self._question = _Question(self._watcher)
        else:
            self._resume_view()
            yield UserRequest.CANCEL

    def _requests_by_answer(self) -> Iterator[UserRequest]:
        answer = None if self._question is None else self._question.answer
        if answer is None:
            return
        self._question = None
        if answer == "detach":
            self._watcher.leave_terminal(LEFT)
        elif answer != "continue":
            yield UserRequest(answer)

    def _resume_view(self) -> None:
        """Shows the run again, if a question took its place."""
        if self._question is not None:
            self._withdraw_question()
            self._watcher.resume()

    def _withdraw_question(self) -> None:
        if self._question is not None:
            self._question.withdrawn.set()
            # Not for longer: a reader that hangs must not hold up the run.
            self._question.join(_LOOK_EVERY_S)
            self._question = None

    def _requests_in_ledger(self) -> Iterator[UserRequest]:
        """Yields requests of other processes.

        Notes them as taken up only once they are on record: after a death in between they are given again.
        """
        if stopwatch() - self._looked < _LOOK_EVERY_S:
            return
        self._looked = stopwatch()
        if self._noted < self._given:
            self._ledger.put_note("asks", str(self._given))
            self._noted = self._given
        for number, what in self._ledger.requests_after(after=self._given):
            self._given = number
            yield UserRequest(what)
