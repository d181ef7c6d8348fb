"""Defines control messages beside events and commands: objectives, lost machines, and the order to end one.

Pure. The objective of a clock is a sum over shards. The owner of each shard computes its part from the values
that it trains on, so the sum describes the model one clock before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from agileml.protocol.commands import (
    Checkpointed,
    CheckpointFailed,
    Command,
    Failed,
    Finished,
    JoinedTraining,
    Progressed,
    RolledBack,
    SafeToKill,
    StageChanged,
)
from agileml.protocol.events import Event


class ShardObjective(Struct, frozen=True):
    """A shard's part of the objective: a sum of ``count`` terms."""

    shard: int
    total: float
    count: float


class ObjectiveReport(Struct, frozen=True):
    """From a worker: the objectives of its shards before it computed ``clock``."""

    machine: str
    clock: int
    parts: tuple[ShardObjective, ...]


class ObjectiveAt(Struct, frozen=True):
    """Upwards: the objective of the model at the end of ``clock``."""

    clock: int
    value: float


class MachineGivenUp(Struct, frozen=True):
    """Upwards: training has lost this machine, although the client did not report it.

    Its agent is silent, or reports that a process dies over and over. The machine may still run, and cost
    money.
    """

    machine: str


class EvictionNoticed(Struct, frozen=True):
    """Upwards: the machine itself learned that its provider takes it in ``notice_s`` real seconds."""

    machine: str
    notice_s: float


class EndMachine(Struct, frozen=True):
    """To an agent: the job no longer needs this machine; end its roles and yourself."""

    machine: str


Upward: TypeAlias = (
    SafeToKill
    | JoinedTraining
    | StageChanged
    | RolledBack
    | Progressed
    | Checkpointed
    | CheckpointFailed
    | Finished
    | Failed
    | ObjectiveAt
    | MachineGivenUp
    | EvictionNoticed
)
"""Messages to the client that runs the machines."""
Control: TypeAlias = (
    Event | Command | ObjectiveReport | ObjectiveAt | MachineGivenUp | EvictionNoticed | EndMachine
)
"""All control messages."""


class ObjectiveSums:
    """Adds up the shards' parts, and reports a clock once, when all its parts are in.

    ``value(total, count)`` makes the objective of the sums, as the application defines it.
    """

    def __init__(self, shards: int, value: Callable[[float, float], float]) -> None:
        self._shards = shards
        self._value = value
        self._parts: dict[int, dict[int, ShardObjective]] = {}
        self._reported = -1

    def add_report(self, report: ObjectiveReport) -> ObjectiveAt | None:
        """Returns the objective that became known, if any."""
        clock = report.clock - 1
        # After a roll-back a clock is computed again, with the same parts.
        if clock <= self._reported:
            return None
        known = self._parts.setdefault(clock, {})
        known.update({part.shard: part for part in report.parts})
        if len(known) < self._shards:
            return None
        self._reported = clock
        # Earlier clocks that lack parts stay unreported: a worker may die after it pushed its deltas and
        # before it reports, and its successor does not compute that clock again.
        self._parts = {later: parts for later, parts in self._parts.items() if later > clock}
        # In the order of shards: the sum of floats depends on it, and a restarted controller must agree.
        parts = [part for _, part in sorted(known.items())]
        total, count = sum(part.total for part in parts), sum(part.count for part in parts)
        return ObjectiveAt(clock, float(self._value(total, count)))  # NumPy's float32 is no float


class ConvergenceCheck:
    """Ends a job before its last clock once its objective has converged.

    ``delta``: two successive objectives that differ by at most this end the job; None: they never do.
    """

    def __init__(self, delta: float | None) -> None:
        self._delta = delta
        self._last: float | None = None

    def has_converged(self, value: float) -> bool:
        """Whether ``value``, the objective of the latest clock, ends the job.

        >>> check = ConvergenceCheck(0.1)
        >>> [check.has_converged(value) for value in (3.0, 2.0, 1.95)]
        [False, False, True]
        """
        # From reported values alone: a clock would make a restarted controller decide otherwise.
        last, self._last = self._last, value
        return self._delta is not None and last is not None and abs(last - value) <= self._delta
