"""Notices what a process takes unusually long over, so that the user can be told.

A worker may rightly compute for hours and a server read for as long from a slow store, so nothing here says
that a process hangs, and nobody is ended for what is reported here. Each thread says what it does where that
may take long (``Activity``). Another thread looks whether it ever ends (``Activities.find_stalled``). What
takes longer than it ever did is reported in the process's log and kept in a file beside it (``StallLog``).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agileml.node.liveness import SilenceTimer

_SUFFIX: Final = ".waits"
_MORE_THAN_EVER: Final = 2.0
"""An activity is reported when it takes this many times as long as the longest of its kind before."""


class Activity:
    """Says what one thread does.

    The thread alone calls ``start_turn``, ``set_activity`` and ``while_doing``; others read
    ``current_activity``.
    """

    def __init__(self, what: str) -> None:
        """``what``: the activity before its first turn; empty where it waits for work,
        which it may for ever.
        """
        self._what: tuple[str, tuple[object, ...]] = (what, ())
        self._turns = 0

    @property
    def current_activity(self) -> tuple[int, str, str]:
        """A number that changes whenever the thread goes on, and what it does: the kind, and in words."""
        what, about = self._what
        return self._turns, what, what.format(*about)

    def start_turn(self) -> None:
        """Begins a turn of a loop that waits for messages, but never for long."""
        self._what = ("handling messages", ())
        self._turns += 1

    def set_activity(self, what: str, *about: object) -> None:
        """Sets what the thread does until further notice: for one that waits for something that may never
        come.
        """
        self._what = (what, about)
        self._turns += 1

    @contextmanager
    def while_doing(self, what: str, *about: object) -> Iterator[None]:
        """Sets the activity within the block: ``what`` with ``about`` in its braces, formatted only when
        somebody reads it.
        """
        before = self._what
        self._what = (what, about)
        self._turns += 1
        try:
            yield
        finally:
            self._what = before
            self._turns += 1


@dataclass(frozen=True, slots=True)
class Stall:
    """An activity that has lasted ``seconds`` in which this process ran. ``news``: it is to be reported
    again.
    """

    what: str
    seconds: float
    news: bool


@dataclass(slots=True)
class _WatchedThread:
    activity: Activity
    turns: int = -1
    kind: str = ""
    longest_s: dict[str, float] = field(default_factory=dict)
    """The longest time by kind."""
    told_s: float = 0.0


class Activities:
    """The activities of a process. Time in which all of it was stopped does not count (decision 24)."""

    def __init__(self) -> None:
        self._watched: list[_WatchedThread] = []

    def add_thread(self, what: str) -> Activity:
        """Returns the activity of one more thread, which starts with ``what``."""
        activity = Activity(what)
        self._watched.append(_WatchedThread(activity))
        return activity

    def find_stalled(self, listening: SilenceTimer, after_s: float) -> tuple[Stall, ...]:
        """Returns what takes longer than ``after_s`` and than twice the longest of its kind, as of
        ``wake_up``.

        It is news then, and again after twice as long each time.
        """
        found = []
        for number, watched in enumerate(tuple(self._watched)):
            turns, kind, what = watched.activity.current_activity
            silent_s, longest_s = listening.silent_s(str(number)), watched.longest_s.get(watched.kind, 0.0)
            # It went on since the last look: what it did before sets the scale for its kind.
            if turns != watched.turns:
                watched.longest_s[watched.kind] = max(longest_s, silent_s)
                watched.turns, watched.kind, watched.told_s = turns, kind, 0.0
                listening.mark_heard(str(number))
            elif kind and silent_s >= max(after_s, _MORE_THAN_EVER * longest_s):
                news = silent_s >= 2 * watched.told_s
                watched.told_s = silent_s if news else watched.told_s
                found.append(Stall(what, silent_s, news))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class RecordedStall:
    """A stall on record: ``process`` of ``machine`` has been at ``what`` since that time, in seconds since
    the epoch.
    """

    machine: str
    process: str
    what: str
    since: float


class StallLog:
    """A file in its machine's folder that says what a process is stalled with. It
    exists only during a stall.
    """

    def __init__(self, machine: Path, process: str) -> None:
        """Removes what an earlier process of the name has left."""
        self._file = machine / f"{process}{_SUFFIX}"
        self._file.unlink(missing_ok=True)
        self._kept: list[str] = []
        self._refused = False

    def report_stalls(self, overdue: Sequence[Stall], now: float) -> None:
        """Writes what is news to the log, and all of it to the file. ``now``: seconds since the epoch.

        What a full disk refuses is tried again the next time; the log says so once.
        """
        for one in overdue:
            if one.news:
                _log_line(f"still at it after {one.seconds:.0f} s: {one.what}")
        try:
            self._write_file(overdue, now)
        except OSError as error:
            if not self._refused:
                _log_line(f"what it is at cannot be kept: {error}")
            self._refused = True
        else:
            self._refused = False

    def _write_file(self, overdue: Sequence[Stall], now: float) -> None:
        if (kept := [one.what for one in overdue]) == self._kept:
            return
        if overdue:
            part = self._file.with_suffix(".part")
            part.write_text(json.dumps([{"what": one.what, "since": now - one.seconds} for one in overdue]))
            part.replace(self._file)
        else:
            self._file.unlink(missing_ok=True)
        self._kept = kept


def _log_line(line: str) -> None:
    """Writes to the log if possible: it may be on the disk that is full."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def watch_activities(activities: Activities, stall_log: StallLog, every_s: float, after_s: float) -> None:
    """Watches for good, in a thread of its own: a disk that stands still delays nothing but the reports."""
    listening, wake = SilenceTimer(time.monotonic(), 2 * every_s), threading.Event()
    while True:
        wake.wait(every_s)
        listening.wake_up(time.monotonic())
        stall_log.report_stalls(activities.find_stalled(listening, after_s), time.time())


def recorded_stalls(machines: Path) -> Iterator[RecordedStall]:
    """Yields the recorded stalls of the machines in a folder, also of processes that
    were killed meanwhile.
    """
    for file in sorted(machines.glob(f"*/*{_SUFFIX}")):
        try:
            content = json.loads(file.read_text())
        except FileNotFoundError:
            continue  # it went on this very moment
        for one in content:
            yield RecordedStall(file.parent.name, file.stem, one["what"], one["since"])
