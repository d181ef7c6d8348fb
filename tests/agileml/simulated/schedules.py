"""Seeded schedules: a toy is trained to its end while machines join, are warned, and die at random moments.

Everything follows from the seed: ``run_schedule(seed)`` is a whole story, and the same one every time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from agileml.controller import state_machine
from agileml.controller.cluster import Commands
from agileml.controller.links import CLIENT, Step, agent_name
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix
from agileml.node.tier import Tier
from agileml.protocol.commands import Failed, Finished, Progressed, RolledBack, StageChanged
from agileml.protocol.events import (
    CheckpointDue,
    EvictionWarned,
    MachineLost,
    ServerLost,
    Setup,
    Stage,
    StopRequested,
    WorkerLost,
)
from agileml.server.server import Server
from agileml.worker.worker import Worker
from tests.agileml.simulated.network import Network
from tests.agileml.simulated.toy import Toy


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a schedule."""

    seed: int
    setup: Setup
    faults: tuple[str, ...]
    upwards: Commands
    model: Matrix
    expected: Matrix

    @property
    def redone(self) -> tuple[int, ...]:
        """The clocks redone after each roll-back to B; those to a checkpoint have no such bound."""
        return tuple(word.redone for word in self.upwards if isinstance(word, RolledBack) and not word.lost)

    @property
    def unheard(self) -> int:
        """The most clocks that reliable servers had completed in stage 1 and not told of yet.

        With those after it that workers had read for by then: as far as staleness lets them, and one more.
        """
        stage, most, begun = Stage.ONE, 0, 0
        for word in self.upwards:
            if isinstance(word, StageChanged):
                stage = word.stage
            elif isinstance(word, Progressed):
                if stage is Stage.ONE:
                    begun = word.clock + self.setup.staleness + 1
                if word.clock <= begun:
                    most = max(most, word.clock - word.consistent)
        return most

    @property
    def failed(self) -> bool:
        return any(isinstance(word, Failed) for word in self.upwards)

    def check(self) -> None:
        """Checks what must be true of every job that was not lost with its reliable machines."""
        assert any(isinstance(word, Finished) for word in self.upwards), f"ended with {self.upwards[-1]}"
        assert np.array_equal(self.model, self.expected), f"the model is {self.model}, not {self.expected}"
        bound = max(self.setup.lag_limit, self.unheard)
        assert max(self.redone, default=0) <= bound, f"clocks redone: {self.redone}"


# ---- faults --------------------------------------------------------------------------------------


def join(net: Network) -> None:
    """A few, or many at once."""
    net.join(Tier.TRANSIENT, net.chance.choice([1, 1, 2, 3, 9]))


def join_reliable(net: Network) -> None:
    net.join(Tier.RELIABLE)


def _transient(net: Network) -> list[str]:
    return [host.name for host in net.hosts.values() if host.tier is Tier.TRANSIENT]


def _some(net: Network) -> list[str]:
    names = _transient(net)
    return net.chance.sample(names, net.chance.randint(1, len(names))) if names else []


def _lose(net: Network, names: list[str]) -> None:
    """Loses machines: the client says so, of all at once, or the controller notices
    their silence, or both.
    """
    how = {name: net.chance.random() for name in names}
    for name in names:
        net.kill_machine(name)
    net.tell(CLIENT, *(MachineLost(name) for name in names if how[name] < 0.8))
    for name in names:
        if how[name] > 0.6:
            net.notice_silence(name)


def warn(net: Network) -> None:
    """A warning in time, of some machines or of all."""
    net.tell(CLIENT, EvictionWarned(tuple(_some(net)), 120.0))


def warn_late(net: Network) -> None:
    """A warning that is followed by the end, whatever has been moved by then."""
    warn(net)
    for _ in range(net.chance.randint(0, 60)):
        net.act()
    lose(net)


def lose(net: Network) -> None:
    _lose(net, _some(net))


def server_dies(net: Network) -> None:
    """And is started again; its death may be noticed only by that."""
    _server_dies(net, _transient(net))


def _server_dies(net: Network, names: list[str]) -> None:
    if not names:
        return
    host = net.hosts[net.chance.choice(names)]
    net.kill(host.server)
    if net.chance.random() < 0.7:
        net.tell(agent_name(host.name), ServerLost(host.name, host.servers))
    net.start_server(host)


def worker_dies(net: Network) -> None:
    if not net.hosts:
        return
    host = net.hosts[net.chance.choice(sorted(net.hosts))]
    net.kill(host.worker)
    if net.chance.random() < 0.7:
        net.tell(agent_name(host.name), WorkerLost(host.name, host.workers))
    net.start_worker(host)


def controller_dies(net: Network) -> None:
    """Now, or when it has recorded the next thing and not acted on it yet."""
    if net.chance.random() < 0.5:
        net.restart_controller()
    else:
        net.dies_acting = True


def stop(net: Network) -> None:
    net.tell(CLIENT, StopRequested())


def _reliable(net: Network) -> list[str]:
    return [host.name for host in net.hosts.values() if host.tier is Tier.RELIABLE]


