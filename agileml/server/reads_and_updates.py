"""What a server answers to a worker.

A request is answered only under the epoch of the present ownership: an older one gets ``Moved``, a newer one
waits (the partition is on its way here). So an update is never acknowledged by a server that the controller
may still believe not to own the partition.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias

from agileml.protocol.events import Setup
from agileml.protocol.messages import Answer, Behind, Moved, ReadDone, ReadPart, UpdateDone, UpdatePart
from agileml.server.pending_requests import RequestPart
from agileml.server.replica import Replica, ReplicaRole

_AHEAD_OF_CONTROLLER: Final = 8
_MOST_AHEAD_OF_CONTROLLER: Final = 64
_UNDO_BYTES: Final = 2**26
"""A server without a backup may run that many clocks ahead of what it was told all have completed, beyond the
lag, since it keeps what undoes them: the more where that much memory certainly holds it. Enough for the
controller's word to come round in clocks of a millisecond, as only small partitions have them."""


class Unanswered(Enum):
    WAIT = "not yet: try again after the next change"
    STALE = "never: it is of a time before a roll-back"


WAIT: Final = Unanswered.WAIT
PartAnswer: TypeAlias = Answer | Unanswered


def answer_part(asked: RequestPart, held: Replica | None, left: int, setup: Setup) -> PartAnswer:
    """``held``: what the server has of the partition; ``left``: the newest epoch under which it has not.

    An update that is acknowledged is in, and the clock it belongs to may be complete.
    """
    epoch = asked.part.epoch
    serving = held is not None and held.role is ReplicaRole.SERVING
    newest = held.epoch - 1 if held is not None and serving else left
    if epoch <= newest:
        return Moved(asked.request, asked.part.partition)
    if held is None or not serving or epoch > held.epoch or asked.generation > held.generation:
        return WAIT
    if asked.generation < held.generation:
        return Unanswered.STALE
    if isinstance(asked.part, UpdatePart):
        return _answer_update(held, asked, asked.part)
    return _answer_read(held, asked, asked.part, setup)


def _answer_read(
    held: Replica, asked: RequestPart, part: ReadPart, setup: Setup
) -> Answer | Literal[Unanswered.WAIT]:
    state = held.state
    # A clock beyond is complete here, and no worker pushes one before its last is acknowledged.
    over = max(state.clock - 1, held.backed)
    if over >= asked.clock:
        return Behind(asked.request, over)
    if state.clock < asked.clock - setup.staleness - 1:
        return WAIT
    ahead = 0 if held.backup is not None else _clocks_ahead_allowed(state.values.nbytes)
    if held.backed < asked.clock - setup.lag_limit - ahead:
        return WAIT  # so that a failure costs at most that many clocks, and undo has an end
    return ReadDone(asked.request, part.partition, state.read_rows(part.rows, asked.clock))


def _clocks_ahead_allowed(size: int) -> int:
    """``size``: bytes of the partition, which one clock's undo may take at most."""
    held = _UNDO_BYTES // max(1, size)
    return min(max(held, _AHEAD_OF_CONTROLLER), _MOST_AHEAD_OF_CONTROLLER)


def _answer_update(held: Replica, asked: RequestPart, part: UpdatePart) -> UpdateDone:
    if asked.cut and asked.clock > held.state.clock:
        held.cuts.add(asked.clock)
    held.state.add_deltas(asked.clock, part.deltas)
    return UpdateDone(asked.request, part.partition, held.is_behind)
