"""Deaths and freezes on a Ray cluster at random moments: nothing is lost but time, and nothing is left.

``pytest --campaign tests/agileml/ray/test_kills.py`` runs 25 jobs and strikes each of them eight times;
without ``--campaign`` one job is struck three times.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from agileml.data.trained_model import TrainingFailed
from agileml.job import Timing
from agileml.protocol.commands import JoinedTraining
from agileml.protocol.events import Stage
from agileml.protocol.telemetry import MachineGivenUp
from agileml.ray.training_loop import choose_controller_node
from tests.agileml.processes.ray_cluster import RayCluster
from tests.agileml.processes.ray_jobs import RayJob, ray_job
from tests.agileml.processes.real_jobs import PATIENCE_S
from tests.agileml.processes.segments import orphans, segments

pytestmark = [pytest.mark.process, pytest.mark.campaign]

JOBS, STRIKES, STRIKES_OF_THE_SAMPLE = 25, 8, 3
TRANSIENT: Final = 3
STEADY: Final = Timing(repeat_s=0.1, silence_s=6.0, lease_s=40.0)


class Siege:
    """A job under attack. ``frozen``: actors that are stopped now, and their nodes."""

    def __init__(self, job: RayJob, cluster: RayCluster, chance: random.Random) -> None:
        self.job, self.cluster, self.chance = job, cluster, chance
        self.frozen: dict[int, str] = {}
        self._names = (f"t{number}" for number in itertools.count(1))

    def reinforce(self) -> None:
        """Nodes for those that are gone."""
        self.cluster.add(*itertools.islice(self._names, TRANSIENT - len(self._transient())))

    def thaw_some(self) -> None:
        """Thaws some of the frozen, by chance."""
        self._thaw(self.chance.sample(sorted(self.frozen), self.chance.randint(0, len(self.frozen))))

    def strike(self, name: str) -> None:
        """Strikes a process that is there, or will be soon: it may just be starting again."""
        what, _, whom = name.partition(" ")
        node = "r1" if whom == "reliable worker" else self.chance.choice(self._transient())
        if whom == "raylet":
            self._strike_node(what, node)
            return
        role = whom.split()[-1]
        process = self.job.find(role, node, PATIENCE_S)
        if what == "kill":
            os.kill(process, signal.SIGKILL)
        else:
            self._freeze(role, process, node)

    def _freeze(self, role: str, process: int, node: str) -> None:
        """An actor until it is thawed, maybe never: its machine is lost. A role for a moment: it is late."""
        os.kill(process, signal.SIGSTOP)
        if role == "actor":
            self.frozen[process] = node
            return
        self.job.listen(self.chance.uniform(0.1, 2.0))
        self._continue(process)

    def _strike_node(self, what: str, node: str) -> None:
        """Ray declares the node of a frozen raylet dead; thawed, that raylet ends itself.

        A frozen actor would never see that its raylet is gone: that is Ray's to mend.
        """
        self._thaw([process for process, home in self.frozen.items() if home == node])
        if what == "kill":
            self.cluster.kill(node)
            return
        os.kill(self.cluster.raylet(node), signal.SIGSTOP)
        self.job.listen(self.chance.uniform(0.1, 3.0))
        self.cluster.remove(node)

    def _thaw(self, processes: list[int]) -> None:
        for process in processes:
            del self.frozen[process]
            self._continue(process)

    def _continue(self, process: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # its machine ended meanwhile
            os.kill(process, signal.SIGCONT)

    def _transient(self) -> list[str]:
        return [name for name in self.cluster.nodes if name.startswith("t")]


KINDS: Final = (
    "kill worker",
    "kill server",
    "kill actor",
    "kill controller",
    "kill raylet",
    "kill reliable worker",
    "freeze worker",
    "freeze server",
    "freeze actor",
    "freeze controller",
    "freeze raylet",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(JOBS if metafunc.config.getoption("--campaign") else 1))


def test_a_job_under_attack_ends_with_the_same_model(
    seed: int, campaign: bool, cluster: RayCluster, tmp_path: Path
) -> None:
    chance, before = random.Random(seed), segments()
    cluster.add("r1")
    siege_name = f"siege-{seed}-{os.getpid()}"
    with ray_job(cluster, tmp_path, siege_name, 100_000, chance.choice((0.0, 0.3)), timing=STEADY) as job:
        kinds = chance.choices(KINDS, k=STRIKES if campaign else STRIKES_OF_THE_SAMPLE)
        siege = Siege(job, cluster, chance)
        siege.reinforce()
        job.reach_stage(Stage.TWO)
        for name in kinds:
            job.listen(chance.uniform(0.0, 1.5))
            redone = len(job.redone)
            siege.strike(name)
            struck, began = job.clock, time.monotonic()
            siege.reinforce()
            job.reach(struck + 10)
            took, again = time.monotonic() - began, job.redone[redone:]
            print(f"seed {seed}: {name} at clock {struck}; redone {again}, ten clocks on {took:.1f} s later")
            siege.thaw_some()
        job.stop_soon()
        job.check_result()
    job.check_nothing_left()
    assert orphans(since=before) == frozenset()


def test_a_node_that_died_unnoticed_gets_no_controller(
    campaign: bool, cluster: RayCluster, tmp_path: Path
) -> None:
    """It was chosen while it seemed alive."""
    if not campaign:
        pytest.skip("only with --campaign: it takes as long as Ray needs to notice")
    cluster.add("r1")
    home = choose_controller_node()
    cluster.kill("r1")
    cluster.add("r2")
    with ray_job(cluster, tmp_path, f"bound-{os.getpid()}", clocks=5, clock_s=0.0, home=home) as job:
        job.reach(1)
        assert job.folder.controller_machine == cluster.id("r2")
        job.stop_soon()
        job.check_result()
    job.check_nothing_left()


def test_a_machine_that_hangs_is_ended_and_its_node_gets_another(
    campaign: bool, cluster: RayCluster, tmp_path: Path
) -> None:
    """Before, its actor kept the CPUs of its node for as long as the job lasted."""
    if not campaign:
        pytest.skip("only with --campaign: silence takes its time; a local machine that hangs is tested")
    cluster.add("r1", "t1")
    with ray_job(cluster, tmp_path, f"hung-{os.getpid()}", timing=STEADY) as job:
        job.reach(1)
        hung = f"transient-{cluster.id('t1')[:12]}"
        os.kill(job.find("actor", "t1", PATIENCE_S), signal.SIGSTOP)
        job.wait(lambda said: said == MachineGivenUp(hung))
        job.wait(lambda said: said == JoinedTraining(f"{hung}.2"))
        job.stop_soon()
        job.check_result()
    job.check_nothing_left()


def test_a_machine_that_cannot_start_and_a_strange_node_end_no_training(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Before, the first error of one node's disk, and a label of somebody else's, ended it for all."""
    cluster.add("r1")
    name = f"odd-{os.getpid()}"
    with ray_job(cluster, tmp_path, name, timing=STEADY) as job:
        job.reach(1)
        cluster.add("odd", tier="gpu")
        cluster.add("t1")
        machine = f"transient-{cluster.id('t1')[:12]}"
        in_the_way = Path(tempfile.gettempdir()) / f"agileml-{name}-{machine}" / "machines" / machine
        in_the_way.mkdir(parents=True)
        with pytest.warns(match="takes no part|failed") as warned:
            job.wait(lambda said: said == JoinedTraining(f"{machine}.2"))
        told = " ".join(str(warning.message) for warning in warned)
        assert f"machine {machine} failed" in told
        assert f"node {cluster.id('odd')} is labelled tier=gpu" in told
        job.stop_soon()
        job.check_result()
    job.check_nothing_left()


def test_a_controller_that_hangs_fails_the_job(campaign: bool, cluster: RayCluster, tmp_path: Path) -> None:
    """Before, agents ended for want of it, and their nodes got others, for ever."""
    if not campaign:
        pytest.skip("takes two minutes, most of them waiting")
    cluster.add("r1")
    timing = replace(STEADY, lease_s=15.0)
    with ray_job(cluster, tmp_path, f"mute-{os.getpid()}", timing=timing) as job:
        job.reach(1)
        os.kill(job.find("controller", "r1", PATIENCE_S), signal.SIGSTOP)
        with pytest.raises(TrainingFailed, match="of which nothing was heard any more"):
            for _ in job.training:
                pass
    job.check_nothing_left()
