"""One thing at a time, done beside a loop that must not wait: copying files to and from a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from agileml.node.liveness import SilenceTimer

T = TypeVar("T")
GoesOn: TypeAlias = Callable[[], None]
"""Called by work that has got further; raises Abandoned where nobody waits for it any more."""
_LONGEST_TURN_S: Final = 2.0
"""Of the loop beside: what is beyond that between two looks was no time of this process."""
_TASK: Final = "the task"


class Abandoned(Exception):
    """Nobody waits for this work any more, and nothing is to come of it."""


class Task(Generic[T]):
    """``work`` in a thread of its own, which does not keep the process alive.

    ``steps``: how many times it said that it has got further.
    """

    def __init__(self, work: Callable[[GoesOn], T]) -> None:
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._abandoned = False
        self.steps = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> T:
        """What the work returned; raises what it raised. Only once it is done."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def abandon(self) -> None:
        """It ends by itself when it next gets further, if ever: no thread can be ended from outside."""
        self._abandoned = True

    def _goes_on(self) -> None:
        if self._abandoned:
            raise Abandoned
        self.steps += 1

    def _run(self) -> None:
        try:
            self._result.append(self._work(self._goes_on))
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error


class Patience:
    """For how long the task in hand has not got further, in time in which this process ran (decision 24).

    ``clock``: seconds that only ever grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listening = SilenceTimer(clock(), _LONGEST_TURN_S)
        self._seen: tuple[Task[Any], int] | None = None

    def silent_s(self, task: Task[Any] | None) -> float:
        """To be asked at every turn of the loop; None where there is nothing in hand."""
        self._listening.wake_up(self._clock())
        seen = None if task is None else (task, task.steps)
        if seen != self._seen:
            self._seen = seen
            self._listening.mark_heard(_TASK)
        return self._listening.silent_s(_TASK)
