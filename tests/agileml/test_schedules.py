"""Training survives random schedules of joins, warnings and deaths; these tests notice if it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agileml.cluster import Cluster, Commands
from agileml.elastic import step
from agileml.events import (
    Advance,
    Assign,
    Command,
    Event,
    EvictionWarned,
    MachineLost,
    Restore,
    Rollback,
    RolledBack,
    Route,
    SafeToKill,
    ServerLost,
    ServerReady,
    Stage,
    StageChanged,
)
from agileml.holdings import EDGES, ON_ITS_WAY, Partition, Standing
from tests.agileml.network import Step
from tests.agileml.simnet import (
    FAULTS,
    GENTLE,
    Fault,
    Outcome,
    lose_reliable,
    run_schedule,
    server_dies,
    warn,
)

SINGLE, MANY = range(60), range(1000, 1040)


@pytest.mark.parametrize("seed", SINGLE)
def test_one_fault_never_changes_the_model(seed: int) -> None:
    run_schedule(seed)


@pytest.mark.parametrize("seed", MANY)
def test_nor_do_faults_during_the_recovery_from_faults(seed: int) -> None:
    run_schedule(seed, faults=5)


@pytest.mark.parametrize("seed", range(2000, 2040))
def test_what_comes_with_a_warning_costs_no_clock(seed: int) -> None:
    assert rollbacks(run_schedule(seed, faults=3, kinds=GENTLE)) == []


@pytest.mark.parametrize("seed", range(3000, 3020))
def test_only_the_loss_of_a_reliable_machine_fails_a_job(seed: int) -> None:
    run_schedule(seed, faults=2, kinds=(lose_reliable, warn))


def test_a_schedule_is_the_same_every_time() -> None:
    first, again = run_schedule(7, faults=3), run_schedule(7, faults=3)
    assert (first.faults, first.upwards) == (again.faults, again.upwards)


@pytest.mark.campaign
def test_campaign(campaign: bool) -> None:
    """A thousand schedules of up to six faults."""
    for seed in range(10_000, 11_000 if campaign else 10_010):
        run_schedule(seed, faults=1 + seed % 6)


# ---- what the schedules reach ----------------------------------------------------------------------


def test_the_schedules_take_every_edge_and_reach_every_stage() -> None:
    """Else the table says too much, or the schedules try too little."""
    taken: set[tuple[Standing, Standing]] = set()
    stages: set[Stage] = set()

    def watch(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
        after, commands = step(cluster, event)
        stages.update(command.stage for command in commands if isinstance(command, StageChanged))
        for old, new in zip(cluster.partitions, after.partitions, strict=True):
            taken.update(edges_between(old, new, event))
        return after, commands

    for seed in range(250):
        run_schedule(seed, faults=5, step=watch)
        run_schedule(seed, faults=3, kinds=(lose_reliable,), step=watch)
    assert len(stages) == 3
    assert EDGES.keys() - taken == set()


def edges_between(old: Partition, new: Partition, event: Event) -> list[tuple[Standing, Standing]]:
    """The edges of one step, with the standing that did not outlast it put back in between."""
    died = event.machine if isinstance(event, MachineLost | ServerLost | ServerReady) else None
    between = None
    if new.epoch > old.epoch and died in (old.owner, old.source):
        if new.standing is Standing.CREATING:
            between = Standing.ABSENT
        elif old.standing is Standing.MOVING and old.source != died:
            between = Standing.FROZEN
        elif new.standing is Standing.RESTORING:
            between = Standing.LOST
    if between is None:
        return [(old.standing, new.standing)]
    return [(old.standing, between), (between, new.standing)]


def rollbacks(outcome: Outcome) -> list[Command]:
    return [word for word in outcome.upwards if isinstance(word, RolledBack)]


# ---- controllers that are wrong in one thing ---------------------------------------------------------


def keeps_the_generation(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    after, commands = step(cluster, event)
    old = cluster.generation
    kept = tuple(
        replace(command, generation=old) if isinstance(command, Restore | Rollback | Assign) else command
        for command in commands
    )
    return replace(after, generation=old), kept


def spares_the_survivors(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    after, commands = step(cluster, event)
    return after, tuple(command for command in commands if not isinstance(command, Rollback))


def trusts_what_is_not_backed_up(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    after, commands = step(cluster, event)
    ahead = max(partition.completed for partition in after.partitions)
    return after, tuple(
        replace(command, clock=ahead) if isinstance(command, Advance) else command for command in commands
    )


def tells_routes_before_arrival(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    after, commands = step(cluster, event)
    early = tuple(
        Route(partition.number, partition.owner, after.endpoint(partition.owner), partition.epoch)
        for partition in after.partitions
        if partition.owner is not None and partition.standing in ON_ITS_WAY | {Standing.SERVED}
    )
    return after, tuple(
        replace(command, routes=early) if isinstance(command, Assign) else command for command in commands
    )


def skips_a_clock(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    after, commands = step(cluster, event)
    return after, tuple(
        replace(command, clock=command.clock + 1) if isinstance(command, Assign) else command
        for command in commands
    )


def leaves_a_shard_out(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    after, commands = step(cluster, event)
    return after, tuple(
        replace(command, shards=command.shards[1:]) if isinstance(command, Assign) else command
        for command in commands
    )


def kills_at_the_warning(cluster: Cluster, event: Event) -> tuple[Cluster, Commands]:
    after, commands = step(cluster, event)
    if isinstance(event, EvictionWarned):
        commands += tuple(SafeToKill(name) for name in event.machines)
    return after, commands


WRONG: Sequence[tuple[Step, Sequence[Fault]]] = [
    (keeps_the_generation, (server_dies,)),
    (spares_the_survivors, (server_dies,)),
    (trusts_what_is_not_backed_up, (server_dies,)),
    (tells_routes_before_arrival, FAULTS),
    (skips_a_clock, FAULTS),
    (leaves_a_shard_out, FAULTS),
    (kills_at_the_warning, (warn,)),
]


@pytest.mark.parametrize(("wrong", "kinds"), WRONG, ids=[wrong.__name__ for wrong, _ in WRONG])
def test_a_wrong_controller_is_caught(wrong: Step, kinds: Sequence[Fault]) -> None:
    assert any(notices(seed, wrong, kinds) for seed in range(200))


def notices(seed: int, wrong: Step, kinds: Sequence[Fault]) -> bool:
    try:
        outcome = run_schedule(seed, 3, kinds, wrong)
    except Exception:  # whichever part notices first
        return True
    return set(kinds) <= set(GENTLE) and rollbacks(outcome) != []
