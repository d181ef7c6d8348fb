"""Forks a child process that keeps what its parent has imported, which takes the longest of a start.

Only for a parent of one thread, on Linux: a lock that another thread held would stay locked in the child, and
libraries of other systems do not survive a fork.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NoReturn

FORK_IS_SAFE: Final = sys.platform == "linux"
"""Whether this system allows it, where the parent has one thread."""


class ForkedProcess:
    """Runs a function as ``subprocess.Popen`` runs a program; the child ends when the function returns.

    ``stdin``, ``out``: files that become its standard input, and output and errors (None: its parent's);
    ``keep``: files that it has open beside them, under their numbers.
    """

    def __init__(
        self, run: Callable[[], None], stdin: int, out: int | None = None, keep: Iterable[int] = ()
    ) -> None:
        sys.stdout.flush()  # what is buffered would be written by both
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run_child(run, stdin, out, keep)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Returns its exit status, below 0 where a signal ended it; None while it lives."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self) -> int:
        """Waits for its end, and returns its exit status."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        if self.poll() is None:  # while it is not reaped no other process gets its number
            os.kill(self.pid, signal.SIGKILL)


def _run_child(run: Callable[[], None], stdin: int, out: int | None, keep: Iterable[int]) -> NoReturn:
    """Runs the child to its end. Nothing of the parent's call stack is ever returned to, whatever happens."""
    code = 1
    try:
        os.dup2(stdin, 0)
        if out is not None:
            os.dup2(out, 1)
            os.dup2(out, 2)
        # Else a pipe or a lock that the parent has open would stay so for as long as the child lives.
        _close_all_but({0, 1, 2, *keep})
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    for number, following in pairwise([*sorted(kept), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(number + 1, following)
