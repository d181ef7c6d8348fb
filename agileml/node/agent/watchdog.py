"""What a process is at, and for how long: so that whoever waits for it can be told.

A worker may rightly compute for hours and a server read for as long from a slow store, so nothing here says
that a process hangs, and nobody is ended for what is told here. Each thread says what it does where that may
take long (``Activity``), another one looks whether it ever ends (``Doings.find_stalled``), and what takes
longer than it ever did is told in the process's log and kept in a file beside it (``StallLog``).
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
"""Told is what takes so many times as long as the longest before it."""


class Activity:
    """Of one thread, which alone calls ``start_turn``, ``set_activity`` and ``while_doing``; others look at ``current_activity``."""

    def __init__(self, what: str) -> None:
        """``what``: it is at before it first turns; empty where it waits for work, which it may for ever."""
        self._what: tuple[str, tuple[object, ...]] = (what, ())
        self._turns = 0

    @property
    def current_activity(self) -> tuple[int, str, str]:
        """A number that changes whenever it goes on, and what it is at: the kind, and in words."""
        what, about = self._what
        return self._turns, what, what.format(*about)

    def start_turn(self) -> None:
        """Of a loop that waits for messages, but never for long: it begins anew."""
        self._what = ("handling messages", ())
        self._turns += 1

    def set_activity(self, what: str, *about: object) -> None:
        """Until it says otherwise: of one that waits, for something that is not sure to come."""
        self._what = (what, about)
        self._turns += 1

    @contextmanager
    def while_doing(self, what: str, *about: object) -> Iterator[None]:
        """``what`` with ``about`` in its braces, which is put together only where somebody looks."""
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
    """Since ``seconds`` in which this process ran. ``news``: it is to be told again."""

    what: str
    seconds: float
    news: bool


@dataclass(slots=True)
class _WatchedThread:
    doing: Activity
    turns: int = -1
    kind: str = ""
    longest_s: dict[str, float] = field(default_factory=dict)
    """By kind."""
    told_s: float = 0.0


class Activities:
    """Those of a process. Time in which all of it was stopped is none (decision 24)."""

    def __init__(self) -> None:
        self._watched: list[_WatchedThread] = []

    def add_thread(self, what: str) -> Activity:
        """Of one more thread, which is at ``what`` first."""
        doing = Activity(what)
        self._watched.append(_WatchedThread(doing))
        return doing

    def find_stalled(self, listening: SilenceTimer, after_s: float) -> tuple[Stall, ...]:
        """What takes longer than ``after_s`` and than twice the longest of its kind, as of ``wake_up``.

        It is news then, and again after twice as long each time.
        """
        found = []
        for number, watched in enumerate(tuple(self._watched)):
            turns, kind, what = watched.doing.current_activity
            silent_s, longest_s = listening.silent_s(str(number)), watched.longest_s.get(watched.kind, 0.0)
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
    """``process`` of ``machine`` is at ``what`` since that time, in seconds since the epoch."""

    machine: str
    process: str
    what: str
    since: float


class StallLog:
    """A file in its machine's folder, which says what a process is overdue with; there only while it is."""

    def __init__(self, machine: Path, process: str) -> None:
        """What an earlier process of the name has left is of no more use."""
        self._file = machine / f"{process}{_SUFFIX}"
        self._file.unlink(missing_ok=True)
        self._kept: list[str] = []
        self._refused = False

    def report_stalls(self, overdue: Sequence[Stall], now: float) -> None:
        """In the log what is news, in the file all of it. ``current_activity``: seconds since the epoch.

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
    """The log may be on the disk that is full."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def watch_activities(doings: Activities, told: StallLog, every_s: float, after_s: float) -> None:
    """In a thread of its own, for good: a disk that stands still holds up nothing but the telling."""
    listening, wake = SilenceTimer(time.monotonic(), 2 * every_s), threading.Event()
    while True:
        wake.wait(every_s)
        listening.wake_up(time.monotonic())
        told.report_stalls(doings.find_stalled(listening, after_s), time.time())


def recorded_stalls(machines: Path) -> Iterator[RecordedStall]:
    """What is kept of the machines in a folder; of those, too, whose processes were killed meanwhile."""
    for file in sorted(machines.glob(f"*/*{_SUFFIX}")):
        try:
            content = json.loads(file.read_text())
        except FileNotFoundError:
            continue  # it went on this very moment
        for one in content:
            yield RecordedStall(file.parent.name, file.stem, one["what"], one["since"])
