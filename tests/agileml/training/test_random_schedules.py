"""Training survives random schedules of joins, warnings and deaths; these tests notice if it does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import ClassVar, get_args

import pytest
from msgspec.structs import replace

from agileml.controller import admission
from agileml.controller.cluster import ClusterState, Commands, Result, TrainingPhase
from agileml.controller.links import Step
from agileml.controller.placement import shard_assignment
from agileml.controller.placement.ownership import EDGES, ON_ITS_WAY, Partition, PartitionStatus
from agileml.controller.state_machine import CLOCK_RULES, RULES, Rule, step
from agileml.protocol.commands import (
    Advance,
    Assign,
    Command,
    DropCheckpoints,
    Restore,
    Rollback,
    RolledBack,
    Route,
    SafeToKill,
    SealCheckpoint,
    StageChanged,
    WriteCheckpoint,
)
from agileml.protocol.events import (
    CheckpointWritten,
    Event,
    EvictionWarned,
    MachineLost,
    ServerLost,
    ServerReady,
    Stage,
)
from agileml.protocol.messages import Answer, Lacking, Missing, Outgoing, Request, Transfer, Unknown
from agileml.protocol.telemetry import EvictionNoticed, MachineGivenUp, ObjectiveAt, Upward
from agileml.server.server import Server
from agileml.worker.worker import Worker
from tests.agileml.simulated.schedules import (
    DEATHS,
    FAULTS,
    GENTLE,
    SEVERE,
    Fault,
    Outcome,
    Roles,
    lose_every_reliable,
    lose_reliable,
    reliable_server_dies,
    run_schedule,
    server_dies,
    warn,
)

SINGLE, MANY = range(40), range(1000, 1030)


@pytest.mark.parametrize("seed", SINGLE)
def test_one_fault_never_changes_the_model(seed: int) -> None:
    run_schedule(seed)


@pytest.mark.parametrize("seed", MANY)
def test_nor_do_faults_during_the_recovery_from_faults(seed: int) -> None:
    run_schedule(seed, faults=5)


@pytest.mark.parametrize("seed", range(2000, 2030))
def test_what_comes_with_a_warning_costs_no_clock(seed: int) -> None:
    assert rollbacks(run_schedule(seed, faults=3, kinds=GENTLE)) == []


@pytest.mark.parametrize("seed", range(3000, 3040))
def test_with_checkpoints_reliable_machines_may_be_lost_as_well(seed: int) -> None:
    run_schedule(seed, faults=1 + seed % 6, kinds=SEVERE, every=1 + seed % 3)


@pytest.mark.parametrize("seed", range(4000, 4020))
def test_a_job_that_lost_every_reliable_machine_is_resumed_where_its_checkpoint_is(seed: int) -> None:
    run_schedule(seed, faults=3, kinds=(*SEVERE, lose_every_reliable, lose_every_reliable), every=2)


def test_a_schedule_is_the_same_every_time() -> None:
    first, again = run_schedule(7, faults=3), run_schedule(7, faults=3)
    assert (first.faults, first.upwards) == (again.faults, again.upwards)


CAMPAIGN = (
    (FAULTS, 0),
    (SEVERE, 2),
    (DEATHS, 1),
    ((*SEVERE, lose_every_reliable), 3),
)
"""What happens, and the clocks between checkpoints."""


@pytest.mark.campaign
def test_campaign(campaign: bool) -> None:
    """Ten thousand schedules of up to eight faults."""
    for seed in range(10_000, 20_000 if campaign else 10_040):
        kinds, every = CAMPAIGN[seed % len(CAMPAIGN)]
        run_schedule(seed, 1 + seed % 8, kinds, every=every)


HEARD_TOGETHER = {(PartitionStatus.FROZEN, PartitionStatus.LOST)}
"""Where two deaths are one step: see ``test_bulk``."""

# ---- what the schedules reach ----------------------------------------------------------------------


def test_the_schedules_take_every_edge_and_reach_every_stage() -> None:
    """Else the table says too much, or the schedules try too little."""
    taken: set[tuple[PartitionStatus, PartitionStatus]] = set()
    stages: set[Stage] = set()

    def watch(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
        """One by one, so that every edge is seen."""
        commands: Commands = ()
        for event in events:
            before = cluster
            cluster, more = step(cluster, (event,))
            commands += more
            for old, new in zip(before.partitions, cluster.partitions, strict=True):
                if old is not new:
                    taken.update(edges_between(old, new, event, before.phase) & EDGES.keys())
        stages.update(command.stage for command in commands if isinstance(command, StageChanged))
        return cluster, tuple(command for command in commands if has_addressee(cluster, command))

    everywhere = [(5, FAULTS, 0), (6, SEVERE, 2), *[(8, DEATHS, 2)] * 4]
    for seed in range(540, 3000):  # from where the rarest come soon: they take a few hundred elsewhere
        faults, kinds, every = everywhere[seed % len(everywhere)]
        run_schedule(seed, faults, kinds, watch, every)
        if taken >= EDGES.keys() - HEARD_TOGETHER and len(stages) == 3:
            break
    assert len(stages) == 3
    assert taken == EDGES.keys() - HEARD_TOGETHER


def has_addressee(cluster: ClusterState, command: Command) -> bool:
    """Not a process that died of a later event of the same step."""
    if isinstance(command, Upward):
        return True
    machine = cluster.machines.get(command.machine)
    role = machine and (machine.worker if isinstance(command, Assign) else machine.server)
    return role is not None


def edges_between(
    old: Partition, new: Partition, event: Event, phase: TrainingPhase
) -> set[tuple[PartitionStatus, PartitionStatus]]:
    """The edges of one step, with the statuses that did not outlast it put back in between."""
    died = event.machine if isinstance(event, MachineLost | ServerLost | ServerReady) else None
    way, made_again = [old.status], new.status in (PartitionStatus.ABSENT, PartitionStatus.CREATING)
    if new.epoch != old.epoch and died in (old.owner, old.source) and phase is not TrainingPhase.STARTING:
        if old.status is PartitionStatus.MOVING and old.source != died:
            way.append(PartitionStatus.FROZEN)
        elif made_again or new.status is PartitionStatus.RESTORING:
            way.append(PartitionStatus.LOST)
    if made_again and new.epoch != old.epoch and way[-1] is not PartitionStatus.ABSENT:
        way.append(PartitionStatus.ABSENT)
    if way[-1] is not new.status:
        way.append(new.status)
    return set(pairwise(way))


def rollbacks(outcome: Outcome) -> list[Command]:
    return [word for word in outcome.upwards if isinstance(word, RolledBack)]


# ---- controllers that are wrong in one thing ---------------------------------------------------------


def keeps_the_generation(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    old = cluster.generation
    kept = tuple(
        replace(command, generation=old) if isinstance(command, Restore | Rollback | Assign) else command
        for command in commands
    )
    return replace(after, generation=old), kept


def spares_the_survivors(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    return after, tuple(command for command in commands if not isinstance(command, Rollback))


def trusts_what_is_not_backed_up(
    cluster: ClusterState, events: Sequence[Event]
) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    ahead = max(partition.completed for partition in after.partitions)
    return after, tuple(
        replace(command, clock=ahead) if isinstance(command, Advance) else command for command in commands
    )


def skips_a_clock(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    return after, tuple(
        replace(command, clock=command.clock + 1) if isinstance(command, Assign) else command
        for command in commands
    )


def leaves_a_shard_out(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    return after, tuple(
        replace(command, shards=command.shards[1:]) if isinstance(command, Assign) else command
        for command in commands
    )


def kills_at_the_warning(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    warnings = [event for event in events if isinstance(event, EvictionWarned)]
    commands += tuple(SafeToKill(name) for warning in warnings for name in warning.machines)
    return after, commands


def seals_what_is_half_written(
    cluster: ClusterState, events: Sequence[Event]
) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    attempt = after.checkpoints.attempt
    for event in events:
        if isinstance(event, CheckpointWritten) and attempt is not None and attempt.writing:
            commands += (SealCheckpoint(event.machine, attempt.number, attempt.folder, attempt.clock),)
    return after, commands


def drops_checkpoints_too_early(
    cluster: ClusterState, events: Sequence[Event]
) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    return after, commands + tuple(
        DropCheckpoints(command.machine, command.attempt, command.folder)
        for command in commands
        if isinstance(command, WriteCheckpoint)
    )


def writes_what_is_not_consistent(
    cluster: ClusterState, events: Sequence[Event]
) -> tuple[ClusterState, Commands]:
    after, commands = step(cluster, events)
    return after, tuple(
        replace(command, clock=max(p.completed for p in after.partitions))
        if isinstance(command, WriteCheckpoint)
        else command
        for command in commands
    )


def answers_the_dead(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
    """Each event by itself: whom it has answered may have died of the next."""
    commands: Commands = ()
    for event in events:
        cluster, more = step(cluster, (event,))
        commands += more
    return cluster, commands


def _with_rule(right: Rule, wrong: Rule) -> Step:
    rules = {phase: tuple(wrong if rule is right else rule for rule in due) for phase, due in RULES.items()}

    def wrong_step(cluster: ClusterState, events: Sequence[Event]) -> tuple[ClusterState, Commands]:
        return step(cluster, events, rules)

    wrong_step.__name__ = wrong.__name__
    return wrong_step


def keeps_waiting_who_is_needed(cluster: ClusterState) -> Result:
    """Admits machines only at the end of a clock, as if all could always wait for it."""
    at_ease = cluster.phase is not TrainingPhase.TRAINING or (cluster.plan.may_move and cluster.all_served)
    return admission.admit_machines(cluster) if at_ease else (cluster, ())


def leaves_input_with_the_drained(cluster: ClusterState) -> Result:
    left = {name for name, machine in cluster.machines.items() if machine.leaving}
    after, commands = shard_assignment.assign_shards(cluster)
    kept = (old if old.owner in left else new for old, new in zip(cluster.shards, after.shards, strict=True))
    return replace(after, shards=tuple(kept)), commands


def gives_orders_between_clocks_only(cluster: ClusterState) -> Result:
    return shard_assignment.give_orders(cluster) if cluster.plan.may_move else (cluster, ())


def tells_routes_before_arrival(cluster: ClusterState) -> Result:
    """Routes to owners-to-be: one may acknowledge what the controller will not believe it to hold."""
    early = tuple(
        replace(
            partition,
            status=PartitionStatus.SERVED,
            route=Route(partition.number, owner, cluster.make_peer(owner).endpoint, partition.epoch),
        )
        if (owner := partition.owner) is not None and partition.status in ON_ITS_WAY
        else partition
        for partition in cluster.partitions
    )
    after, commands = shard_assignment.give_orders(replace(cluster, partitions=early))
    return replace(after, partitions=cluster.partitions), commands


def believes_what_was_delivered_before_a_rollback(cluster: ClusterState) -> Result:
    shards = tuple(replace(s, delivered=(cluster.generation, s.delivered[1])) for s in cluster.shards)
    after, commands = shard_assignment.give_orders(replace(cluster, shards=shards))
    return replace(after, shards=cluster.shards), commands


WRONG: Sequence[tuple[Step, Sequence[Fault]]] = [
    (keeps_the_generation, (server_dies,)),
    (spares_the_survivors, (server_dies,)),
    (trusts_what_is_not_backed_up, (server_dies,)),
    (_with_rule(shard_assignment.give_orders, tells_routes_before_arrival), FAULTS),
    (skips_a_clock, FAULTS),
    (leaves_a_shard_out, FAULTS),
    (kills_at_the_warning, (warn,)),
    (seals_what_is_half_written, SEVERE),
    (drops_checkpoints_too_early, DEATHS),
    (writes_what_is_not_consistent, SEVERE),
    (answers_the_dead, FAULTS),
    (
        _with_rule(admission.admit_machines, keeps_waiting_who_is_needed),
        (lose_reliable, reliable_server_dies),
    ),
    (_with_rule(shard_assignment.assign_shards, leaves_input_with_the_drained), GENTLE),
    (_with_rule(shard_assignment.give_orders, gives_orders_between_clocks_only), FAULTS),
    (_with_rule(shard_assignment.give_orders, believes_what_was_delivered_before_a_rollback), FAULTS),
]


@pytest.mark.parametrize(("wrong", "kinds"), WRONG, ids=[wrong.__name__ for wrong, _ in WRONG])
def test_a_wrong_controller_is_caught(wrong: Step, kinds: Sequence[Fault]) -> None:
    assert any(notices(seed, wrong, kinds) for seed in range(400))


def notices(seed: int, wrong: Step, kinds: Sequence[Fault]) -> bool:
    try:
        outcome = run_schedule(seed, 3, kinds, wrong, every=1 + seed % 2)
    except Exception:  # whichever part notices first
        return True
    return set(kinds) <= set(GENTLE) and rollbacks(outcome) != []


# ---- servers and workers that do without an answer ------------------------------------------------------


class ServerThatAsksNobody(Server):
    """After pushes and partitions that move."""

    def retry_unanswered(self) -> tuple[Outgoing, ...]:
        return ()


class WorkerThatAsksNobody(Worker):
    def retry_unanswered(self) -> tuple[Outgoing, ...]:
        return ()


class ServerThatRepeatsNothing(Server):
    """Repeats nothing of one kind that others lack."""

    lost: ClassVar[type[Lacking] | type[Missing]]

    def handle_message(self, sender: str, message: Request | Transfer) -> tuple[Outgoing, ...]:
        return () if isinstance(message, self.lost) else super().handle_message(sender, message)


class ServerThatRepeatsNoPush(ServerThatRepeatsNothing):
    lost = Lacking


class ServerThatRepeatsNoTransfer(ServerThatRepeatsNothing):
    lost = Missing


class WorkerThatRepeatsNothing(Worker):
    def handle_answer(self, answer: Answer) -> tuple[Outgoing, ...]:
        return () if isinstance(answer, Unknown) else super().handle_answer(answer)


FORGETFUL: Sequence[Roles] = [
    (ServerThatAsksNobody, Worker),
    (ServerThatRepeatsNoPush, Worker),
    (ServerThatRepeatsNoTransfer, Worker),
    (Server, WorkerThatAsksNobody),
    (Server, WorkerThatRepeatsNothing),
]


@pytest.mark.parametrize("roles", FORGETFUL, ids=lambda roles: f"{roles[0].__name__}-{roles[1].__name__}")
def test_whoever_does_not_repeat_what_was_lost_is_caught(roles: Roles) -> None:
    assert any(stands_still(seed, roles) for seed in range(60))


def stands_still(seed: int, roles: Roles) -> bool:
    try:
        run_schedule(seed, 2, roles=roles)
    except AssertionError as error:
        return "progress ends" in str(error)
    return False


# ---- controllers without one of the rules ------------------------------------------------------------

EVERY_RULE = {rule.__name__: rule for rules in RULES.values() for rule in rules}
ANYTHING = (*SEVERE, warn, lose_every_reliable)


@pytest.mark.parametrize("name", EVERY_RULE)
def test_every_rule_is_needed(name: str) -> None:
    """Without it some schedule ends wrong, or never says what the real controller says soon."""
    dropped = EVERY_RULE[name]
    rules = {phase: tuple(rule for rule in due if rule is not dropped) for phase, due in RULES.items()}
    clock_rules = tuple(rule for rule in CLOCK_RULES if rule is not dropped)
    assert words_of(step) >= {*get_args(Upward), *Stage} - {
        ObjectiveAt,
        MachineGivenUp,
        EvictionNoticed,
    }
    assert words_of(partial(step, rules=rules, clock_rules=clock_rules)) != words_of(step)


@cache
def words_of(chosen: Step) -> set[object]:
    """Every kind of word that is said in some schedules, and stage; none where one of them goes wrong."""
    said: set[object] = set()
    try:
        for seed in range(5000, 5060):
            outcome = run_schedule(seed, 4, ANYTHING, chosen, every=1)
            said.update(type(word) for word in outcome.upwards)
            said.update(word.stage for word in outcome.upwards if isinstance(word, StageChanged))
    except Exception:  # whichever part notices first
        return set()
    return said
