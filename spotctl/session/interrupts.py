"""What people ask of a running job: signals, Ctrl-C, and requests left in its ledger by other processes.

A person who is asked something answers beside the run, in a thread: prices, decisions and machines do not
wait for anybody.
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

from spotctl.control.entries import Ask
from spotctl.records import background
from spotctl.records.ledger import Ledger
from spotctl.records.run import Run
from spotctl.timesource import stopwatch

_LOOK_EVERY_S: Final = 0.2
_AT_ONCE_S: Final = 0.05
"""Who needs no person to answer has answered by then."""
CLOSED: Final = "its terminal was closed"
KILLED: Final = "the process in front of it was killed"
LEFT: Final = "it was left running"
DETACHED: Final = "it was started with --detach"

Answer = Literal["continue", "cancel", "down", "detach"]


@contextmanager
def signalled(hear: Callable[[int], None], log: Path | None = None, *, views: bool = False) -> Iterator[None]:
    """While inside, ``hear`` is told of SIGINT, SIGTERM and SIGHUP; with ``views`` of Ctrl-Z and its end too.

    Of a terminal that was closed (SIGHUP) nothing can be read and nothing written to it any more: what led
    there leads to ``log`` from then on, or nowhere. Under ``nohup`` that signal is ignored, and stays so.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    terminals = [stream for stream in (0, 1, 2) if os.isatty(stream)]
    if views and 0 in terminals:
        numbers += [signal.SIGTSTP, signal.SIGCONT]

    def on_signal(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            background.redirect(terminals, log)
        hear(number)

    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Watcher(Protocol):
    """Who watches a run, and answers for it."""

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        """Ctrl-C was pressed: what is wanted? Without a terminal the answer is "cancel".

        May take as long as it likes; once ``withdrawn`` is set nobody waits for the answer any more.
        """
        ...

    def leave(self, why: str) -> None:
        """The run goes on without a terminal."""
        ...

    def suspend(self) -> None:
        """Somebody else has the terminal for a while."""
        ...

    def resume(self) -> None:
        """The terminal is the run's again."""
        ...


class _Question(Thread):
    """Put to whoever watches. ``answer``: None until there is one."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(name="question", daemon=True)
        self.answer: Answer | None = None
        self.withdrawn = Event()
        self._watcher = watcher
        self.start()
        self.join(_AT_ONCE_S)

    def run(self) -> None:
        self.answer = self._watcher.ask_interrupt(self.withdrawn)


class Interrupts:
    """Called by the world when all that it gave before is on record; gives what was asked since.

    ``run``: of which the terminal is; None where signals are somebody else's affair.
    """

    def __init__(self, ledger: Ledger, watcher: Watcher, run: Run | None = None) -> None:
        self._ledger = ledger
        self._watcher = watcher
        self._run = run
        self._heard: list[int] = []
        self._question: _Question | None = None
        self._stop_asked = False
        self._given = self._noted = int(ledger.noted("asks") or 0)
        self._looked = 0.0

    @property
    def asking(self) -> bool:
        """Whether somebody has still to answer."""
        return self._question is not None

    def __call__(self) -> tuple[Ask, ...]:
        asks = (*self._signalled(), *self._answered(), *self._left_in_ledger())
        self._stop_asked = self._stop_asked or bool(asks)
        return asks

    @property
    def stop_asked(self) -> bool:
        """Whether anybody asked the run to end, be it too late to be taken up."""
        heard = any(number in (signal.SIGINT, signal.SIGTERM) for number in self._heard)
        return self._stop_asked or heard or any(self._ledger.asks(self._given))

    @property
    def asks_taken(self) -> int:
        """The number of the last request on record that was taken up."""
        return self._given

    @contextmanager
    def caught(self) -> Iterator[None]:
        """While inside, SIGINT asks the watcher and SIGTERM is a graceful cancel.

        The run goes on where its terminal is closed. A question is withdrawn at the end.
        """
        with self._signals():
            try:
                yield
            finally:
                self._withdraw()

    def _signals(self) -> AbstractContextManager[None]:
        log = None if self._run is None else background.log_of(self._run)
        return signalled(self._heard.append, log, views=True)

    def _signalled(self) -> Iterator[Ask]:
        while self._heard:
            number = self._heard.pop(0)
            if number == signal.SIGTERM:
                self._take_back()
                yield Ask.CANCEL
            elif number == signal.SIGHUP:
                self._withdraw()
                self._watcher.leave(CLOSED)
            elif number == signal.SIGINT:
                yield from self._interrupted()
            elif number == signal.SIGTSTP:
                self._withdraw()  # what is typed now is the shell's
                self._watcher.suspend()
            elif number == signal.SIGCONT and background.has_terminal():
                self._watcher.resume()

    def _interrupted(self) -> Iterator[Ask]:
        """A second Ctrl-C, while the question of the first one is open, is a graceful cancel."""
        if self._question is None:
            self._question = _Question(self._watcher)
        else:
            self._take_back()
            yield Ask.CANCEL

    def _answered(self) -> Iterator[Ask]:
        answer = None if self._question is None else self._question.answer
        if answer is None:
            return
        self._question = None
        if answer == "detach":
            self._watcher.leave(LEFT)
        elif answer != "continue":
            yield Ask(answer)

    def _take_back(self) -> None:
        """Show the run again, if somebody was asked instead."""
        if self._question is not None:
            self._withdraw()
            self._watcher.resume()

    def _withdraw(self) -> None:
        if self._question is not None:
            self._question.withdrawn.set()
            self._question.join(_LOOK_EVERY_S)
            self._question = None

    def _left_in_ledger(self) -> Iterator[Ask]:
        """Noted as taken up only once it is on record: after a death in between it is given again."""
        if stopwatch() - self._looked < _LOOK_EVERY_S:
            return
        self._looked = stopwatch()
        if self._noted < self._given:
            self._ledger.note("asks", str(self._given))
            self._noted = self._given
        for number, what in self._ledger.asks(after=self._given):
            self._given = number
            yield Ask(what)
