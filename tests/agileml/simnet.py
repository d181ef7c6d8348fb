"""Seeded schedules: a toy is trained to its end while machines join, are warned, and die at random moments.

Everything follows from the seed: ``run_schedule(seed)`` is a whole story, and the same one every time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agileml import elastic
from agileml.cluster import Commands
from agileml.events import (
    EvictionWarned,
    Failed,
    Finished,
    MachineLost,
    RolledBack,
    ServerLost,
    Setup,
    StopRequested,
    Tier,
    WorkerLost,
)
from agileml.messages import Matrix
from agileml.partition import Shape
from tests.agileml.network import CONTROLLER, OUTSIDE, Network, Step
from tests.agileml.toy import Toy


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule ended."""

    seed: int
    setup: Setup
    faults: tuple[str, ...]
    upwards: Commands
    model: Matrix
    expected: Matrix

    @property
    def redone(self) -> tuple[int, ...]:
        return tuple(word.redone for word in self.upwards if isinstance(word, RolledBack))

    @property
    def failed(self) -> bool:
        return any(isinstance(word, Failed) for word in self.upwards)

    def check(self) -> None:
        """What must be true of every job that was not lost with its reliable machines."""
        assert any(isinstance(word, Finished) for word in self.upwards), f"ended with {self.upwards[-1]}"
        assert np.array_equal(self.model, self.expected), f"the model is {self.model}, not {self.expected}"
        assert max(self.redone, default=0) <= self.setup.staleness + 2, f"clocks redone: {self.redone}"


# ---- faults --------------------------------------------------------------------------------------


def join(net: Network) -> None:
    for _ in range(net.chance.randint(1, 3)):
        net.join(Tier.TRANSIENT)


def join_reliable(net: Network) -> None:
    net.join(Tier.RELIABLE)


def _transient(net: Network) -> list[str]:
    return [host.name for host in net.hosts.values() if host.tier is Tier.TRANSIENT]


def _some(net: Network) -> list[str]:
    names = _transient(net)
    return net.chance.sample(names, net.chance.randint(1, len(names))) if names else []


def _lose(net: Network, names: list[str]) -> None:
    for name in names:
        net.kill_machine(name)
        net.send(f"agent of {name}", CONTROLLER, MachineLost(name))


def warn(net: Network) -> None:
    """A warning in time, of some machines or of all."""
    net.send(OUTSIDE, CONTROLLER, EvictionWarned(tuple(_some(net)), 120.0))


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
    names = _transient(net)
    if not names:
        return
    host = net.hosts[net.chance.choice(names)]
    net.kill(host.server)
    if net.chance.random() < 0.7:
        net.send(f"agent of {host.name}", CONTROLLER, ServerLost(host.name, host.servers))
    net.start_server(host)


def worker_dies(net: Network) -> None:
    host = net.hosts[net.chance.choice(sorted(net.hosts))]
    net.kill(host.worker)
    if net.chance.random() < 0.7:
        net.send(f"agent of {host.name}", CONTROLLER, WorkerLost(host.name, host.workers))
    net.start_worker(host)


def controller_dies(net: Network) -> None:
    net.restart_controller()


def stop(net: Network) -> None:
    net.send(OUTSIDE, CONTROLLER, StopRequested())


def lose_reliable(net: Network) -> None:
    """Which fails the job if that machine held anything; else its replacement will do."""
    names = [host.name for host in net.hosts.values() if host.tier is Tier.RELIABLE]
    _lose(net, net.chance.sample(names, 1) if names else [])
    net.join(Tier.RELIABLE)


Fault = Callable[[Network], None]
GENTLE: tuple[Fault, ...] = (join, join_reliable, warn, worker_dies, controller_dies, stop)
"""None of these costs a clock."""
FAULTS: tuple[Fault, ...] = (*GENTLE, warn_late, lose, server_dies)


# ---- schedules -----------------------------------------------------------------------------------


def run_schedule(
    seed: int, faults: int = 1, kinds: Sequence[Fault] = FAULTS, step: Step = elastic.step
) -> Outcome:
    """Train the toy to its end while ``faults`` things of these ``kinds`` happen.

    Raises AssertionError, or what the cores raise, when an invariant breaks, progress ends, or the model
    is not what undisturbed training gives; a note names the seed. Only the loss of a reliable machine may
    fail the job.
    """
    try:
        outcome = _run(random.Random(seed), seed, faults, kinds, step)
        if not (outcome.failed and lose_reliable in kinds):
            outcome.check()
        return outcome
    except Exception as error:
        error.add_note(f"seed {seed}, {faults} faults")
        raise


def _run(chance: random.Random, seed: int, faults: int, kinds: Sequence[Fault], step: Step) -> Outcome:
    setup = Setup(
        partitions=chance.randint(1, 4),
        shards=chance.randint(3, 6),
        clocks=chance.randint(4, 9),
        staleness=chance.choice([0, 0, 0, 1, 2]),
        stage3_above=chance.choice([2.0, 15.0]),
        hysteresis=chance.choice([0.0, 0.25]),
    )
    toy = Toy(Shape(9, 2), setup.shards, looks_at_values=setup.staleness == 0)
    net = Network(setup, toy, chance, step)
    for tier in [Tier.RELIABLE] * chance.randint(1, 2) + [Tier.TRANSIENT] * chance.randint(0, 5):
        net.join(tier)
    moments = deque(sorted(chance.randrange(setup.clocks) for _ in range(faults)))
    happened: list[str] = []
    while not net.cluster.phase.over:
        if moments and net.cluster.completed >= moments[0] and chance.random() < 0.03:
            moments.popleft()
            fault = chance.choice(kinds)
            happened.append(f"{fault.__name__} at {net.actions}")
            fault(net)
            continue
        net.reap()
        assert net.act() or net.doomed, net.cluster.told("progress ends: nothing is under way")
        assert net.actions < 20_000, net.cluster.told(
            "progress ends: much is under way and nothing comes of it"
        )
    expected = toy.model(net.cluster.until)
    return Outcome(seed, setup, tuple(happened), tuple(net.upwards), net.model, expected)
