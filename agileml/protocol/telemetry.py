"""Defines what is reported beside events and commands: objectives, lost machines, and that one shall end.

Pure. The objective of a clock is a sum over shards, each computed by the owner of the shard, from the same
values it trained on: so it describes the model one clock before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from agileml.protocol.commands import (
    Checkpointed,
    CheckpointFailed,
    Failed,
    Finished,
    JoinedTraining,
    Progressed,
    RolledBack,
    SafeToKill,
    StageChanged,
)


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
    """Upwards: the training has lost this machine, and not by the client's word.

    Its agent is silent, or says that a process dies over and over. The machine may still be there, and paid
    for.
    """

    machine: str


class EvictionNoticed(Struct, frozen=True):
    """Upwards: the machine itself heard that its provider takes it in ``notice_s`` real seconds."""

    machine: str
    notice_s: float


class EndMachine(Struct, frozen=True):
    """To an agent: the job needs this machine no more; end its roles and yourself."""

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
"""What the client that runs the machines is told."""


class ObjectiveSums:
    """Adds up the shards' parts. A clock is reported once, when all its parts are in.

    Best effort: parts die with a worker that had pushed its deltas already. A clock that still lacks some
    when a later one has them all is left out. ``value(total, count)`` makes the objective of the sums, as the
    application defines it.
    """

    def __init__(self, shards: int, value: Callable[[float, float], float]) -> None:
        self._shards = shards
        self._value = value
        self._parts: dict[int, dict[int, ShardObjective]] = {}
        self._reported = -1

    def add_report(self, report: ObjectiveReport) -> ObjectiveAt | None:
        """Returns the objective that became known, if any. Parts of a clock that is computed again are the
        same, and add nothing.
        """
        clock = report.clock - 1
        if clock <= self._reported:
            return None
        known = self._parts.setdefault(clock, {})
        known.update({part.shard: part for part in report.parts})
        if len(known) < self._shards:
            return None
        self._reported = clock
        self._parts = {later: parts for later, parts in self._parts.items() if later > clock}
        parts = [part for _, part in sorted(known.items())]
        total, count = sum(part.total for part in parts), sum(part.count for part in parts)
        return ObjectiveAt(clock, float(self._value(total, count)))  # NumPy's float32 is no float