def lose_reliable(net: Network) -> None:
    """One, and another comes in its place: whoever runs the machines says so in this order."""
    names = _reliable(net)
    net.join(Tier.RELIABLE)
    for name in net.chance.sample(names, min(len(names), 1)):
        net.kill_machine(name)
        net.tell(CLIENT, MachineLost(name))


def lose_every_reliable(net: Network) -> None:
    """Ends the job, as there is nowhere left to be safe; before training begins, others may come."""
    _lose(net, _reliable(net))
    if not net.cluster.has_begun:
        net.join(Tier.RELIABLE)


def reliable_server_dies(net: Network) -> None:
    _server_dies(net, _reliable(net))


def disk_fills_up(net: Network) -> None:
    """The next write of a checkpoint is refused."""
    net.disk_is_full = True


def checkpoint_is_due(net: Network) -> None:
    net.tell(CLIENT, CheckpointDue())


Fault = Callable[[Network], None]
Roles = tuple[type[Server], type[Worker]]
"""What the processes run."""
GENTLE: tuple[Fault, ...] = (join, join_reliable, warn, worker_dies, controller_dies, stop)
"""None of these costs a clock."""
FAULTS: tuple[Fault, ...] = (*GENTLE, warn_late, lose, server_dies)
SEVERE: tuple[Fault, ...] = (*FAULTS, lose_reliable, reliable_server_dies, disk_fills_up, checkpoint_is_due)
"""With checkpoints: these may cost everything since the newest one."""
DEATHS: tuple[Fault, ...] = (lose_reliable, join_reliable, lose, server_dies, reliable_server_dies)


# ---- schedules -----------------------------------------------------------------------------------


def run_schedule(
    seed: int,
    faults: int = 1,
    kinds: Sequence[Fault] = FAULTS,
    step: Step = state_machine.step,
    every: int = 0,
    roles: Roles = (Server, Worker),
) -> Outcome:
    """Train the toy to its end while ``faults`` things of these ``kinds`` happen.

    Raises AssertionError, or what the cores raise, when an invariant breaks, progress ends, or the model
    is not what undisturbed training gives; a note names the seed. ``every``: clocks between checkpoints. A
    job may fail only with its last reliable machine; then one that is resumed from what it names goes on.
    """
    try:
        outcome = _run(random.Random(seed), seed, faults, kinds, step, every, roles)
        outcome.check()
        return outcome
    except Exception as error:
        error.add_note(f"seed {seed}, {faults} faults")
        raise


def _run(
    chance: random.Random,
    seed: int,
    faults: int,
    kinds: Sequence[Fault],
    step: Step,
    every: int,
    roles: Roles,
) -> Outcome:
    setup = Setup(
        partitions=chance.randint(1, 4),
        shards=chance.randint(3, 6),
        clocks=chance.randint(4, 9),
        staleness=chance.choice([0, 0, 0, 1, 2]),
        stage3_above=chance.choice([2.0, 15.0]),
        hysteresis=chance.choice([0.0, 0.25]),
        checkpoints="run" if every else "",
        checkpoint_clocks=every,
        backup_lag=chance.choice([None, None, 1, 4, 8]),
    )
    toy = Toy(Shape(9, 2), setup.shards, looks_at_values=setup.staleness == 0)
    net = Network(setup, toy, chance, step, *roles)
    happened = train_to_end(net, faults, kinds)
    said = list(net.upwards)
    if isinstance(said[-1], Failed) and lose_every_reliable in kinds:
        resumed = structs.replace(
            setup, checkpoints="again", start=net.cluster.checkpoints.newest.clock, resume=said[-1].checkpoint
        )
        net = Network(resumed, toy, chance, step, *roles, stored=net.stored, sealed=net.sealed)
        happened += ["resumed", *train_to_end(net, faults=1, kinds=GENTLE)]
        said += net.upwards
    return Outcome(seed, setup, tuple(happened), tuple(said), net.model, toy.model(net.cluster.until))


def train_to_end(net: Network, faults: int, kinds: Sequence[Fault]) -> list[str]:
    """To the end of the job; returns what happened to it."""
    chance, setup = net.chance, net.setup
    for tier in [Tier.RELIABLE] * chance.randint(1, 2) + [Tier.TRANSIENT] * chance.randint(0, 5):
        net.join(tier)
    moments = deque(sorted(chance.randrange(setup.start, setup.clocks) for _ in range(faults)))
    happened: list[str] = []
    while not net.cluster.phase.is_over:
        if moments and net.cluster.completed_clock >= moments[0] and chance.random() < 0.03:
            moments.popleft()
            fault = chance.choice(kinds)
            happened.append(f"{fault.__name__} at {net.actions}")
            fault(net)
            continue
        net.reap()
        assert net.act() or net.doomed, net.cluster.with_story("progress ends: nothing is under way")
        assert net.actions < 20_000, net.cluster.with_story(
            "progress ends: much is under way and nothing comes of it"
        )
    net.last_words()
    return happened
