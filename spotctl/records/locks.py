"""Locks files between processes. The kernel frees a lock when its process dies.

A check shares the lock for a moment. A process that wants the lock alone tries again for longer than that,
so checks keep nobody from a lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from spotctl.timesource import sleep, stopwatch

_CHECK_TAKES_S: Final = 0.2
"""Seconds; far more than a process needs that only checks a lock."""


class JobLocked(Exception):
    """Raised where another process runs this job now."""


@contextmanager
def hold_lock(lock: Path) -> Iterator[None]:
    """Holds ``lock`` alone. Raises JobLocked, with its folder's name, where another process holds it."""
    until = stopwatch() + _CHECK_TAKES_S
    while True:
        with open_lock(lock) as file:
            while not try_lock(file):
                if stopwatch() > until:
                    raise JobLocked(lock.parent.name)
                sleep(_CHECK_TAKES_S / 20)
            if is_current(file, lock):
                yield
                return


def open_lock(lock: Path) -> IO[str]:
    """Opens ``lock``, and creates it and its folder where needed."""
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process has just removed the folder
            return lock.open("a")


def try_lock(file: IO[str], how: int = fcntl.LOCK_EX) -> bool:
    """Takes the lock of an open file; returns False, without waiting, where another process has it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_current(file: IO[str], lock: Path) -> bool:
    """Tells whether ``file`` is still the file of that name.

    Its last holder may have removed it. Others then lock a new file, and a lock of this one excludes nobody.
    """
    try:
        return os.path.samestat(os.fstat(file.fileno()), lock.stat())
    except FileNotFoundError:
        return False


def is_held(lock: Path) -> bool:
    """Tells whether a process holds ``lock``, by sharing it for a moment."""
    try:
        # Opened for reading, as a user without write access may check too.
        with lock.open("r") as file:
            return not try_lock(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
