"""Writes run output on a background thread, so that a slow reader never blocks the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from spotctl.errors import Interrupted

Write = Callable[[str], None]


class LineWriter:
    """Writes lines one after the other, in a thread that lives while there are any.

    Entered with ``with``. At its end the run is over, and may wait for its readers, until Ctrl-C. While lines
    are held back, because a question is open, nothing is written.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[Write, str]] = deque()
        self._thread: Thread | None = None
        self._writes = Event()
        self._writes.set()

    def hold_back(self) -> None:
        """Writes nothing until ``go_on``."""
        self._writes.clear()

    def go_on(self) -> None:
        """Writes what was held back. Harmless when repeated."""
        self._writes.set()

    def put_line(self, write: Write, line: str) -> None:
        """Queues ``line`` for ``write``, after all earlier ones. Returns at once."""
        with self._lock:
            self._waiting.append((write, line))
            if self._thread is None:
                # A daemon: it may hang on a reader that never reads, and must not keep the process alive.
                self._thread = Thread(target=self._write_lines, name="lines", daemon=True)
                self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        with self._lock:
            thread = self._thread
        if thread is None:
            return
        try:
            # Without a limit: a slow reader gets every line, and Ctrl-C ends the wait.
            thread.join()
        except KeyboardInterrupt:
            raise Interrupted("the run is over; nobody has read all that was told of it") from None

    def _write_lines(self) -> None:
        while True:
            self._writes.wait()
            with self._lock:
                # Under the lock, so that ``put_line`` either finds this thread or starts another.
                if not self._waiting:
                    self._thread = None
                    return
                write, line = self._waiting.popleft()
            # Outside the lock: a reader that blocks here must not block ``put_line``.
            write(line)
