"""Runs a long copy beside a loop that must not wait, and measures whether it makes progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from agileml.node.liveness import SilenceTimer

T = TypeVar("T")
NoteProgress: TypeAlias = Callable[[], None]
"""Work calls this after each step. Raises Abandoned if the work has been abandoned."""
_LONGEST_TURN_S: Final = 2.0
"""The longest turn of the loop. More time between two turns means that this process was stopped."""
_TASK: Final = "the task"


class Abandoned(BaseException):
    """The work has been abandoned, and must have no further effect.

    Not an Exception, so that it passes through code that handles errors.
    """


class BackgroundTask(Generic[T]):
    """Runs ``work`` in a thread of its own, which does not keep the process alive.

    ``steps``: the number of times that it reported progress.
    """

    def __init__(self, work: Callable[[NoteProgress], T]) -> None:
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._abandoned = False
        self.steps = 0
        self._thread = threading.Thread(target=self._run_work, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> T:
        """Returns the work's result, or raises its error. Call it only once the work is done."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def abandon(self) -> None:
        """Ends the work at its next report of progress, if ever: a thread cannot be ended from outside."""
        self._abandoned = True

    def _note_progress(self) -> None:
        if self._abandoned:
            raise Abandoned
        self.steps += 1

    def _run_work(self) -> None:
        try:
            self._result.append(self._work(self._note_progress))
        except BaseException as error:  # ``result`` raises it
            self._error = error


class StallTimer:
    """Measures how long a task has made no progress, in seconds in which this process ran (decision 24)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silence = SilenceTimer(clock(), _LONGEST_TURN_S)
        self._seen: tuple[BackgroundTask[Any], int] | None = None

    def silent_s(self, task: BackgroundTask[Any] | None) -> float:
        """Returns the seconds without progress. Call it at every turn of the loop, without a task as well."""
        self._silence.wake_up(self._clock())
        seen = None if task is None else (task, task.steps)
        if seen != self._seen:
            self._seen = seen
            self._silence.mark_heard(_TASK)
        return self._silence.silent_s(_TASK)
