"""What people ask of a running job: signals, Ctrl-C, and requests left in its ledger by other processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Final, Literal, Protocol

from spotctl.control.events import Ask
from spotctl.ledger import Ledger
from spotctl.timesource import stopwatch

_LOOK_EVERY_S: Final = 0.2

Answer = Literal["continue", "cancel", "down", "detach"]


@contextmanager
def signalled(hear: Callable[[int], None]) -> Iterator[None]:
    """While inside, ``hear`` is told of SIGINT, SIGTERM and SIGHUP: machines are given back before the end.

    Of a terminal that was closed (SIGHUP) nothing can be read and nothing written to it any more: what led
    there leads nowhere from then on. Under ``nohup`` that signal is ignored, and stays so.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    terminals = [stream for stream in (0, 1, 2) if os.isatty(stream)]

    def on_signal(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in terminals:
                os.dup2(nowhere, stream)
            os.close(nowhere)
        hear(number)

    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Detached(Exception):
    """The person who watched wants the job to go on without this process."""


class Watcher(Protocol):
    def ask_interrupt(self) -> Answer:
        """Ctrl-C was pressed: what is wanted? Without a terminal the answer is "cancel"."""
        ...


class Interrupts:
    """Called by the world when all that it gave before is on record; gives what was asked since."""

    def __init__(self, ledger: Ledger, watcher: Watcher) -> None:
        self._ledger = ledger
        self._watcher = watcher
        self._ctrl_c = False
        self._terminated = False
        self._given = self._noted = int(ledger.noted("asks") or 0)
        self._looked = 0.0

    def __call__(self) -> tuple[Ask, ...]:
        return (*self._signalled(), *self._left_in_ledger())

    def caught(self) -> AbstractContextManager[None]:
        """While inside, SIGINT asks the watcher; SIGTERM and a closed terminal are a graceful cancel."""
        return signalled(self._on_signal)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self._ctrl_c = True
        else:
            self._terminated = True

    def _signalled(self) -> Iterator[Ask]:
        if self._terminated:
            self._terminated = False
            yield Ask.CANCEL
        if self._ctrl_c:
            self._ctrl_c = False
            answer = self._watcher.ask_interrupt()
            if answer == "detach":
                raise Detached
            if answer != "continue":
                yield Ask(answer)

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
