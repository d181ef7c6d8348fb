"""Small real jobs: processes on this machine, with the model that a plain loop computes beside them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from agileml.app import Application, Input
from agileml.apps.planted import planted_ratings, write_ratings
from agileml.events import (
    EvictionWarned,
    Finished,
    MachineJoined,
    MachineLost,
    MachineReleased,
    Progressed,
    RolledBack,
    SafeToKill,
    Setup,
    Stage,
    StageChanged,
    StopRequested,
    Tier,
)
from agileml.hosts.client import TrainingClient
from agileml.hosts.job import Job, JobFolder, Timing
from agileml.hosts.local import LocalHost
from agileml.messages import Matrix
from agileml.telemetry import ObjectiveAt, Upward

PATIENCE_S = 40.0
QUICK = Timing(repeat_s=0.1, silence_s=3.0, lease_s=20.0)


def serial(app: Application, data: Input, shards: int, clocks: int) -> tuple[Matrix, list[float]]:
    """The model after ``clocks``, and the objective before each of them: no processes, no machinery."""
    model = app.initial(np.arange(data.shape.rows), data.shape)
    objectives = []
    for clock in range(1, clocks + 1):
        change, total, count = np.zeros_like(model), 0.0, 0.0
        for shard in range(shards):
            rows = app.rows(data.shard(shard))
            outcome = app.process(data.shard(shard), model[rows], (shard, clock))
            change[outcome.delta.rows] += outcome.delta.values
            total, count = total + outcome.total, count + outcome.count
        model = model + change
        objectives.append(app.objective(total, count))
    return model, objectives


class RunningJob:
    """A job with its machines and its client, and everything the client heard."""

    def __init__(self, path: Path, job: Job) -> None:
        ratings = planted_ratings(users=300, items=80, rank=4, noise=0.3, density=0.3, seed=3)
        source = path / "ratings.csv.gz"
        write_ratings(ratings, source)
        self.setup = job.setup
        self.folder = JobFolder.prepare(path / "job", job, source)
        self.host = LocalHost(self.folder.path)
        self.client = TrainingClient(self.folder.path)
        self.heard: list[Upward] = []
        self._read = 0
        self.app = job.make_application()

    def start(self, *machines: str, cores: int = 1) -> None:
        """Names that begin with "r" are reliable."""
        for machine in machines:
            tier = Tier.RELIABLE if machine.startswith("r") else Tier.TRANSIENT
            self.host.start_machine(machine, tier, cores)
            self.client.tell(MachineJoined(machine, tier, cores))

    def kill(self, *machines: str) -> None:
        """Gone without a warning; told at once, as a provider's death notice would."""
        for machine in machines:
            self.host.kill(machine)
        for machine in machines:
            self.client.tell(MachineLost(machine))

    def kill_role(self, role: str, machine: str) -> None:
        """SIGKILL to one process of a machine; its agent (or, of an agent, nobody) notices by itself."""
        module = "agileml.hosts.agent" if role == "agent" else f"agileml.hosts.roles\0{role}"
        wanted = f"\0{module}\0{self.folder.path}\0{machine}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            if wanted in command:
                os.kill(int(process.name), signal.SIGKILL)

    def listen(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.heard += self.client.poll(left)

    def evict(self, *machines: str) -> float:
        """Warn, wait until all are safe to kill, take them away. Returns the seconds until they were safe."""
        warned_at = time.monotonic()
        self.client.tell(EvictionWarned(machines, 30.0))
        for _ in machines:
            self.wait(lambda said: isinstance(said, SafeToKill))
        took = time.monotonic() - warned_at
        for machine in machines:
            self.host.kill(machine)
            self.client.tell(MachineReleased(machine))
        return took

    def wait(self, wanted: Callable[[Upward], bool], patience_s: float = PATIENCE_S) -> Upward:
        """The next wanted message after the last one waited for."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            while self._read < len(self.heard):
                self._read += 1
                if wanted(self.heard[self._read - 1]):
                    return self.heard[self._read - 1]
            self.heard += self.client.poll(0.2)
        raise AssertionError(f"not heard within {patience_s} s; at last: {self.heard[-8:]}\n{self.logs()}")

    def reach(self, clock: int) -> None:
        if self.clock < clock:
            self.wait(lambda said: isinstance(said, Progressed) and said.clock >= clock)

    def reach_stage(self, stage: Stage) -> None:
        heard = [said.stage for said in self.heard if isinstance(said, StageChanged)]
        if heard[-1:] != [stage]:
            self.wait(lambda said: isinstance(said, StageChanged) and said.stage is stage)

    def finish(self) -> Finished:
        for said in self.heard:
            if isinstance(said, Finished):
                return said
        finished = self.wait(lambda said: isinstance(said, Finished))
        assert isinstance(finished, Finished)
        return finished

    def stop(self) -> Finished:
        self.client.tell(StopRequested())
        return self.finish()

    @property
    def clock(self) -> int:
        return max((said.clock for said in self.heard if isinstance(said, Progressed)), default=0)

    @property
    def redone(self) -> list[int]:
        return [said.redone for said in self.heard if isinstance(said, RolledBack)]

    def logs(self) -> str:
        texts = (log.read_text()[-1500:] for log in sorted(self.folder.path.glob("machines/*/*.log")))
        return "\n".join(text for text in texts if text)

    def check_result(self) -> None:
        """Bit for bit the plain loop's model and objective."""
        clocks, data = self.finish().clock, Input(self.folder.input)
        model, _ = serial(self.app, data, self.setup.shards, clocks)
        saved = self.folder.load_model(data.shape, self.setup.partitions)
        assert saved.tobytes() == model.tobytes()
        told = [said for said in self.heard if isinstance(said, ObjectiveAt)]
        last = max(said.clock for said in told)  # beyond the last clock where a stop came a moment late
        _, objectives = serial(self.app, data, self.setup.shards, last + 1)
        assert told == [ObjectiveAt(said.clock, objectives[said.clock]) for said in told]
        assert all(redone <= self.setup.staleness + 2 for redone in self.redone)

    def check_nothing_left(self) -> None:
        self.client.poll(0)  # which confirms what was heard last
        until = time.monotonic() + PATIENCE_S
        while self.host.leftovers() and time.monotonic() < until:
            self.client.poll(0.05)
        assert self.host.leftovers() == []


@contextmanager
def running_job(
    path: Path,
    clocks: int = 1000,
    clock_s: float = 0.2,
    partitions: int = 3,
    shards: int = 8,
    staleness: int = 0,
    stage3_above: float = 15.0,
    application: str = "agileml.apps.mf:MatrixFactorization",
    timing: Timing = QUICK,
) -> Iterator[RunningJob]:
    """A prepared job without machines; whatever happens, nothing is left of it."""
    setup = Setup(partitions, shards, clocks, staleness, stage3_above=stage3_above)
    job = RunningJob(path, Job(application, {"rank": 4}, setup, clock_s, timing))
    try:
        yield job
    finally:
        job.client.close()
        job.host.kill_all()
