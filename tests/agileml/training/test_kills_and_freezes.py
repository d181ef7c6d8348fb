"""SIGKILL and SIGSTOP to any process of any machine at any moment, often one upon the other.

``pytest --campaign tests/agileml/training/test_kills_and_freezes.py`` makes two hundred runs; a run prints
what was done to it. Each trains with checkpoints and must end, bit for bit, with the model of a plain loop.
Where the elasticity controller's machine goes, the job ends, and a new one that is resumed from what it names
must do so.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from agileml.data.checkpoint_store import newest_checkpoint
from agileml.protocol.commands import Failed
from agileml.protocol.events import MachineLost
from tests.agileml.processes.real_jobs import QUICK, RunningJob, running_job

pytestmark = [pytest.mark.process, pytest.mark.campaign]

RUNS: Final = 200
SAMPLE: Final = (0, 1)
EVERY: Final = 3
"""Clocks from one checkpoint to the next."""


class Model(NamedTuple):
    rank: int
    partitions: int


MODELS: Final = (Model(rank=4, partitions=3), Model(rank=136, partitions=2))
"""In turns: arrays of the small one go through sockets, those of the large one are lent."""
TIMING: Final = replace(QUICK, silence_s=5.0, lease_s=60.0)
"""The lease is longer than a role takes to start where every core has much else to do."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "run" in metafunc.fixturenames:
        metafunc.parametrize("run", range(RUNS) if metafunc.config.getoption("--campaign") else SAMPLE)


@dataclass(slots=True)
class Strikes:
    """Kills and freezes a job's processes. Frozen machines wake up when they have long been given up, or
    never.
    """

    job: RunningJob
    chance: random.Random
    machines: list[str]
    done: list[str] = field(default_factory=list)
    asleep: list[Callable[[], object]] = field(default_factory=list)
    bereft: bool = False
    """Of the controller's machine."""

    def strike(self) -> None:
        machine = self.chance.choice(self.machines)
        roles = ["worker", "server", "agent"] + (["controller"] * 3 if machine == "r1" else [])
        how = self.chance.choice([self.kill_role, self.stop_role, self.kill_machine, self.stop_machine])
        how(machine, self.chance.choice(roles))

    def kill_role(self, machine: str, role: str) -> None:
        self.done.append(f"kill {role} of {machine}")
        if role == "agent":
            self.kill_machine(machine, role)
        else:
            self.job.signal_role(role, machine, signal.SIGKILL)

    def stop_role(self, machine: str, role: str) -> None:
        if (role, machine) == ("agent", "r1"):
            role = "server"  # an agent that sleeps loses its machine, and this one is the controller's
        self.done.append(f"stop {role} of {machine}")
        self.job.signal_role(role, machine, signal.SIGSTOP)
        self._wakes(lambda: self.job.signal_role(role, machine, signal.SIGCONT))
        if role == "agent":
            self.machines.remove(machine)

    def kill_machine(self, machine: str, role: str) -> None:
        self.done.append(f"kill {machine}" if role != "agent" else f"kill {machine} by its agent")
        if role == "agent":
            self.job.signal_role("agent", machine, signal.SIGKILL)
        else:
            self.job.host.kill(machine)
        self.machines.remove(machine)
        self.bereft = self.bereft or machine == "r1"
        if self.bereft or self.chance.random() < 0.7:  # otherwise the silence tells
            self.job.client.send_events(MachineLost(machine))

    def stop_machine(self, machine: str, role: str) -> None:
        del role
        self.done.append(f"stop {machine}")
        self.job.host.freeze(machine)
        if machine == "r1":  # not for long: nobody else could say that it is gone
            self.job.listen(self.chance.uniform(0.0, 2.0))
            self.job.host.thaw(machine)
            return
        self._wakes(lambda: self.job.host.thaw(machine))
        self.machines.remove(machine)

    def _wakes(self, wake: Callable[[], object]) -> None:
        if self.chance.random() < 0.7:
            self.asleep.append(wake)

    def wake_all(self) -> None:
        for wake in self.asleep:
            wake()

    def take_away(self) -> None:
        """Takes away what still sleeps, as a provider does with machines that are lost."""
        for machine in self.job.folder.machine_names():
            if machine not in self.machines and self.job.host.is_alive(machine):
                self.job.host.kill(machine)


def go_on_and_check(job: RunningJob, strikes: Strikes) -> None:
    job.reach(job.clock + 3)
    strikes.wake_all()
    job.reach(job.clock + 2)
    job.stop()
    job.check_result()
    strikes.take_away()
    job.check_nothing_left()


def check_resumed(failed: Failed, kept: Path, path: Path, model: Model) -> None:
    """A server may seal one more while it dies, after the client has looked for the newest."""
    last, named = (
        newest_checkpoint(str(kept)),
        newest_checkpoint(failed.checkpoint) if failed.checkpoint else None,
    )
    assert failed.checkpoint == (named.folder if named else ""), "what is named is whole"
    assert (last.manifest.clock if last else 0) - (named.manifest.clock if named else 0) in (0, EVERY)
    with running_job(
        path,
        clock_s=0.0,
        timing=TIMING,
        resume=failed.checkpoint,
        rank=model.rank,
        partitions=model.partitions,
    ) as job:
        job.start("r8", "t8", "t9")
        go_on_and_check(job, Strikes(job, random.Random(0), ["r8", "t8", "t9"]))


def test_any_process_may_be_struck_at_any_moment(run: int, tmp_path: Path) -> None:
    chance = random.Random(f"strike {run}")
    kept, began_at = tmp_path / "kept", time.monotonic()
    clock_s, model = chance.choice((0.0, 0.1)), MODELS[run % len(MODELS)]
    with running_job(
        tmp_path,
        clock_s=clock_s,
        timing=TIMING,
        checkpoints=str(kept),
        every=EVERY,
        rank=model.rank,
        partitions=model.partitions,
    ) as job:
        machines = ["r1", "r2"][: chance.randint(1, 2)] + ["t1", "t2", "t3"][: chance.randint(1, 3)]
        strikes = Strikes(job, chance, machines)
        job.start(*machines)
        job.reach(1)
        job.listen(chance.uniform(0.0, 1.0))
        for _ in range(chance.choice((1, 1, 2, 3))):
            strikes.strike()
            if strikes.bereft:
                break
            job.listen(chance.choice((0.0, 0.05, 0.5)))
        print(f"run {run}: {', '.join(strikes.done)}; after clock {job.clock}")
        if strikes.bereft:
            last = job.wait(lambda said: isinstance(said, Failed))
            job.host.kill_all()
            job.check_nothing_left()
        else:
            go_on_and_check(job, strikes)
        print(f"redone {job.redone}, since checkpoints {[(gone.to, gone.redone) for gone in job.returned]}")
    if strikes.bereft:
        assert isinstance(last, Failed)
        check_resumed(last, kept, tmp_path / "resumed", model)
    print(f"run {run} took {time.monotonic() - began_at:.1f} s")
