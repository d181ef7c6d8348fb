"""Runs the elasticity controller: events go in, commands come out (Harlap 4.2.2, 4.2.3).

``step`` is pure, total and deterministic, so a restarted controller regains its state from its journal. It
works in two halves. A *handler*, found in a table by phase and event, records what each event makes true.
Then the *rules* of the phase, in order, command whatever the state now calls for. The rules are
level-triggered: they look at the present state, whatever led to it. So an eviction during a transition during
a failure is only one more event, and events that arrive together lead to one plan.

A handler ignores an event that no longer applies: of a machine, incarnation, generation or epoch that is
gone. An event that cannot have happened raises ImpossibleEvent, with the story.
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
    ClusterState,
    Commands,
    ImpossibleEvent,
    Result,
    TrainingPhase,
)
from agileml.controller.invariants import make_violation
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

__all__ = ["BrokenInvariant", "ClusterState", "ImpossibleEvent", "TrainingPhase", "step"]

STORY_LENGTH: Final = 40
"""The most events in an error message."""

Handler: TypeAlias = Callable[[ClusterState, Any], Result]
Rule: TypeAlias = Callable[[ClusterState], Result]


def _ignore_event(cluster: ClusterState, event: Event) -> Result:  # noqa: ARG001 - a Handler
    """Ignores an event whose phase is over."""
    return cluster, ()


_MEMBERSHIP: Final[Mapping[type, Handler]] = {
    MachineJoined: membership.machine_joined,
    ServerReady: membership.role_changed,
    WorkerReady: membership.role_changed,
    ServerLost: membership.role_changed,
    WorkerLost: membership.role_changed,
    EvictionWarned: membership.machines_warned,
    Loaded: membership.worker_loaded,
    MachineLost: membership.machine_left,
    MachineReleased: membership.machine_left,
}
_WORK: Final[Mapping[type, Handler]] = {
    Installed: progress.partition_installed,
    ClockCompleted: progress.clock_completed,
    BackedUp: progress.partition_backed_up,
    Drained: progress.worker_drained,
    StopRequested: progress.stop_requested,
    StageDecided: stage_decision.stage_decided,
    ServerLoad: stage_decision.load_reported,
    WorkerLoad: stage_decision.load_reported,
    CheckpointDue: checkpoints.checkpoint_due,
    CheckpointWritten: checkpoints.part_written,
    CheckpointSealed: checkpoints.attempt_sealed,
    CheckpointRefused: checkpoints.attempt_refused,
    CheckpointUnreadable: _ignore_event,
}
_WORK_IS_OVER: Final[Mapping[type, Handler]] = dict.fromkeys(_WORK, _ignore_event)

HANDLERS: Final[Mapping[TrainingPhase, Mapping[type, Handler]]] = {
    # No worker has orders yet, so whatever was completed, backed up or saved dates from before a loss.
    TrainingPhase.STARTING: {
        **_MEMBERSHIP,
        **_WORK,
        ClockCompleted: progress.ignore_stale,
        BackedUp: progress.ignore_stale,
        ModelSaved: progress.ignore_stale,
        CheckpointUnreadable: recovery.checkpoint_unreadable,
    },
    TrainingPhase.TRAINING: {**_MEMBERSHIP, **_WORK, ModelSaved: progress.ignore_stale},
    TrainingPhase.SAVING: {**_MEMBERSHIP, **_WORK_IS_OVER, ModelSaved: progress.model_saved},
    TrainingPhase.FINISHED: {**_MEMBERSHIP, **_WORK_IS_OVER, ModelSaved: _ignore_event},
    TrainingPhase.FAILED: dict.fromkeys([*_MEMBERSHIP, *_WORK, ModelSaved], _ignore_event),
}

# The order matters. Members and the stage come first, as every layout depends on them. Recovery precedes
# moves, so that nothing is handed over under a generation that is about to end. Moves precede backups: a
# partition that is about to move would be copied for nothing. Orders to workers follow all of these, as they
# carry routes and the generation. B advances after recovery: until then a lost partition still lists clocks
# as safe that died with its owner.
RULES: Final[Mapping[TrainingPhase, tuple[Rule, ...]]] = {
    TrainingPhase.STARTING: (
        recovery.give_up,
        admission.admit_machines,
        partition_moves.create_partitions,
        announcements.release_machines,
    ),
    TrainingPhase.TRAINING: (
        recovery.give_up,
        admission.admit_machines,
        stage_decision.decide_stage,
        recovery.recover_partitions,
        partition_moves.hand_over_partitions,
        backup_placement.place_backups,
        shard_assignment.assign_shards,
        shard_assignment.give_orders,
        announcements.advance_consistent,
        checkpoints.begin_attempt,
        checkpoints.seal_attempt,
        announcements.announce_stage,
        announcements.release_machines,
        announcements.save_model,
    ),
    TrainingPhase.SAVING: (recovery.give_up, recovery.recover_partitions, announcements.release_machines),
    TrainingPhase.FINISHED: (announcements.release_machines,),
    TrainingPhase.FAILED: (),
}
CLOCK_RULES: Final[tuple[Rule, ...]] = (
    announcements.advance_consistent,
    checkpoints.begin_attempt,
    announcements.save_model,
)
"""The rules that a clock alone can trigger. Clocks are by far the most frequent events, and move nothing."""

_CLOCKS: Final = (ClockCompleted, BackedUp)
_LOADS: Final = (ServerLoad, WorkerLoad)
"""Reports of load. Like clocks they are no news: alone they call for a plan only where the stage changes."""


def step(
    cluster: ClusterState,
    events: Sequence[Event],
    rules: Mapping[TrainingPhase, tuple[Rule, ...]] = RULES,
    clock_rules: tuple[Rule, ...] = CLOCK_RULES,
) -> tuple[ClusterState, Commands]:
    """Returns the state after ``events``, and the commands that they call for together, in sending order.

    Tests pass other ``rules`` and ``clock_rules`` to show that every rule is needed. Raises ImpossibleEvent
    for an event that cannot have happened, BrokenInvariant for a bug of the controller itself.
    """
    before, answers = cluster, list[Command]()
    for event in events:
        cluster, more = _handle_event(cluster, event)
        answers += more
    completed = cluster.completed_clock
    if completed > cluster.progress.furthest_clock:
        # There is progress, so the deaths before were no pattern.
        cluster = replace(cluster, progress=replace(cluster.progress, furthest_clock=completed, deaths=0))
    # The server that a handler answers may have died by a later event of the same step. A lost machine has
    # no address any more.
    commands = tuple(answer for answer in answers if _is_deliverable(cluster, answer))
    cluster = _with_plan(
        cluster,
        may_move=cluster.plan.may_move or completed > before.completed_clock,
        has_news=cluster.plan.has_news or not _are_quiet(events),
    )
    due = _select_rules(cluster, events, rules, clock_rules)
    cluster, more = _apply_rules(cluster, due, rules)
    if cluster.consistent < before.consistent and cluster.consistent != cluster.checkpoints.newest.clock:
        raise make_violation(cluster, 4, f"from {before.consistent} to {cluster.consistent}")
    # One end of a clock is good for one plan, and that is used up once all its partitions have arrived. News
    # last until the full set of rules has seen them, since clocks alone run only ``CLOCK_RULES``.
    if cluster.plan.may_move and cluster.all_served:
        cluster = _with_plan(
            cluster,
            may_move=False,
            has_news=cluster.plan.has_news and due is not rules[cluster.phase],
        )
    return cluster, commands + more


def _with_plan(cluster: ClusterState, *, may_move: bool, has_news: bool) -> ClusterState:
    if (cluster.plan.may_move, cluster.plan.has_news) == (may_move, has_news):
        return cluster
    return replace(cluster, plan=replace(cluster.plan, may_move=may_move, has_news=has_news))


def _handle_event(cluster: ClusterState, event: Event) -> Result:
    before = cluster
    cluster = replace(cluster, story=(*cluster.story[1 - STORY_LENGTH :], event))
    handler = HANDLERS[cluster.phase].get(type(event))
    if handler is None:
        raise ImpossibleEvent(cluster.with_story(f"{type(event).__name__} cannot happen here: {event}"))
    cluster, commands = handler(cluster, event)
    return _check_phase_edge(before, cluster), commands


def _are_quiet(events: Sequence[Event]) -> bool:
    """Whether the events only say that training goes on."""
    return all(isinstance(event, (*_CLOCKS, *_LOADS)) for event in events)


def _is_deliverable(cluster: ClusterState, answer: Command) -> bool:
    return (
        not isinstance(answer, Advance | Forget | DropCheckpoints)
        or cluster.roster.live_server(answer.machine) is not None
    )


def _check_phase_edge(before: ClusterState, after: ClusterState) -> ClusterState:
    if after.phase is not before.phase and (before.phase, after.phase) not in PHASE_EDGES:
        raise after.broken_invariant(f"no edge leads here from {before.phase}")
    return after


def _select_rules(
    cluster: ClusterState,
    events: Sequence[Event],
    rules: Mapping[TrainingPhase, tuple[Rule, ...]],
    clock_rules: tuple[Rule, ...],
) -> tuple[Rule, ...]:
    """Returns the rules that may have something to do after ``events``."""
    # Measured on jobs of many machines, planning costs far more than folding a clock. So the end of a clock
    # calls for a plan only where something else has happened since the last one.
    every = rules[cluster.phase]
    if (
        cluster.phase is not TrainingPhase.TRAINING
        or not _are_quiet(events)
        or (cluster.plan.may_move and cluster.plan.has_news)
    ):
        return every
    if any(isinstance(event, _LOADS) for event in events):
        decided, _ = stage_decision.decide_stage(cluster)
        if decided.stages.current is not cluster.stages.current:
            return every
    return clock_rules if any(isinstance(event, _CLOCKS) for event in events) else ()


def _apply_rules(
    cluster: ClusterState, due: tuple[Rule, ...], rules: Mapping[TrainingPhase, tuple[Rule, ...]]
) -> Result:
    """Applies the rules in order. When one ends the phase, the rules of the next phase replace the rest."""
    commands: Commands = ()
    for rule in due:
        before = cluster
        cluster, more = rule(cluster)
        commands += more
        if cluster.phase is not before.phase:
            cluster, more = _apply_rules(_check_phase_edge(before, cluster), rules[cluster.phase], rules)
            return cluster, commands + more
    return cluster, commands
