"""Gives each worker its orders: its shards, where to read and write, and which clock comes next.

Orders are a value. A worker gets new ones when they differ from those sent last, so no handler has to
remember whom a change concerns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from agileml.controller.cluster import ClusterState, Result
from agileml.controller.machines import MachineRecord
from agileml.controller.placement.layout import assign_owners
from agileml.node.tier import Tier
from agileml.protocol.commands import Assign, Command, JoinedTraining


def assign_shards(cluster: ClusterState) -> Result:
    """Gives every shard to one live worker, in proportion to cores.

    Between two clocks a shard goes from an owner that can go on to one that has it loaded. During a clock
    only the shards of dead and drained workers change hands.
    """
    shards, draining = list(cluster.shards), cluster.draining_owners()
    turn = cluster.plan.may_move and cluster.all_served
    if not turn and all(_can_go_on(cluster, shard.owner) or shard.owner in draining for shard in shards):
        return cluster, ()
    for number, target in enumerate(_target_owners(cluster, cluster.computing_machines())):
        owner = shards[number].owner
        # It finishes its clock in hand with these shards; a second owner would only repeat its work.
        if owner in draining:
            continue
        # A target that has not loaded the shard would make the whole clock wait for its input.
        if _can_go_on(cluster, owner):
            if turn and target is not None and _has_loaded(cluster, target, number):
                shards[number] = shards[number].with_owner(target)
        # What drained workers leave waits until the last of them has drained: the clock in hand cannot end
        # before that anyway.
        elif draining and _is_ownerless(cluster, owner):
            shards[number] = shards[number].with_owner(None)
        else:
            shards[number] = shards[number].with_owner(target)
    return replace(cluster, shards=tuple(shards)), ()


def _target_owners(cluster: ClusterState, workers: Iterable[MachineRecord]) -> tuple[str | None, ...]:
    """Returns which of ``workers`` should own each shard."""
    loaded, loading = _machines_holding(cluster), _machines_loading(cluster)
    claims = [
        _rank_claimants(cluster, number, loaded[number], loading[number])
        for number in range(len(cluster.shards))
    ]
    return assign_owners(claims, {machine.name: float(machine.cores) for machine in workers})


def _rank_claimants(
    cluster: ClusterState, number: int, loaded: Sequence[str], loading: Sequence[str]
) -> tuple[str, ...]:
    """Ranks machines by their claim to a shard.

    First its owner, then those that have it loaded (the latest owner first), those that load it, and its
    previous owners.
    """
    shard = cluster.shards[number]
    has = sorted(loaded, key=lambda name: name not in shard.previous)  # stable: then as machines joined
    latest = [name for name in shard.previous if name in loaded]
    owner = () if shard.owner is None else (shard.owner,)
    return tuple(dict.fromkeys((*owner, *latest, *has, *loading, *shard.previous)))


def _machines_holding(cluster: ClusterState) -> list[list[str]]:
    """Returns the machines that have each shard in memory."""
    holders: list[list[str]] = [[] for _ in cluster.shards]
    for machine in cluster.machines.values():
        for number in machine.worker.loaded if machine.worker is not None else ():
            holders[number].append(machine.name)
    return holders


def _machines_loading(cluster: ClusterState) -> list[list[str]]:
    """Returns the machines that wait to become members and are to load each shard."""
    loading: list[list[str]] = [[] for _ in cluster.shards]
    for machine in cluster.machines.values():
        for number in cluster.plan.preloads.get(machine.name, ()) if _is_coming(machine) else ():
            loading[number].append(machine.name)
    return loading


def _has_loaded(cluster: ClusterState, name: str, number: int) -> bool:
    worker = cluster.machines[name].worker
    return worker is not None and number in worker.loaded


def _can_go_on(cluster: ClusterState, name: str | None) -> bool:
    machine = cluster.machines.get(name) if name is not None else None
    return machine is not None and machine.can_compute


def _is_ownerless(cluster: ClusterState, name: str | None) -> bool:
    """Whether a shard is nobody's, or still belongs to a worker that has drained."""
    machine = cluster.machines.get(name) if name is not None else None
    return name is None or (machine is not None and machine.leaving)


