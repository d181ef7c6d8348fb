"""The lines of a run, for whoever reads them whenever they do: no reader holds up a run."""

from __future__ import annotations

import contextlib
import io
import os
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread
from typing import TextIO


class Lines:
    """Writes lines one after the other, in a thread that lives while there are any.

    ``lost`` is told, once, why a stream takes no more; from then on that stream leads nowhere.
    """

    def __init__(self, lost: Callable[[str], None]) -> None:
        self._lost = lost
        self._lock = Lock()
        self._waiting: deque[tuple[TextIO, str]] = deque()
        self._thread: Thread | None = None

    def put(self, stream: TextIO, line: str) -> None:
        """Returns at once. Of a stream, all lines or none are to be written this way until ``finish``."""
        with self._lock:
            self._waiting.append((stream, line))
            if self._thread is None:
                self._thread = Thread(target=self._write, name="lines", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Wait until all is written, however long that takes; Ctrl-C gives up what is not."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            with contextlib.suppress(KeyboardInterrupt):
                thread.join()

    def _write(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                stream, line = self._waiting.popleft()
            if (why := write(stream, line)) is not None:
                self._lost(why)


def write(stream: TextIO, line: str) -> str | None:
    """Why ``line`` could not be written; from then on ``stream`` leads nowhere. None where it was.

    Past the stream's own buffer, which nobody else could use, not even to end, as long as this waits.
    """
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:
        print(line, file=stream)
        return None
    try:
        stream.flush()
        left = f"{line}\n".encode(stream.encoding or "utf-8", "replace")
        while left:
            left = left[os.write(number, left) :]
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
        return error.strerror or str(error)
    return None
