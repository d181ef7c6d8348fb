"""Defines the life of an instance: its states, and a table of transitions with the real event behind each."""

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
    """Raised for an event that cannot follow those on record. Always a bug."""


_EDGES: Final[Mapping[tuple[InstanceState, type], InstanceState]] = {
    # The provider reports the instance up; billing starts.
    (InstanceState.PENDING, entries.InstancesRunning): InstanceState.RUNNING,
    # The price crossed the bid while the instance was still starting.
    (InstanceState.PENDING, entries.EvictionWarned): InstanceState.WARNED,
    (InstanceState.WARNED, entries.InstancesRunning): InstanceState.WARNED,
    # The warning of the provider: irrevocable.
    (InstanceState.RUNNING, entries.EvictionWarned): InstanceState.WARNED,
    # The instance reported the warning before its provider did.
    (InstanceState.WARNED, entries.EvictionWarned): InstanceState.WARNED,
    # The provider's warning or start crossed our release; the bill goes by whichever end comes first.
    (InstanceState.ENDING, entries.EvictionWarned): InstanceState.ENDING,
    (InstanceState.ENDING, entries.InstancesRunning): InstanceState.ENDING,
    # We released it.
    (InstanceState.PENDING, entries.Release): InstanceState.ENDING,
    (InstanceState.RUNNING, entries.Release): InstanceState.ENDING,
    (InstanceState.WARNED, entries.Release): InstanceState.ENDING,
    # It is gone: evicted, released, or failed.
    (InstanceState.PENDING, entries.InstancesEnded): InstanceState.ENDED,
    (InstanceState.RUNNING, entries.InstancesEnded): InstanceState.ENDED,
    (InstanceState.WARNED, entries.InstancesEnded): InstanceState.ENDED,
    (InstanceState.ENDING, entries.InstancesEnded): InstanceState.ENDED,
}


def next_state(life: InstanceState, event: type, story: str) -> InstanceState:
    """Returns the state after ``event``. Raises InvalidInstanceTransition, with ``story``, where none is."""
    try:
        return _EDGES[life, event]
    except KeyError:
        raise InvalidInstanceTransition(f"{event.__name__} while {life}: {story}") from None


def list_transitions() -> tuple[tuple[str, str, str], ...]:
    """Returns (from, to, event) of every transition, for the diagram in the docs."""
    return tuple((before.value, then.value, event.__name__) for (before, event), then in _EDGES.items())
