"""Measures the load of a server and a worker, for automatic stages.

A meter is told of every message and of the time; it knows neither sockets nor clocks. Bytes are those of the
arrays, which are nearly all there are.
"""

from __future__ import annotations

from typing import Final

from agileml.protocol.events import ClockCompleted, ServerLoad, WorkerLoad
from agileml.protocol.messages import (
    Answer,
    Message,
    Outgoing,
    Patch,
    Push,
    Read,
    ReadDone,
    Reply,
    Send,
    Update,
)

REPORT_EVERY_S: Final = 5.0
"""The shortest time between two reports: a stage lasts for minutes, and every report is written to the
journal.
"""


def _patch_bytes(patch: Patch) -> int:
    return patch.rows.nbytes + patch.values.nbytes


class ServerMeter:
    """Counts the clocks of partitions that a server completed, and the bytes that they took.

    It counts bytes exchanged with workers and bytes pushed to backups. ``now``: seconds of the machine's own
    clock, here and in ``make_report``.
    """

    def __init__(self, machine: str, incarnation: int, now: float) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._began = now
        self._completions = self._exchanged = self._pushed = 0

    def count_received(self, message: Message) -> None:
        if isinstance(message, Update):
            self._exchanged += sum(
                _patch_bytes(delta.patch) for part in message.parts for delta in part.deltas
            )

    def count_sent(self, item: Outgoing) -> None:
        match item:
            case ClockCompleted():
                self._completions += 1
            case Reply(message=ReadDone(values=values)):
                self._exchanged += values.nbytes
            case Send(message=Push(patch=patch)):
                self._pushed += _patch_bytes(patch)

    def make_report(self, now: float) -> ServerLoad | None:
        """Returns the load since the last report; None too soon after it, or where nothing was completed."""
        if now - self._began < REPORT_EVERY_S or not self._completions:
            return None
        report = ServerLoad(
            self._machine, self._incarnation, self._completions, self._exchanged, self._pushed
        )
        self._began = now
        self._completions = self._exchanged = self._pushed = 0
        return report


class WorkerMeter:
    """Measures a worker's clocks: it is busy from the first answer to a clock's read until it takes the next
    clock.

    All workers get their first answers at about the same time, when the last delta of the clock before is in;
    so a worker that is busy for longer than others lags behind them. An answer that was there before the
    clock was begun counts from then on.
    """

    def __init__(self, machine: str, incarnation: int, now: float) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._began = now
        self._clock: int | None = None
        self._turned_at = now
        self._asked: dict[int, int] = {}  # request -> the clock it reads for
        self._answered_at: dict[int, float] = {}
        self._clocks = self._shards = 0
        self._busy_s = self._clock_s = self._computing_s = 0.0

    def note_request(self, item: Outgoing) -> None:
        if isinstance(item, Send) and isinstance(item.message, Read):
            self._asked[item.message.request] = item.message.clock

    def note_answer(self, answer: Answer, now: float) -> None:
        if isinstance(answer, ReadDone) and answer.request in self._asked:
            self._answered_at.setdefault(self._asked[answer.request], now)

    def set_clock(self, clock: int | None, now: float) -> None:
        """Sets the clock that the worker has in hand; setting it again changes nothing."""
        if clock == self._clock:
            return
        answered_at = None if self._clock is None else self._answered_at.get(self._clock)
        if answered_at is not None:
            self._clocks += 1
            self._busy_s += now - max(answered_at, self._turned_at)
            self._clock_s += now - self._turned_at
        self._clock, self._turned_at = clock, now
        kept = {request: of for request, of in self._asked.items() if clock is not None and of >= clock}
        self._asked = kept
        self._answered_at = {of: at for of, at in self._answered_at.items() if of in kept.values()}

    def count_computed(self, shards: int, core_s: float) -> None:
        self._shards += shards
        self._computing_s += core_s

    def make_report(self, now: float) -> WorkerLoad | None:
        """Returns the load since the last report; None too soon after it, or where no clock was finished."""
        if now - self._began < REPORT_EVERY_S or not self._clocks or not self._shards:
            return None
        report = WorkerLoad(
            self._machine,
            self._incarnation,
            self._shards,
            self._computing_s,
            self._busy_s / self._clocks,
            self._clock_s / self._clocks,
        )
        self._began = now
        self._clocks = self._shards = 0
        self._busy_s = self._clock_s = self._computing_s = 0.0
        return report
