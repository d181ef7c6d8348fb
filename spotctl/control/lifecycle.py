"""Defines the life of one instance: an enum and a table, every edge with the real event behind it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from spotctl.control import entries


class Life(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WARNED = "warned"
    ENDING = "ending"
    ENDED = "ended"


class InvalidTransition(Exception):
    """An event cannot follow what the ledger says happened so far. Always a bug."""


_EDGES: Final[Mapping[tuple[Life, type], Life]] = {
    # The provider reports the instance up; billing starts.
    (Life.PENDING, entries.InstancesRunning): Life.RUNNING,
    # The price crossed the bid while the instance was still starting.
    (Life.PENDING, entries.EvictionWarned): Life.WARNED,
    (Life.WARNED, entries.InstancesRunning): Life.WARNED,
    # The warning of the provider: irrevocable.
    (Life.RUNNING, entries.EvictionWarned): Life.WARNED,
    # The provider and we may both end it; whoever comes first is what the bill says.
    (Life.ENDING, entries.EvictionWarned): Life.ENDING,
    (Life.ENDING, entries.InstancesRunning): Life.ENDING,
    # We asked the provider to end it.
    (Life.PENDING, entries.Release): Life.ENDING,
    (Life.RUNNING, entries.Release): Life.ENDING,
    (Life.WARNED, entries.Release): Life.ENDING,
    # Gone: evicted, released, or died by itself.
    (Life.PENDING, entries.InstancesEnded): Life.ENDED,
    (Life.RUNNING, entries.InstancesEnded): Life.ENDED,
    (Life.WARNED, entries.InstancesEnded): Life.ENDED,
    (Life.ENDING, entries.InstancesEnded): Life.ENDED,
}


def after(life: Life, event: type, story: str) -> Life:
    """Returns the state that ``event`` leads to; raises InvalidTransition, with ``story``, where none does."""
    try:
        return _EDGES[life, event]
    except KeyError:
        raise InvalidTransition(f"{event.__name__} while {life}: {story}") from None


def edges() -> tuple[tuple[str, str, str], ...]:
    """Returns (from, to, event) of every edge, for the diagram in the docs."""
    return tuple((before.value, then.value, event.__name__) for (before, event), then in _EDGES.items())
