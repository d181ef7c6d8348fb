"""Makes the environment of a machine's processes, and finds every process by a mark in its environment.

A program may start sessions and daemons that leave its process group. They still inherit the environment,
unless they clear it. Linux only: elsewhere nothing is found, and ``is_supported`` returns False.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VARIABLE: Final = "AGILEML_MACHINE"
"""Holds the machine's folder, in the environment of every process of it."""
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""These limit the threads of numerical libraries, which otherwise start one per core of the computer."""
_ROOT: Final = str(Path(__file__).resolve().parents[3])
"""The folder of the package agileml."""


def machine_environment(threads: int = 1) -> dict[str, str]:
    """Returns our environment, with ``threads`` per process and this very package on the Python path."""
    inherited = os.environ.get("PYTHONPATH")
    path = _ROOT if not inherited else f"{_ROOT}{os.pathsep}{inherited}"
    return {**os.environ, **dict.fromkeys(_THREADS, str(threads)), "PYTHONPATH": path}


def is_supported() -> bool:
    """Returns whether this system shows the environment of processes."""
    return Path("/proc/self/environ").exists() and hasattr(os, "pidfd_open")


def signal_all(number: signal.Signals, value: str, variable: str = VARIABLE) -> int:
    """Sends ``number`` to every process with ``variable=value``, except this one. Returns their number."""
    count = 0
    for process, handle in _find_marked(f"{variable}={value}".encode()):
        if process != os.getpid():
            try:
                signal.pidfd_send_signal(handle, number)
                count += 1
            except ProcessLookupError:
                pass  # it has ended since
    return count


def any_left(value: str, variable: str = VARIABLE) -> bool:
    """Returns whether any process except this one has ``variable=value``."""
    return any(process != os.getpid() for process, _ in _find_marked(f"{variable}={value}".encode()))


def _find_marked(wanted: bytes) -> Iterator[tuple[int, int]]:
    """Yields (id, handle) of each process with the mark. It closes the handle afterwards."""
    if not is_supported():
        return
    for place in Path("/proc").glob("[0-9]*"):
        # The handle is opened before the environment is read. If the process ends in between and another gets
        # its id, the handle still means the first, and no stranger receives a signal.
        try:
            handle = os.pidfd_open(int(place.name))
        except OSError:
            continue  # it has ended since, or this system gives no handles
        try:
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                yield int(place.name), handle
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended since, or belongs to another user and so is none of ours
        finally:
            os.close(handle)
