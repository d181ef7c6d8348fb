"""Small real jobs on a real Ray cluster, watched and checked as those on this machine are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray._private.state

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.job import JobFolder, Timing, TrainingJob
from agileml.protocol.events import Setup
from agileml.protocol.telemetry import Upward
from agileml.ray.nodes import Node
from agileml.ray.training_loop import RayTraining, choose_controller_node
from tests.agileml.processes.played import plays
from tests.agileml.processes.ray_cluster import RayCluster, processes, wait_until_none
from tests.agileml.processes.real_jobs import QUICK, RunningJob

MF = "agileml.apps.mf:MatrixFactorization"


def write_small_ratings(folder: Path) -> Path:
    ratings = planted_ratings(users=300, items=80, rank=4, noise=0.3, density=0.3, seed=3)
    write_ratings(ratings, folder / "ratings.csv.gz")
    return folder / "ratings.csv.gz"


class RayJob(RunningJob):
    """Its machines are the labelled nodes of the cluster. ``name``: of the job, unique on the cluster.

    ``home``: for the controller, instead of one that lives.
    """

    def __init__(
        self, cluster: RayCluster, path: Path, name: str, job: TrainingJob, home: Node | None = None
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.setup = job.setup
        self.app = job.make_application()
        self.folder = JobFolder.prepare(path / "job", job, write_small_ratings(path))
        self.training = RayTraining(self.folder, name, home or choose_controller_node())
        self.heard: list[Upward] = []
        self._read = 0

    def poll(self, seconds: float) -> list[Upward]:
        return self.training.poll(seconds)

    def stop_soon(self) -> None:
        self.training.stop()
        self.finish()
        self.training.leave_cluster()

    def find(self, role: str, node: str, patience_s: float) -> int:
        """The id of a process: ``worker``, ``server`` or ``actor`` (the agent) of a node; ``controller``.

        It may just be starting.
        """
        until = time.monotonic() + patience_s
        while not (found := self._found(role, node)):
            assert time.monotonic() < until, f"no {role} on {node} within {patience_s} s"
            self.listen(0.1)
        return found[-1]

    def _found(self, role: str, node: str) -> list[int]:
        if role == "controller":
            return self._actors("controller")
        place = self.cluster.id(node)[:12]
        if role == "actor":
            return self._actors(place)
        return [
            process
            for process, command in processes(self.name).items()
            if place in command and plays(Path(f"/proc/{process}"), role)
        ]

    def _actors(self, of: str) -> list[int]:
        return [
            int(actor["Pid"])
            for actor in ray._private.state.actors().values()
            if actor["Name"].startswith(f"agileml-{self.name}-") and of in actor["Name"]
            if actor["State"] == "ALIVE"
        ]

    def logs(self) -> str:
        return "\n".join(processes(self.name).values())

    def check_nothing_left(self) -> None:
        assert wait_until_none(self.name) == {}
        assert sorted(Path("/tmp").glob(f"agileml-{self.name}-*")) == []


@contextmanager
def ray_job(
    cluster: RayCluster,
    path: Path,
    name: str,
    clocks: int = 1000,
    clock_s: float = 0.2,
    partitions: int = 3,
    shards: int = 8,
    timing: Timing = QUICK,
    home: Node | None = None,
) -> Iterator[RayJob]:
    job = TrainingJob(MF, {"rank": 4}, Setup(partitions, shards, clocks), clock_s, timing, network=True)
    running = RayJob(cluster, path, name, job, home)
    try:
        yield running
    finally:
        running.training.close()
