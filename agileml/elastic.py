"""The elasticity controller: what happened in, what to do about it out (Harlap 4.2.2, 4.2.3).

``step`` is pure, total and deterministic, so a restarted controller replays its journal and is where
it was. It works in two halves. A *handler*, found in a table by phase and event, records what the event
makes true. Then the *rules* of the phase, in order, command whatever the state now calls for. The rules
are level-triggered: they look at how things are and not at how they came to be, so an eviction during a
transition during a failure is only one more event.

An event that cannot apply any more (of a machine, incarnation, generation or epoch that is gone) is
ignored by its handler. One that cannot have happened raises InvalidTransition, with the story.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from agileml import announcements, assignments, membership, moves, progress, recovery
from agileml.cluster import PHASE_EDGES, BrokenInvariant, Cluster, Commands, InvalidTransition, Phase, Result
from agileml.events import (
    BackedUp,
    ClockCompleted,
    Drained,
    Event,
    EvictionWarned,
    Installed,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ModelSaved,
    ServerLost,
    ServerReady,
    StopRequested,
    WorkerLost,
    WorkerReady,
)

__all__ = ["BrokenInvariant", "Cluster", "InvalidTransition", "Phase", "step"]

STORY_LENGTH: Final = 40
"""How many events an error message tells."""

Handler = Callable[[Cluster, Any], Result]
Rule = Callable[[Cluster], Result]


def _nothing_new(cluster: Cluster, event: Event) -> Result:  # noqa: ARG001 - a Handler
    """Too late to matter: the phase this event belongs to is over."""
    return cluster, ()


_MEMBERSHIP: Final[Mapping[type, Handler]] = {
    MachineJoined: membership.machine_joined,
    ServerReady: membership.role_changed,
    WorkerReady: membership.role_changed,
    ServerLost: membership.role_changed,
    WorkerLost: membership.role_changed,
    EvictionWarned: membership.machines_warned,
    MachineLost: membership.machine_gone,
    MachineReleased: membership.machine_gone,
}
_WORK: Final[Mapping[type, Handler]] = {
    Installed: progress.installed,
    ClockCompleted: progress.clock_completed,
    BackedUp: progress.backed_up,
    Drained: progress.drained,
    StopRequested: progress.stop_requested,
}
_WORK_IS_OVER: Final[Mapping[type, Handler]] = dict.fromkeys(_WORK, _nothing_new)

HANDLERS: Final[Mapping[Phase, Mapping[type, Handler]]] = {
    # Nobody has any orders yet, so nobody can complete, back up, drain or save anything.
    Phase.STARTING: {
        **_MEMBERSHIP,
        Installed: progress.installed,
        StopRequested: progress.stop_requested,
    },
    Phase.TRAINING: {**_MEMBERSHIP, **_WORK},
    Phase.SAVING: {**_MEMBERSHIP, **_WORK_IS_OVER, ModelSaved: progress.model_saved},
    Phase.FINISHED: {**_MEMBERSHIP, **_WORK_IS_OVER, ModelSaved: _nothing_new},
    Phase.FAILED: dict.fromkeys([*_MEMBERSHIP, *_WORK, ModelSaved], _nothing_new),
}

RULES: Final[Mapping[Phase, tuple[Rule, ...]]] = {
    Phase.STARTING: (moves.create, announcements.release),
    Phase.TRAINING: (
        moves.decide_stage,
        recovery.recover,
        moves.hand_over,
        assignments.share_input,
        assignments.give_orders,
        announcements.advance,
        announcements.announce_stage,
        announcements.release,
        announcements.save,
    ),
    Phase.SAVING: (announcements.release,),
    Phase.FINISHED: (announcements.release,),
    Phase.FAILED: (),
}
CLOCK_RULES: Final[tuple[Rule, ...]] = (announcements.advance, announcements.save)
"""What a clock can call for. It is by far the most frequent news, and moves neither partitions nor shards."""


def step(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    """The state after ``event``, and the commands it calls for, in the order in which to send them.

    Raises InvalidTransition for an event that cannot have happened, BrokenInvariant for a bug of our own.
    """
    before = cluster
    cluster = replace(cluster, story=(*cluster.story[1 - STORY_LENGTH :], event))
    handler = HANDLERS[cluster.phase].get(type(event))
    if handler is None:
        raise InvalidTransition(cluster.told(f"{type(event).__name__} cannot happen here: {event}"))
    cluster, commands = handler(cluster, event)
    clock_only = cluster.phase is Phase.TRAINING and isinstance(event, ClockCompleted | BackedUp)
    for rule in CLOCK_RULES if clock_only else RULES[cluster.phase]:
        cluster, more = rule(cluster)
        commands += more
    if cluster.consistent < before.consistent:
        raise cluster.violated(4, f"from {before.consistent} to {cluster.consistent}")
    if cluster.phase is not before.phase and (before.phase, cluster.phase) not in PHASE_EDGES:
        raise cluster.broken(f"no edge leads here from {before.phase}")
    return cluster, commands
