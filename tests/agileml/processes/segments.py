"""Shared-memory segments that nobody holds any more: what a process leaves behind that ended badly."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
YOUTH_S = 1.0
"""A segment exists for a moment before its maker maps it, and after its last user let go."""


def segments() -> frozenset[str]:
    """The names of all there are, whoever's they be."""
    return frozenset(path.name for path in SHARED_MEMORY.iterdir())


def orphans(since: frozenset[str]) -> frozenset[str]:
    """Those made since ``since`` was taken that no living process maps or has open.

    Other programs of this computer make and remove segments of their own meanwhile: those are held.
    """
    candidates = segments() - since
    if candidates and (candidates := candidates - _held()):
        time.sleep(YOUTH_S)
        candidates = (candidates & segments()) - _held()
    return candidates


def _held() -> set[str]:
    """Names of segments that some process maps or has open. What ends while it is looked at holds none."""
    held: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            lines = (process / "maps").read_text(errors="replace").splitlines()
            held |= {line.rpartition("/")[2] for line in lines if f" {SHARED_MEMORY}/" in line}
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    path = Path(os.readlink(descriptor))
                    held |= {path.name} if path.parent == SHARED_MEMORY else set()
    return held
