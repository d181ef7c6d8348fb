"""Tests the promises of every host (``agileml/node/hosts/base.py``), on each of them with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from agileml.job import JobFolder, TrainingJob
from agileml.node.hosts.base import Host
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.programs.local_host import ProgramHost
from agileml.node.tier import Tier
from agileml.protocol.events import Setup
from agileml.training_host import TrainingHost
from tests.agileml.processes.program_agents import described
from tests.agileml.processes.ray_cluster import wait_until_none
from tests.agileml.processes.ray_jobs import MF, write_small_ratings
from tests.agileml.processes.real_jobs import QUICK

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    job = TrainingJob(MF, {}, Setup(partitions=2, shards=2, clocks=5), timing=QUICK, network=True)
    return JobFolder.prepare(tmp_path / "job", job, write_small_ratings(tmp_path))


def _program_folder(path: Path) -> Path:
    """A command job that machines are not ordered to run: nobody listens where its supervisor would."""
    return ProgramFolder.prepare(path, described("true", path)).path


@pytest.fixture(params=["training", "program", "ray"])
def host(request: pytest.FixtureRequest, folder: JobFolder) -> Iterator[Host]:
    made: Host
    named = str(folder.path)  # a word of their processes' command lines that nobody else's has
    if request.param == "training":
        made = TrainingHost(folder.path)
    elif request.param == "program":
        made = ProgramHost(_program_folder(folder.path.parent / "program"))
        named = str(folder.path.parent / "program")
    else:
        from agileml.job_bundle import JobBundle
        from agileml.ray.cluster_api import living_nodes
        from agileml.ray.host import RayHost

        cluster = request.getfixturevalue("cluster")
        cluster.add("r1", cpus=3)
        (node,) = (node for node in living_nodes() if node.id == cluster.id("r1"))
        named = f"conformance-{uuid4().hex}"
        made = RayHost(named, JobBundle.from_folder(folder))
        made.start_controller(node)
    yield made
    made.kill_all()
    assert made.alive_machines() == []
    assert wait_until_none(named) == {}


def test_machines_start_live_and_end_for_good(host: Host) -> None:
    assert not host.is_alive("r1")
    for machine in ("r1", "r2", "r3"):
        host.start_machine(machine, Tier.RELIABLE, 1)
    assert host.alive_machines() == ["r1", "r2", "r3"]
    with pytest.raises(ValueError, match="cannot name a new machine"):
        host.start_machine("r2", Tier.RELIABLE, 1)
    host.kill("r2")
    assert not host.is_alive("r2")
    host.kill("r2")
    host.kill("never started")
    with pytest.raises(ValueError, match="cannot name a new machine"):
        host.start_machine("r2", Tier.RELIABLE, 1)
    assert host.alive_machines() == ["r1", "r3"]
