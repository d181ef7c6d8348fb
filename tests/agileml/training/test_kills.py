"""Sudden deaths at random moments: nothing is lost but time, and nothing is left behind.

``pytest --campaign tests/agileml/training/test_kills.py`` kills each kind of thing at twenty moments;
``test_kills_and_freezes.py`` strikes at anything, in two hundred ways.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from agileml.protocol.commands import Failed
from agileml.protocol.events import MachineLost, Stage
from tests.agileml.processes.real_jobs import PATIENCE_S, QUICK, RunningJob, running_job

pytestmark = [pytest.mark.process, pytest.mark.campaign]


def lose_a_worker(job: RunningJob) -> None:
    job.kill_role("worker", "t2")


def lose_an_active(job: RunningJob) -> None:
    job.kill_role("server", "t1")


def lose_a_machine(job: RunningJob) -> None:
    job.kill("t1")


def lose_all_transient_machines(job: RunningJob) -> None:
    job.kill("t1", "t2", "t3")


def lose_an_agent(job: RunningJob) -> None:
    """Its roles end with it, which the controller learns from the silence."""
    job.kill_role("agent", "t1")


def lose_the_controller(job: RunningJob) -> None:
    job.kill_role("controller", "r1")


KILLS: Final[Mapping[str, Callable[[RunningJob], None]]] = {
    "worker": lose_a_worker,
    "active": lose_an_active,
    "machine": lose_a_machine,
    "all transient": lose_all_transient_machines,
    "agent": lose_an_agent,
    "controller": lose_the_controller,
}


EVICTIONS: Final[Mapping[str, tuple[str, ...]]] = {"half": ("t1", "t2"), "all": ("t1", "t2", "t3", "t4")}

SAMPLE: Final = [("all transient", 0), ("half", 0)]
"""What runs without --campaign; ``test_local_host.py`` has one of each other kind."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    whole = metafunc.config.getoption("--campaign")
    for name, kinds in {"killed": KILLS, "evicted": EVICTIONS}.items():
        if name in metafunc.fixturenames:
            moments = [(kind, seed) for kind in kinds for seed in range(20)]
            metafunc.parametrize((name, "seed"), moments if whole else [m for m in moments if m in SAMPLE])
    if "chaos" in metafunc.fixturenames:
        metafunc.parametrize("chaos", range(20 if whole else 1))


def test_a_sudden_death_costs_nothing_but_time(killed: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{killed} {seed}")
    with running_job(tmp_path, clock_s=chance.choice((0.0, 0.3))) as job:
        job.start("r1", "t1", "t2", "t3")
        job.reach_stage(Stage.TWO)
        job.listen(chance.uniform(0.0, 1.5))
        killed_after = job.clock
        KILLS[killed](job)
        job.reach(killed_after + 6)
        job.stop()
        print(f"{killed}, seed {seed}: killed after clock {killed_after}, redone {job.redone}")
        job.check_result()
        job.check_nothing_left()


def test_a_warned_eviction_redoes_nothing(evicted: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{evicted} {seed}")
    with running_job(tmp_path, clock_s=0.3) as job:
        job.start("r1", "t1", "t2", "t3", "t4")
        job.reach_stage(Stage.TWO)
        job.listen(chance.uniform(0.0, 1.0))
        took = job.evict(*EVICTIONS[evicted])
        print(f"{evicted}, seed {seed}: safe to kill {took:.3f} s after the warning")
        job.reach(job.clock + 2)
        job.stop()
        job.check_result()
        job.check_nothing_left()
        assert job.redone == []


def test_any_mixture_of_joins_evictions_and_deaths(chaos: int, tmp_path: Path) -> None:
    """Whatever is chosen next happens a random moment later, often before the last thing is dealt with."""
    chance = random.Random(chaos)
    names = (f"t{number}" for number in itertools.count(1))
    with running_job(tmp_path, clock_s=0.1) as job:
        there = [next(names), next(names)]
        job.start("r1", *there)
        job.reach(1)
        for _ in range(8):
            victims = chance.sample(there, min(len(there), chance.choice((1, 1, 2))))
            match chance.choice(("join", "join", "evict", "kill", "role", "controller")) if there else "join":
                case "join":
                    there.append(next(names))
                    job.start(there[-1])
                case "evict":
                    job.evict(*victims)
                    there = [name for name in there if name not in victims]
                case "kill":
                    job.kill(*victims)
                    there = [name for name in there if name not in victims]
                case "role":
                    job.kill_role(chance.choice(("worker", "server")), victims[0])
                case "controller":
                    job.kill_role("controller", "r1")
            job.listen(chance.choice((0.0, 0.05, 0.5)))
        job.reach(job.clock + 2)
        job.stop()
        print(f"seed {chaos}: redone {job.redone} of {job.clock} clocks")
        job.check_result()
        job.check_nothing_left()


def test_losing_the_only_reliable_machine_ends_the_job_by_lease(tmp_path: Path) -> None:
    with running_job(tmp_path, timing=replace(QUICK, lease_s=4.0)) as job:
        job.start("r1", "t1")
        job.reach(2)
        job.host.kill("r1")
        job.check_nothing_left()


def test_machines_that_nobody_claims_end_by_themselves(tmp_path: Path) -> None:
    """Their client has died between starting them and telling the controller of the first."""
    with running_job(tmp_path, timing=replace(QUICK, unclaimed_s=3.0)) as job:
        for machine in ("r1", "t1"):
            job.start_agent(machine)
        until = time.monotonic() + PATIENCE_S
        while job.host.alive_machines():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert job.folder.last_words.exists()  # the controller ended, and no agent before it by lease
        job.check_nothing_left()


def test_a_claimed_job_trains_on_without_its_client(tmp_path: Path) -> None:
    with running_job(tmp_path, timing=replace(QUICK, unclaimed_s=3.0)) as job:
        job.start("r1", "t1")
        job.reach(1)
        time.sleep(2 * job.folder.read_job().timing.unclaimed_s)
        job.stop()
        job.check_result()
        job.check_nothing_left()


def test_losing_one_of_two_reliable_machines_fails_the_job(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.train_on("r1", "r2", "t1")
        job.reach(2)
        job.host.kill("r2")
        job.client.send_events(MachineLost("r2"))
        job.wait(lambda said: isinstance(said, Failed))
        job.check_nothing_left()
