"""What a server and a worker measure of themselves, for automatic stages.

Told of every message and of the time; knows neither sockets nor clocks. Bytes are those of the arrays, which
are nearly all there are.
"""

from __future__ import annotations

from typing import Final

from agileml.events import ClockCompleted, ServerLoad, WorkerLoad
from agileml.messages import Answer, Message, Outgoing, Patch, Push, Read, ReadDone, Reply, Send, Update

REPORT_EVERY_S: Final = 5.0


def _size(patch: Patch) -> int:
    return patch.rows.nbytes + patch.values.nbytes


class ServerMeter:
    def __init__(self, machine: str, incarnation: int, now: float) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._began = now
        self._completions = self._exchanged = self._pushed = 0

    def received(self, message: Message) -> None:
        if isinstance(message, Update):
            self._exchanged += sum(_size(delta.patch) for part in message.parts for delta in part.deltas)

    def sent(self, item: Outgoing) -> None:
        match item:
            case ClockCompleted():
                self._completions += 1
            case Reply(message=ReadDone(values=values)):
                self._exchanged += values.nbytes
            case Send(message=Push(patch=patch)):
                self._pushed += _size(patch)

    def report(self, now: float) -> ServerLoad | None:
        """Since the last report; None too soon after it, or where nothing was completed."""
        if now - self._began < REPORT_EVERY_S or not self._completions:
            return None
        report = ServerLoad(
            self._machine, self._incarnation, self._completions, self._exchanged, self._pushed
        )
        self._began = now
        self._completions = self._exchanged = self._pushed = 0
        return report


class WorkerMeter:
    """A clock is taken to last from the first answer to its read to the read of the next clock.

    All workers get their first answers at about the same time, when the last delta of the clock before is
    in; so whoever is busy for longer than others lags behind them.
    """

    def __init__(self, machine: str, incarnation: int, now: float) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._began = now
        self._clock = 0
        self._answered_at: float | None = None
        self._clocks = self._shards = 0
        self._busy_s = self._computing_s = 0.0

    def sent(self, item: Outgoing, now: float) -> None:
        if (
            not isinstance(item, Send)
            or not isinstance(item.message, Read)
            or item.message.clock == self._clock
        ):
            return
        if self._answered_at is not None:
            self._clocks += 1
            self._busy_s += now - self._answered_at
        self._clock, self._answered_at = item.message.clock, None

    def received(self, answer: Answer, now: float) -> None:
        if isinstance(answer, ReadDone) and self._answered_at is None:
            self._answered_at = now

    def computed(self, shards: int, core_s: float) -> None:
        self._shards += shards
        self._computing_s += core_s

    def report(self, now: float) -> WorkerLoad | None:
        """Since the last report; None too soon after it, or where no clock was finished."""
        if now - self._began < REPORT_EVERY_S or not self._clocks or not self._shards:
            return None
        busy_s = self._busy_s / self._clocks
        report = WorkerLoad(self._machine, self._incarnation, self._shards, self._computing_s, busy_s)
        self._began = now
        self._clocks = self._shards = 0
        self._busy_s = self._computing_s = 0.0
        return report
