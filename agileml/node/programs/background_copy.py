"""Does one thing at a time beside a loop that must not wait: copying files to and from a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from agileml.node.liveness import SilenceTimer

T = TypeVar("T")
NoteProgress: TypeAlias = Callable[[], None]
"""Work calls this when it has got further; raises Abandoned where nobody waits for the work any more."""
_LONGEST_TURN_S: Final = 2.0
"""The longest turn of the loop beside. More time between two turns means that this process was stopped."""
_TASK: Final = "the task"


class Abandoned(BaseException):
    """Nobody waits for this work any more, and nothing is to come of it.

    No error, so that it passes through code that handles errors.
    """


class BackgroundTask(Generic[T]):
    """Runs ``work`` in a thread of its own, which does not keep the process alive.

    ``steps``: how many times it reported that it has got further.
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
        """Returns what the work returned; raises what it raised. Only once it is done."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def abandon(self) -> None:
        """Ends the task when it next gets further, if ever: no thread can be ended from outside."""
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
    """Measures how long the task in hand has made no progress, in time in which this process ran (decision
    24).

    ``clock``: seconds that only ever grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silence = SilenceTimer(clock(), _LONGEST_TURN_S)
        self._seen: tuple[BackgroundTask[Any], int] | None = None

    def silent_s(self, task: BackgroundTask[Any] | None) -> float:
        """Returns seconds without progress. Call it at every turn of the loop; None where there is nothing in
        hand.
        """
        self._silence.wake_up(self._clock())
        seen = None if task is None else (task, task.steps)
        if seen != self._seen:
            self._seen = seen
            self._silence.mark_heard(_TASK)
        return self._silence.silent_s(_TASK)
