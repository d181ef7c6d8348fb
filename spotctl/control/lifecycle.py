"""Defines the life of one instance: an enum and a table, every edge with the real event behind it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from spotctl.control import entries


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WARNED = "warned"
    ENDING = "ending"
    ENDED = "ended"


class InvalidInstanceTransition(Exception):
    """Reports an event that cannot follow what the ledger says happened so far. Always a bug."""


_EDGES: Final[Mapping[tuple[InstanceState, type], InstanceState]] = {
    # The provider reports the instance up; billing starts.
    (InstanceState.PENDING, entries.InstancesRunning): InstanceState.RUNNING,
    # The price crossed the bid while the instance was still starting.
    (InstanceState.PENDING, entries.EvictionWarned): InstanceState.WARNED,
    (InstanceState.WARNED, entries.InstancesRunning): InstanceState.WARNED,
    # The warning of the provider: irrevocable.
    (InstanceState.RUNNING, entries.EvictionWarned): InstanceState.WARNED,
    # The instance had heard of it before the provider told us.
    (InstanceState.WARNED, entries.EvictionWarned): InstanceState.WARNED,
    # The provider and we may both end it; whoever comes first is what the bill says.
    (InstanceState.ENDING, entries.EvictionWarned): InstanceState.ENDING,
    (InstanceState.ENDING, entries.InstancesRunning): InstanceState.ENDING,
    # We asked the provider to end it.
    (InstanceState.PENDING, entries.Release): InstanceState.ENDING,
    (InstanceState.RUNNING, entries.Release): InstanceState.ENDING,
    (InstanceState.WARNED, entries.Release): InstanceState.ENDING,
    # Gone: evicted, released, or died by itself.
    (InstanceState.PENDING, entries.InstancesEnded): InstanceState.ENDED,
    (InstanceState.RUNNING, entries.InstancesEnded): InstanceState.ENDED,
    (InstanceState.WARNED, entries.InstancesEnded): InstanceState.ENDED,
    (InstanceState.ENDING, entries.InstancesEnded): InstanceState.ENDED,
}


def next_state(life: InstanceState, event: type, story: str) -> InstanceState:
    """Returns the state that ``event`` leads to; raises InvalidTransition, with ``story``, where none
    does.
    """
    try:
        return _EDGES[life, event]
    except KeyError:
        raise InvalidInstanceTransition(f"{event.__name__} while {life}: {story}") from None


def list_transitions() -> tuple[tuple[str, str, str], ...]:
    """Returns (from, to, event) of every edge, for the diagram in the docs."""
    return tuple((before.value, then.value, event.__name__) for (before, event), then in _EDGES.items())
