"""From the layout to each worker's orders: whose input is whose, where to read, what comes next.

Orders are a value. They are sent when they differ from those sent last, so no handler has to
remember whom to tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agileml.cluster import Cluster, Result
from agileml.commands import Assign, Command, JoinedTraining
from agileml.events import Tier
from agileml.layout import spread
from agileml.machines import Machine


def share_input(cluster: Cluster) -> Result:
    """Give every shard to one live worker, in proportion to cores, without anybody having to wait for it.

    A worker that drains keeps its shards until it is done. A shard that should change hands stays with
    its owner, if that can go on, until the next one has loaded it.
    """
    shards = list(cluster.shards)
    draining = {name for name in cluster.machines if _drains(cluster, name)}
    for number, target in enumerate(_targets(cluster, cluster.workers())):
        owner = shards[number].owner
        waits = target is not None and _can_go_on(cluster, owner) and not _has(cluster, target, number)
        if owner not in draining and not waits:
            shards[number] = shards[number].given_to(target)
    return replace(cluster, shards=tuple(shards)), ()


def _targets(cluster: Cluster, workers: Iterable[Machine]) -> tuple[str | None, ...]:
    """Which of ``workers`` should own each shard."""
    loaded = _loaded(cluster)
    claims = [_claim(cluster, number, loaded[number]) for number in range(len(cluster.shards))]
    return spread(claims, {machine.name: float(machine.cores) for machine in workers})


def _claim(cluster: Cluster, number: int, loaded: Sequence[str]) -> tuple[str, ...]:
    """The owner, then whoever has it loaded, the latest owner first, then its other previous owners."""
    shard = cluster.shards[number]
    has = sorted(loaded, key=lambda name: name not in shard.previous)  # stable: then as machines joined
    latest = [name for name in shard.previous if name in loaded]
    owner = () if shard.owner is None else (shard.owner,)
    return tuple(dict.fromkeys((*owner, *latest, *has, *shard.previous)))


def _loaded(cluster: Cluster) -> list[list[str]]:
    """Who has each shard in memory."""
    holders: list[list[str]] = [[] for _ in cluster.shards]
    for machine in cluster.machines.values():
        for number in machine.worker.loaded if machine.worker is not None else ():
            holders[number].append(machine.name)
    return holders


def _has(cluster: Cluster, name: str, number: int) -> bool:
    worker = cluster.machines[name].worker
    return worker is not None and number in worker.loaded


def _can_go_on(cluster: Cluster, name: str | None) -> bool:
    machine = cluster.machines.get(name) if name is not None else None
    return machine is not None and machine.can_compute


def _drains(cluster: Cluster, name: str) -> bool:
    """A worker that came up on a leaving machine has no orders, and nothing to finish."""
    machine = cluster.machines[name]
    return machine.leaving and machine.worker is not None and machine.worker.must_drain


def preloads(cluster: Cluster) -> dict[str, tuple[int, ...]]:
    """What each worker should load although it is not its own, the most urgent first.

    What it will own as soon as it has loaded it. Then, on transient machines, what reliable ones compute,
    for stage 3. And on reliable machines their part of all the input, for the end of every transient one:
    so the chain of a shard's owners always ends at one that has it.
    """
    able = [machine for machine in cluster.machines.values() if machine.can_compute]
    tiers = (
        [machine for machine in able if machine.tier is tier] for tier in (Tier.TRANSIENT, Tier.RELIABLE)
    )
    wanted: dict[str, dict[int, None]] = {machine.name: {} for machine in able}
    for workers in (cluster.workers(), *tiers):
        for number, owner in enumerate(_targets(cluster, workers)):
            if owner is not None and cluster.shards[number].owner != owner:
                wanted[owner][number] = None
    return {name: tuple(numbers) for name, numbers in wanted.items()}


def give_orders(cluster: Cluster) -> Result:
    """Tell each worker what changed for it; one that idles is told once, and again when it is needed."""
    for_all, preload = _for_all(cluster), preloads(cluster)
    shards: dict[str, list[int]] = {name: [] for name in cluster.machines}
    for number, shard in enumerate(cluster.shards):
        if shard.owner is not None:
            shards[shard.owner].append(number)
    commands: list[Command] = []
    for machine in cluster.machines.values():
        if machine.worker is None:
            continue
        orders = replace(
            for_all,
            machine=machine.name,
            shards=tuple(shards[machine.name]),
            drain=machine.leaving,
            notice_s=machine.notice_s,
            preload=preload.get(machine.name, ()),
        )
        if not _is_news(machine, machine.worker.orders, orders):
            continue
        cluster = replace(cluster, version=cluster.version + 1)
        commands.append(replace(orders, version=cluster.version))
        if not machine.took_part:
            commands.append(JoinedTraining(machine.name))
        told = replace(machine, took_part=True, worker=replace(machine.worker, orders=orders))
        cluster = cluster.with_machine(told)
    return cluster, tuple(commands)


def _for_all(cluster: Cluster) -> Assign:
    """What every worker is told alike. Versions are counted where orders are sent."""
    return Assign(
        machine="",
        generation=cluster.generation,
        version=0,
        routes=tuple(partition.route for partition in cluster.partitions if partition.route is not None),
        shards=(),
        clock=cluster.completed + 1,
        until=cluster.until,
    )


def _is_news(machine: Machine, last: Assign | None, orders: Assign) -> bool:
    """Whether ``orders`` say anything the worker needs. Progress is nothing: it knows its own clock."""
    if last is None:
        return not machine.leaving
    if not orders.shards and (machine.leaving or not last.shards):
        return not machine.leaving and orders.preload != last.preload
    return replace(last, clock=orders.clock) != orders
