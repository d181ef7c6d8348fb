"""Lets a run go on without its terminal, by splitting a launch into two processes.

A launch at a terminal is two processes. The one in front is the shell's child and does nothing but wait; the
one behind it drives the run. So the driver may go on while the shell has its prompt again: the user left it
running, started it with ``--detach``, or stopped the view with Ctrl-Z. Nothing heavy is imported here, since
the fork comes before everything else: with one thread, and no lock that another thread holds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from types import FrameType

    from spotctl.records.run import Run

NOTE: Final = "background"
"""The note of the ledger that says why a run goes on without a terminal."""
_LEFT, _RUNS = b"l", b"r"
_VIEW_STOPS_WITHIN_S: Final = 0.2
_PR_SET_PDEATHSIG: Final = 1
"""See prctl(2)."""
_SIGNALLED: Final = 128
"""The number that a shell adds to the signal that ended a process."""


class Front:
    """Holds the driver's end of the pipe to the process in front of it.

    If that process is killed, the driver gets the same signal as for a closed terminal (SIGHUP): the
    shell has its prompt again, and nothing must be drawn over it.
    """

    def __init__(self, pipe: int, process: int) -> None:
        """``process``: the id of the process in front, the parent of this one."""
        self._pipe: int | None = pipe
        self._process = process
        _hear_of_parents_end(signal.SIGHUP)
        if self.is_gone:  # it ended before this process listened for that
            signal.raise_signal(signal.SIGHUP)

    @property
    def is_gone(self) -> bool:
        """Tells whether the process in front has ended."""
        return os.getppid() != self._process

    def release_front(self, *, as_wanted: bool) -> None:
        """Lets the process in front end; ``as_wanted``: the job was to be started so.

        Harmless when repeated.
        """
        if self._pipe is None:
            return
        _hear_of_parents_end(0)
        with contextlib.suppress(OSError):
            # A session of its own: the terminal's signals and its end no longer reach it.
            os.setsid()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, _RUNS if as_wanted else _LEFT)
        os.close(self._pipe)
        self._pipe = None


def fork_behind(interrupted: int) -> Front:
    """Forks; returns in the child alone. The process in front ends with the child's exit code, or before it.

    ``interrupted`` is its exit code where the run goes on without it, unless it was started to do so.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reads, writes = os.pipe()
    # Flushed above, or both processes would print what was in the buffers.
    front, child = os.getpid(), os.fork()
    if child:
        # Only the child may hold this end: when it closes, the front knows that the child is gone.
        os.close(writes)
        _wait_in_front(child, reads, interrupted)
    os.close(reads)
    return Front(writes, front)


def _hear_of_parents_end(number: int) -> None:
    """Has the kernel send this process a signal when its parent ends; 0: none.

    Only Linux can. Elsewhere a driver goes on drawing after its front was killed.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)


def _wait_in_front(child: int, reads: int, interrupted: int) -> NoReturn:
    def pass_on(number: int, _: FrameType | None) -> None:
        # The child may have ended already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    def stop(*_: object) -> None:
        # Lets the view stop drawing before the shell shows its prompt.
        time.sleep(_VIEW_STOPS_WITHIN_S)
        os.kill(os.getpid(), signal.SIGSTOP)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both
    signal.signal(signal.SIGTSTP, stop)
    signal.signal(signal.SIGTERM, pass_on)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, pass_on)
    # Blocks until the driver lets go, or ends: its end of the pipe closes either way.
    word = os.read(reads, 1)
    if word:
        os._exit(0 if word == _RUNS else interrupted)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Without clean-up handlers: they belong to the driver, which has run its own.
    os._exit(code if code >= 0 else _SIGNALLED - code)


def redirect_streams(streams: Sequence[int], log: Path | None) -> None:
    """Redirects ``streams`` of this process to ``log`` (None: nowhere), and standard input to nothing."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        out = nowhere if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError:  # a full disk must not end a run
        out = nowhere
    for stream in streams:
        # The numbers stay open, so that no later file takes 0, 1 or 2.
        os.dup2(nowhere if stream == 0 else out, stream)
    for opened in {nowhere, out}:
        os.close(opened)


def has_terminal() -> bool:
    """Tells whether this process is in the foreground of the terminal that is its standard input."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def log_of(run: Run) -> Path:
    """Returns the file that a run without a terminal writes to."""
    return run.folder / "launch.log"


def record_detachment(run: Run, why: str) -> None:
    """Records that the run goes on without a terminal, for ``status`` to show."""
    ledger = run.open_ledger()
    try:
        ledger.put_note(NOTE, why)
        ledger.commit()
    finally:
        ledger.close()


def detachment_reason(run: Run) -> str | None:
    """Returns why a run goes on without a terminal; None where it has one, or never had any."""
    ledger = run.open_ledger()
    try:
        return ledger.read_note(NOTE)
    finally:
        ledger.close()
