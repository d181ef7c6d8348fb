"""From the layout to each worker's orders: whose input is whose, where to read, what comes next.

Orders are a value. They are sent when they differ from those sent last, so no handler has to
remember whom to tell.
"""

from __future__ import annotations

from dataclasses import replace

from agileml.cluster import Cluster, Machine, Result
from agileml.events import Assign, Command, JoinedTraining, Route
from agileml.layout import spread


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
    routes = tuple(partition.route for partition in cluster.partitions if partition.route is not None)
    backups = tuple(
        Route(partition.number, partition.backup, cluster.endpoint(partition.backup), partition.epoch)
        for partition in cluster.partitions
        if partition.backup is not None
    )
    commands: list[Command] = []
    for machine in cluster.machines.values():
        orders = _orders(cluster, machine, routes, backups)
        if machine.worker is None or not _news(machine, orders):
            continue
        cluster = replace(cluster, version=cluster.version + 1)
        commands.append(replace(orders, version=cluster.version))
        if not machine.took_part:
            commands.append(JoinedTraining(machine.name))
        told = replace(machine, took_part=True, worker=replace(machine.worker, orders=orders))
        cluster = cluster.with_machine(told)
    return cluster, tuple(commands)


def _orders(
    cluster: Cluster, machine: Machine, routes: tuple[Route, ...], backups: tuple[Route, ...]
) -> Assign:
    return Assign(
        machine=machine.name,
        generation=cluster.generation,
        version=0,
        routes=routes,
        backups=backups,
        shards=tuple(number for number, shard in enumerate(cluster.shards) if shard.owner == machine.name),
        clock=cluster.completed + 1,
        until=cluster.until,
        drain=machine.leaving,
        notice_s=machine.notice_s,
    )


def _news(machine: Machine, orders: Assign) -> bool:
    """Whether ``orders`` tell the worker something it needs. Progress is none: it knows its own clock."""
    if machine.worker is None:
        return False
    last = machine.worker.orders
    if last is None:
        return not machine.leaving
    if not orders.shards and (machine.leaving or not last.shards):
        return False
    return replace(last, clock=orders.clock) != orders
