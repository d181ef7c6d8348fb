"""Answers workers' reads and updates.

A request is answered only under the epoch of the present ownership. An older one gets ``Moved``, and a newer
one waits, as the partition is on its way here. So an update is never acknowledged by a server that the
controller may still believe not to own the partition.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias

from agileml.protocol.messages import Answer, Behind, Moved, ReadDone, ReadPart, UpdateDone, UpdatePart
from agileml.server.pending_requests import RequestPart
from agileml.server.replica import Replica, ReplicaRole
from agileml.sync.base import Barrier

_AHEAD_OF_CONTROLLER: Final = 8
_MOST_AHEAD_OF_CONTROLLER: Final = 64
_UNDO_BYTES: Final = 2**26
"""A server without a backup keeps what undoes its clocks. So it may run ahead of the last clock that it knows
to be completed everywhere, beyond the lag: by at least the first number of clocks, and by more where that
many bytes certainly hold their undo. That is enough for the controller's word to come round in clocks of a
millisecond, which only small partitions have.
"""


class Unanswered(Enum):
    WAIT = "not yet: try again after the next change"
    STALE = "never: it is of a time before a roll-back"


WAIT: Final = Unanswered.WAIT
PartAnswer: TypeAlias = Answer | Unanswered


def answer_part(asked: RequestPart, replica: Replica | None, left: int, barrier: Barrier) -> PartAnswer:
    """Answers one part of a request, or tells it to wait.

    ``replica``: what the server has of the partition; ``left``: the newest epoch under which it has none. An
    update that is acknowledged is in, and the clock it belongs to may be complete.
    """
    # Epochs first: only the present owner may judge generations and clocks.
    epoch = asked.part.epoch
    serving = replica is not None and replica.role is ReplicaRole.SERVING
    newest = replica.epoch - 1 if replica is not None and serving else left
    if epoch <= newest:
        return Moved(asked.request, asked.part.partition)
    if replica is None or not serving or epoch > replica.epoch or asked.generation > replica.generation:
        return WAIT
    if asked.generation < replica.generation:
        return Unanswered.STALE
    if isinstance(asked.part, UpdatePart):
        return _answer_update(replica, asked, asked.part)
    return _answer_read(replica, asked, asked.part, barrier)


def _answer_read(
    replica: Replica, asked: RequestPart, part: ReadPart, barrier: Barrier
) -> Answer | Literal[Unanswered.WAIT]:
    state = replica.state
    over = max(barrier.over_clock(state.clock), replica.ranges.backed)
    if over >= asked.clock:
        return Behind(asked.request, over)
    if not barrier.is_readable(asked.clock, state.clock):
        return WAIT
    ahead = 0 if replica.ranges.backup is not None else _clocks_ahead_allowed(state.values.nbytes)
    if asked.clock > barrier.last_startable(replica.ranges.backed) + ahead:
        return WAIT  # limits what a failure costs, and the memory for undo
    return ReadDone(asked.request, part.partition, state.read_rows(part.rows, asked.clock))


def _clocks_ahead_allowed(size: int) -> int:
    """Returns how many clocks a server without a backup may run ahead. ``size``: bytes of the partition,
    which one clock's undo may take at most.
    """
    by_memory = _UNDO_BYTES // max(1, size)
    return min(max(by_memory, _AHEAD_OF_CONTROLLER), _MOST_AHEAD_OF_CONTROLLER)


def _answer_update(replica: Replica, asked: RequestPart, part: UpdatePart) -> UpdateDone:
    if asked.cut and asked.clock > replica.state.clock:
        replica.ranges.cuts.add(asked.clock)
    replica.state.add_deltas(asked.clock, part.deltas)
    return UpdateDone(asked.request, part.partition, replica.ranges.is_behind)