def plan_preloads(cluster: ClusterState) -> dict[str, tuple[int, ...]]:
    """Returns the shards that each worker should load ahead of owning them, the most urgent first."""
    able = [machine for machine in cluster.machines.values() if machine.can_compute or _is_coming(machine)]
    computing = {machine.tier for machine in cluster.computing_machines()}
    wanted: dict[str, dict[int, None]] = {machine.name: {} for machine in able}
    # First what a worker will own as soon as it has loaded it and is a member. Then, on transient machines,
    # what reliable ones compute, for stage 3. Last, on reliable machines, their part of all the input: when
    # every transient machine is evicted, the notice is too short to load it.
    for tiers in (computing | {Tier.TRANSIENT}, {Tier.TRANSIENT}, {Tier.RELIABLE}):
        workers = [machine for machine in able if machine.tier in tiers]
        for number, owner in enumerate(_target_owners(cluster, workers)):
            if owner is not None and cluster.shards[number].owner != owner:
                wanted[owner][number] = None
    return {name: tuple(numbers) for name, numbers in wanted.items()}


def _is_coming(machine: MachineRecord) -> bool:
    """Whether a machine was announced and waits to become a member. It may not be up yet."""
    return not machine.member and not machine.leaving


def give_orders(cluster: ClusterState) -> Result:
    """Sends each worker the orders that changed for it. An idle worker gets them once, and when needed."""
    for_all = _common_orders(cluster)
    anew = cluster.plan.may_move and cluster.all_served
    strangers = {name for name, machine in cluster.machines.items() if _awaits_first_orders(machine)}
    # Newcomers learn at once what to load. For the others a new plan counts only between clocks.
    preloads = cluster.plan.preloads
    if anew or not strangers <= preloads.keys():
        preloads = plan_preloads(cluster)
    shards: dict[str, list[int]] = {name: [] for name in cluster.machines}
    for number, shard in enumerate(cluster.shards):
        if shard.owner in shards:
            shards[shard.owner].append(number)
    commands: list[Command] = []
    updated: list[MachineRecord] = []
    for machine in cluster.machines.values():
        if machine.worker is None:
            continue
        last = machine.worker.orders
        # While partitions are on their way, workers can do nothing until all have arrived, and then get all
        # changes at once. Newcomers may load meanwhile, and a warned worker must drain while notice is left.
        if last is not None and not cluster.all_served and machine.leaving is last.drain:
            continue
        orders = replace(
            for_all,
            machine=machine.name,
            shards=tuple(shards[machine.name]),
            drain=machine.leaving,
            notice_s=machine.notice_s,
            preload=preloads.get(machine.name, ()) if last is None or anew else last.preload,
            delivered=tuple(_delivered_clocks(cluster, shards[machine.name])),
        )
        # Machines without changes keep their version, so a change for one costs the others no message.
        if not _has_changes(machine, last, orders):
            continue
        commands.append(replace(orders, version=cluster.plan.version + len(updated) + 1))
        if not machine.took_part:
            commands.append(JoinedTraining(machine.name))
        updated.append(replace(machine, took_part=True, worker=replace(machine.worker, orders=orders)))
    plan = replace(
        cluster.plan,
        preloads=preloads,
        version=cluster.plan.version + len(updated),
        orders_given=cluster.plan.orders_given or cluster.all_served,
    )
    return replace(cluster, roster=cluster.roster.with_machines(updated), plan=plan), tuple(commands)


def _delivered_clocks(cluster: ClusterState, shards: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields each shard that is delivered beyond the completed clock, with its last delivered clock."""
    # Without these a new owner would compute again what a drained worker has pushed. What was delivered in an
    # earlier generation is undone, and has to be computed again.
    for number in shards:
        generation, clock = cluster.shards[number].delivered
        if generation == cluster.generation and clock > cluster.completed_clock:
            yield number, clock


def _awaits_first_orders(machine: MachineRecord) -> bool:
    return machine.worker is not None and machine.worker.orders is None and not machine.leaving


def _common_orders(cluster: ClusterState) -> Assign:
    """Returns the part of the orders that is the same for all workers. ``give_orders`` counts versions."""
    return Assign(
        machine="",
        generation=cluster.generation,
        version=0,
        routes=tuple(partition.route for partition in cluster.partitions if partition.route is not None),
        shards=(),
        clock=cluster.completed_clock + 1,
        until=cluster.until,
    )


def _has_changes(machine: MachineRecord, last: Assign | None, orders: Assign) -> bool:
    """Whether ``orders`` say anything that the worker needs to know."""
    if last is None:
        return not machine.leaving
    # An idle worker needs no routes: it would get orders with every move of a partition, for nothing.
    if not orders.shards and (machine.leaving or not last.shards):
        return not machine.leaving and orders.preload != last.preload
    # Progress is no change, as a worker knows its own clock. Nor is what previous owners delivered: that
    # matters only with a new shard, which is a change by itself.
    return replace(last, clock=orders.clock, delivered=orders.delivered) != orders
