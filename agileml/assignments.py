"""From the layout to each worker's orders: whose input is whose, where to read, what comes next.

Orders are a value. They are sent when they differ from those sent last, so no handler has to
remember whom to tell.
"""

from __future__ import annotations

from dataclasses import replace

from agileml.cluster import Cluster, Result
from agileml.events import Assign, Command, JoinedTraining
from agileml.layout import spread
from agileml.machines import Machine


def share_input(cluster: Cluster) -> Result:
    """Give every shard to one live worker, in proportion to cores.

    A worker that drains keeps its shards until it is done; the others share what is left.
    """
    draining = {name for name in cluster.machines if _drains(cluster, name)}
    free = [number for number, shard in enumerate(cluster.shards) if shard.owner not in draining]
    claims = [_claim(cluster, number) for number in free]
    owners = spread(claims, {machine.name: float(machine.cores) for machine in cluster.workers()})
    shards = list(cluster.shards)
    for number, owner in zip(free, owners, strict=True):
        shards[number] = shards[number].given_to(owner)
    return replace(cluster, shards=tuple(shards)), ()


def _claim(cluster: Cluster, number: int) -> tuple[str, ...]:
    shard = cluster.shards[number]
    return (shard.owner, *shard.previous) if shard.owner is not None else shard.previous


def _drains(cluster: Cluster, name: str) -> bool:
    """A worker that came up on a leaving machine has no orders, and nothing to finish."""
    machine = cluster.machines[name]
    return machine.leaving and machine.worker is not None and machine.worker.must_drain


def give_orders(cluster: Cluster) -> Result:
    """Tell each worker what changed for it; one that idles is told once, and again when it is needed."""
    for_all = _for_all(cluster)
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
        return False
    return replace(last, clock=orders.clock) != orders
