"""Two workers and some servers in memory, with the test in the place of the controller."""

from __future__ import annotations

from agileml.protocol.commands import Advance, Create, Handover, SaveModel
from agileml.protocol.events import BackedUp, Setup
from agileml.server.replica import ReplicaRole
from agileml.sync.base import Barrier
from tests.agileml.simulated.fabric import Fabric, assignment, peer, serial

SETUP = Setup(partitions=2, shards=4, clocks=6)


def created(
    setup: Setup = SETUP, machines: tuple[str, ...] = ("r", "a", "b"), barrier: Barrier | None = None
) -> Fabric:
    """All partitions created on "r", two workers."""
    fabric = Fabric(setup, machines, barrier)
    for partition in range(setup.partitions):
        fabric.command(Create("r", partition, 1, 0))
    for name in ("w1", "w2"):
        fabric.add_worker(name)
    return fabric


def start(
    fabric: Fabric,
    owners: tuple[str, str] = ("r", "r"),
    epochs: tuple[int, int] = (1, 1),
    version: int = 1,
    generation: int = 0,
    clock: int = 1,
) -> None:
    for machine, shards in (("w1", (0, 2)), ("w2", (1, 3))):
        fabric.assign(
            assignment(
                fabric,
                machine,
                shards,
                owners,
                epochs=epochs,
                version=version,
                generation=generation,
                clock=clock,
            )
        )


def hand_over(
    fabric: Fabric, source: str, target: str, epoch: int, *, keep: bool, back: bool = False
) -> None:
    for partition in range(SETUP.partitions):
        endpoint = peer(target).endpoint
        backup = None if target == "r" else peer("r")
        fabric.command(Handover(source, partition, target, endpoint, epoch, 0, keep, back, backup))


def advance(fabric: Fabric, generation: int = 0) -> int:
    """Play the controller's part of working out B from what is backed up; returns it."""
    said = [event for event in fabric.events if isinstance(event, BackedUp)]
    backed = [event for event in said if event.generation == generation]
    consistent = min(max((e.clock for e in backed if e.partition == p), default=0) for p in range(2))
    for name in fabric.servers:
        fabric.command(Advance(name, generation, consistent))
    return consistent


def run_to_the_end(fabric: Fabric, generation: int = 0) -> None:
    """Bit for bit the plain loop's model."""
    for _ in range(SETUP.clocks):
        fabric.run()
        advance(fabric, generation)
    for partition in range(SETUP.partitions):
        roles = {name: server.role_of(partition) for name, server in fabric.servers.items()}
        backups = [name for name, role in roles.items() if role is ReplicaRole.BACKUP]
        keeper = backups or [name for name, role in roles.items() if role is ReplicaRole.SERVING]
        fabric.command(SaveModel(keeper[0], 1, SETUP.clocks, (partition,)))
    assert fabric.model().tobytes() == serial(SETUP, SETUP.clocks).tobytes()


def step(fabric: Fabric, pieces: int) -> None:
    """A few pieces of work, so that what follows falls in the middle of a clock."""
    fabric.deliver()
    for _ in range(pieces):
        for machine in fabric.workers:
            fabric.compute_one(machine)
        fabric.deliver()


def two_actives(setup: Setup = SETUP, barrier: Barrier | None = None) -> Fabric:
    """Partition 0 on "a", 1 on "b", both backed up by "r"; nobody trains yet."""
    fabric = created(setup, barrier=barrier)
    for partition, active in enumerate(("a", "b")):
        fabric.command(Handover("r", partition, active, peer(active).endpoint, 2, 0, True, False, peer("r")))
    fabric.deliver()
    return fabric


def on_two_actives() -> Fabric:
    """Trained as far as the back-up bound allows."""
    fabric = two_actives()
    start(fabric, ("a", "b"), (2, 2))
    fabric.run()
    return fabric
