"""Hears, on the machine itself, that its provider is about to take it.

A cloud tells machines as well as who pays for them, and often the machine first. Whoever knows better than
the provider's API, such as a batch system or an operator's script, may say so in a file: its name is in the
environment variable ``SPOTCTL_NOTICE_FILE`` of the agent, and it holds the seconds that are left, as text.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final, Protocol

NOTICE_FILE_VARIABLE: Final = "SPOTCTL_NOTICE_FILE"


class NoticeSource(Protocol):
    """Hears of the machine's eviction."""

    def seconds_left(self) -> float | None:
        """Returns how many seconds are left, once, when that becomes known; None otherwise. Never waits."""


class NoNotices:
    """Hears of nothing: for machines whose provider tells whoever pays for them, and nobody else."""

    def seconds_left(self) -> float | None:
        return None


class NoticeFile:
    """Reads a file that appears when the machine is about to be taken.

    A file that holds no number is no notice yet: it may be half written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = False

    def seconds_left(self) -> float | None:
        if self._told:
            return None
        try:
            seconds = float(self._path.read_text())
        except (OSError, ValueError):
            return None
        if not math.isfinite(seconds):
            return None
        self._told = True
        return max(0.0, seconds)


def notices_of_environment() -> NoticeSource:
    """Returns where this machine hears of its eviction, as its environment says."""
    file = os.environ.get(NOTICE_FILE_VARIABLE)
    return NoticeFile(Path(file)) if file else NoNotices()
