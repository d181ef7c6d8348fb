"""The elasticity controller: what happened in, what to do about it out (Harlap 4.2.2, 4.2.3).

``step`` is pure, total and deterministic, so a restarted controller replays its journal and is where
it was. It works in two halves. A *handler*, found in a table by phase and event, records what each event
makes true. Then the *rules* of the phase, in order, command whatever the state now calls for. The rules
are level-triggered: they look at how things are and not at how they came to be, so an eviction during a
transition during a failure is only one more event, and what is heard of together is planned for once.

An event that cannot apply any more (of a machine, incarnation, generation or epoch that is gone) is
ignored by its handler. One that cannot have happened raises InvalidTransition, with the story.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from agileml.controller import (
    admission,
    announcements,
    checkpoints,
    membership,
    progress,
    recovery,
    stage_decision,
)
from agileml.controller.cluster import (
    PHASE_EDGES,
    BrokenInvariant,
    Cluster,
    Commands,
    InvalidTransition,
    Phase,
    Result,
)
from agileml.controller.placement import backup_placement, partition_moves, shard_assignment
from agileml.protocol.commands import Advance, Command, DropCheckpoints, Forget
from agileml.protocol.events import (
    BackedUp,
    CheckpointDue,
    CheckpointRefused,
    CheckpointSealed,
    CheckpointUnreadable,
    CheckpointWritten,
    ClockCompleted,
    Drained,
    Event,
    EvictionWarned,
    Installed,
    Loaded,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ModelSaved,
    ServerLoad,
    ServerLost,
    ServerReady,
    StageDecided,
    StopRequested,
    WorkerLoad,
    WorkerLost,
    WorkerReady,
)

__all__ = ["BrokenInvariant", "Cluster", "InvalidTransition", "Phase", "step"]

STORY_LENGTH: Final = 40
"""How many events an error message tells."""

Handler: TypeAlias = Callable[[Cluster, Any], Result]
Rule: TypeAlias = Callable[[Cluster], Result]


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
    Loaded: membership.worker_loaded,
    MachineLost: membership.machine_gone,
    MachineReleased: membership.machine_gone,
}
_WORK: Final[Mapping[type, Handler]] = {
    Installed: progress.installed,
    ClockCompleted: progress.clock_completed,
    BackedUp: progress.backed_up,
    Drained: progress.drained,
    StopRequested: progress.stop_requested,
    StageDecided: stage_decision.stage_decided,
    ServerLoad: stage_decision.load_reported,
    WorkerLoad: stage_decision.load_reported,
    CheckpointDue: checkpoints.due,
    CheckpointWritten: checkpoints.written,
    CheckpointSealed: checkpoints.sealed,
    CheckpointRefused: checkpoints.refused,
    CheckpointUnreadable: _nothing_new,
}
_WORK_IS_OVER: Final[Mapping[type, Handler]] = dict.fromkeys(_WORK, _nothing_new)

HANDLERS: Final[Mapping[Phase, Mapping[type, Handler]]] = {
    # Nobody has any orders yet: what is completed, backed up or saved was so before everything was lost.
    Phase.STARTING: {
        **_MEMBERSHIP,
        **_WORK,
        ClockCompleted: progress.from_before,
        BackedUp: progress.from_before,
        ModelSaved: progress.from_before,
        CheckpointUnreadable: recovery.unreadable,
    },
    Phase.TRAINING: {**_MEMBERSHIP, **_WORK, ModelSaved: progress.from_before},
    Phase.SAVING: {**_MEMBERSHIP, **_WORK_IS_OVER, ModelSaved: progress.model_saved},
    Phase.FINISHED: {**_MEMBERSHIP, **_WORK_IS_OVER, ModelSaved: _nothing_new},
    Phase.FAILED: dict.fromkeys([*_MEMBERSHIP, *_WORK, ModelSaved], _nothing_new),
}

RULES: Final[Mapping[Phase, tuple[Rule, ...]]] = {
    Phase.STARTING: (recovery.give_up, admission.admit, partition_moves.create, announcements.release),
    Phase.TRAINING: (
        recovery.give_up,
        admission.admit,
        stage_decision.decide_stage,
        recovery.recover,
        partition_moves.hand_over,
        backup_placement.back_up,
        shard_assignment.share_input,
        shard_assignment.give_orders,
        announcements.advance,
        checkpoints.begin,
        checkpoints.seal,
        announcements.announce_stage,
        announcements.release,
        announcements.save,
    ),
    Phase.SAVING: (recovery.give_up, recovery.recover, announcements.release),
    Phase.FINISHED: (announcements.release,),
    Phase.FAILED: (),
}
CLOCK_RULES: Final[tuple[Rule, ...]] = (announcements.advance, checkpoints.begin, announcements.save)
"""What a clock can call for. It is by far the most frequent news, and moves neither partitions nor shards."""

_CLOCKS: Final = (ClockCompleted, BackedUp)
_LOADS: Final = (ServerLoad, WorkerLoad)
"""Neither these nor clocks are news: they call for a plan only where a stage or a turn follows."""


def step(
    cluster: Cluster,
    events: Sequence[Event],
    rules: Mapping[Phase, tuple[Rule, ...]] = RULES,
    clock_rules: tuple[Rule, ...] = CLOCK_RULES,
) -> tuple[Cluster, Commands]:
    """The state after ``events``, and the commands they call for together, in the order in which to send.

    ``rules``, ``clock_rules``: others are for tests, which show that every rule is needed.

    Raises InvalidTransition for an event that cannot have happened, BrokenInvariant for a bug of our own.
    """
    before, answers = cluster, list[Command]()
    for event in events:
        cluster, more = _handled(cluster, event)
        answers += more
    completed = cluster.completed
    if completed > cluster.furthest:
        cluster = replace(cluster, furthest=completed, deaths=0)
    # Whoever is answered may have died of a later one of these events.
    commands = tuple(word for word in answers if _is_heard(cluster, word))
    turn = cluster.turn or completed > before.completed
    cluster = replace(cluster, turn=turn, news=cluster.news or not _are_quiet(events))
    due = _due(cluster, events, rules, clock_rules)
    cluster, more = _follow(cluster, due, rules)
    if cluster.consistent < before.consistent and cluster.consistent != cluster.stored.clock:
        raise cluster.violated(4, f"from {before.consistent} to {cluster.consistent}")
    if cluster.turn and cluster.settled:
        cluster = replace(cluster, turn=False, news=cluster.news and due is not rules[cluster.phase])
    return cluster, commands + more


def _handled(cluster: Cluster, event: Event) -> Result:
    before = cluster
    cluster = replace(cluster, story=(*cluster.story[1 - STORY_LENGTH :], event))
    handler = HANDLERS[cluster.phase].get(type(event))
    if handler is None:
        raise InvalidTransition(cluster.told(f"{type(event).__name__} cannot happen here: {event}"))
    cluster, commands = handler(cluster, event)
    return _along_an_edge(before, cluster), commands


def _are_quiet(events: Sequence[Event]) -> bool:
    """Whether they only tell of training that goes on."""
    return all(isinstance(event, (*_CLOCKS, *_LOADS)) for event in events)


def _is_heard(cluster: Cluster, answer: Command) -> bool:
    return (
        not isinstance(answer, Advance | Forget | DropCheckpoints)
        or cluster.server(answer.machine) is not None
    )


def _along_an_edge(before: Cluster, after: Cluster) -> Cluster:
    if after.phase is not before.phase and (before.phase, after.phase) not in PHASE_EDGES:
        raise after.broken(f"no edge leads here from {before.phase}")
    return after


def _due(
    cluster: Cluster,
    events: Sequence[Event],
    rules: Mapping[Phase, tuple[Rule, ...]],
    clock_rules: tuple[Rule, ...],
) -> tuple[Rule, ...]:
    """Those that the events can have given something to do.

    A clock's end alone calls for a plan only where something has happened since the last one.
    """
    every = rules[cluster.phase]
    if cluster.phase is not Phase.TRAINING or not _are_quiet(events) or (cluster.turn and cluster.news):
        return every
    if any(isinstance(event, _LOADS) for event in events):
        decided, _ = stage_decision.decide_stage(cluster)
        if decided.stage is not cluster.stage:
            return every
    return clock_rules if any(isinstance(event, _CLOCKS) for event in events) else ()


def _follow(cluster: Cluster, due: tuple[Rule, ...], rules: Mapping[Phase, tuple[Rule, ...]]) -> Result:
    """What the rules command. Where one ends the phase, those of the next phase follow in its stead."""
    commands: Commands = ()
    for rule in due:
        before = cluster
        cluster, more = rule(cluster)
        commands += more
        if cluster.phase is not before.phase:
            cluster, more = _follow(_along_an_edge(before, cluster), rules[cluster.phase], rules)
            return cluster, commands + more
    return cluster, commands
