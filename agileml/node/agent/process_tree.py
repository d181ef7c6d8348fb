"""Finds every process of a machine, also those that left its process group, by a mark in their environment.

A program that a machine runs may start sessions and daemons of its own; what they inherit, unless they go out
of their way, is the environment. Linux only: elsewhere nothing is found, and ``is_supported`` says so.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VARIABLE: Final = "AGILEML_MACHINE"
"""Holds the machine's folder, in every process of it."""


def is_supported() -> bool:
    """Whether this system can tell what environment a process was started with."""
    return Path("/proc/self/environ").exists() and hasattr(os, "pidfd_open")


def mark_environment(value: str, variable: str = VARIABLE) -> dict[str, str]:
    """Returns the mark, for the environment of whatever shall be found again."""
    return {variable: value}


def signal_all(number: signal.Signals, value: str, variable: str = VARIABLE) -> int:
    """Sends ``number`` to every process that carries the mark, and returns how many there were.

    A process that ended meanwhile is never mistaken for another one that got its id.
    """
    count = 0
    for process, handle in _find_marked(f"{variable}={value}".encode()):
        if process != os.getpid():
            try:
                signal.pidfd_send_signal(handle, number)
                count += 1
            except ProcessLookupError:
                pass  # it ended this very moment, which is as good
    return count


def any_left(value: str, variable: str = VARIABLE) -> bool:
    """Whether any process carries the mark."""
    return any(process != os.getpid() for process, _ in _find_marked(f"{variable}={value}".encode()))


def _find_marked(wanted: bytes) -> Iterator[tuple[int, int]]:
    """Yields (id, handle) of each process with the mark. The handle is open during its turn, and was opened
    before the mark was read.
    """
    if not is_supported():
        return
    for place in Path("/proc").glob("[0-9]*"):
        try:
            handle = os.pidfd_open(int(place.name))
        except OSError:
            continue  # it ended meanwhile, or this system gives no handles
        try:
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                yield int(place.name), handle
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or belongs to somebody else and so is none of ours
        finally:
            os.close(handle)
