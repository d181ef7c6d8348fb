"""Small real jobs: processes on this machine, with the model that a plain loop computes beside them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from agileml.api import Application
from agileml.apps.planted import planted_ratings, write_ratings
from agileml.client import TrainingClient
from agileml.data.shards import ShardReader
from agileml.job import JobFolder, Timing, TrainingJob
from agileml.node.arrays import Matrix
from agileml.node.hosts.local import HERE, MachineLocation
from agileml.node.tier import Tier
from agileml.protocol.commands import (
    Checkpointed,
    Finished,
    JoinedTraining,
    Progressed,
    RolledBack,
    SafeToKill,
    StageChanged,
)
from agileml.protocol.events import (
    EvictionWarned,
    MachineJoined,
    MachineLost,
    MachineReleased,
    Setup,
    Stage,
    StopRequested,
)
from agileml.protocol.telemetry import ObjectiveAt, Upward
from agileml.training_host import TrainingHost
from tests.agileml.processes.played import plays
from tests.agileml.processes.segments import orphans, segments

PATIENCE_S = 120.0
QUICK = Timing(repeat_s=0.1, silence_s=3.0, lease_s=20.0)


def serial(app: Application, data: ShardReader, shards: int, clocks: int) -> tuple[Matrix, list[float]]:
    """The model after ``clocks``, and the objective before each of them: no processes, no machinery."""
    model = app.initial(np.arange(data.shape.rows), data.shape)
    cut = [data.read_shard(shard) for shard in range(shards)]
    rows = [app.rows(shard) for shard in cut]
    objectives = []
    for clock in range(1, clocks + 1):
        change, total, count = np.zeros_like(model), 0.0, 0.0
        for number, shard in enumerate(cut):
            outcome = app.process(shard, model[rows[number]], (number, clock))
            change[outcome.delta.rows] += outcome.delta.values
            total, count = total + outcome.total, count + outcome.count
        model = model + change
        objectives.append(app.objective(total, count))
    return model, objectives


def _ratings(folder: Path) -> Path:
    source = folder / "ratings.csv.gz"
    write_ratings(planted_ratings(users=300, items=80, rank=4, noise=0.3, density=0.3, seed=3), source)
    return source


def _tier(machine: str) -> Tier:
    return Tier.RELIABLE if machine.startswith("r") else Tier.TRANSIENT


class RunningJob:
    """A job with its machines and its client, and everything the client heard."""

    def __init__(
        self,
        path: Path,
        job: TrainingJob,
        resume: str = "",
        source: Path | None = None,
        where: Callable[[str], MachineLocation] = lambda _: HERE,
    ) -> None:
        """``source``: its input, instead of planted ratings; ``where`` a machine of some name is to run."""
        path.mkdir(exist_ok=True)
        self.folder = JobFolder.prepare(path / "job", job, source or _ratings(path), resume)
        self.setup = self.folder.read_job().setup
        self.host = TrainingHost(self.folder.path)
        self._where = where
        self.client = TrainingClient(self.folder.path)
        self._segments = segments()
        self.heard: list[Upward] = []
        self._read = 0
        self.app = job.make_application()

    def start(self, *machines: str, cores: int = 1) -> None:
        """Names that begin with "r" are reliable."""
        for machine in machines:
            self.start_agent(machine, cores)
            self.announce(machine, cores)

    def train_on(self, *machines: str) -> None:
        """Start these, and wait until every one of them has its part."""
        self.start(*machines)
        missing = set(machines)
        while missing:
            said = self.wait(lambda said: isinstance(said, JoinedTraining))
            assert isinstance(said, JoinedTraining)
            missing.discard(said.machine)

    def start_agent(self, machine: str, cores: int = 1) -> None:
        self.host.start_machine(machine, _tier(machine), cores, self._where(machine))

    def announce(self, machine: str, cores: int = 1) -> None:
        self.client.send_events(MachineJoined(machine, _tier(machine), cores))

    def kill(self, *machines: str) -> None:
        """Gone without a warning; told at once, as a provider's death notice would."""
        for machine in machines:
            self.host.kill(machine)
        for machine in machines:
            self.client.send_events(MachineLost(machine))

    def kill_role(self, role: str, machine: str) -> None:
        """SIGKILL to one process of a machine; its agent (or, of an agent, nobody) notices by itself."""
        until = time.monotonic() + PATIENCE_S
        while not self.signal_role(role, machine, signal.SIGKILL):
            assert time.monotonic() < until, f"no {role} on {machine}"
            self.listen(0.05)

    def signal_role(self, role: str, machine: str, number: signal.Signals) -> int:
        """To whatever plays the role there now, if anything. Returns how many that were."""
        hit = 0
        for process in self.playing(role, machine):
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(process, number)
                hit += 1
        return hit

    def playing(self, role: str, machine: str) -> list[int]:
        """The processes that play the role there now, by number."""
        found, wanted = [], f"\0{self.folder.path}\0{machine}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                if wanted in (process / "cmdline").read_bytes() and plays(process, role):
                    found.append(int(process.name))
        return found

    def poll(self, seconds: float) -> list[Upward]:
        """Returns what was said, after a wait of at most so long."""
        return self.client.poll(seconds)

    def listen(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.heard += self.poll(left)

    def evict(self, *machines: str) -> float:
        """Warn, wait until all are safe to kill, take them away. Returns the seconds until they were safe."""
        warned_at = time.monotonic()
        self.client.send_events(EvictionWarned(machines, 30.0))
        for _ in machines:
            self.wait(lambda said: isinstance(said, SafeToKill))
        took = time.monotonic() - warned_at
        for machine in machines:
            self.host.kill(machine)
            self.client.send_events(MachineReleased(machine))
        return took

    def wait(self, wanted: Callable[[Upward], bool], patience_s: float = PATIENCE_S) -> Upward:
        """The next wanted message after the last one waited for."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            while self._read < len(self.heard):
                self._read += 1
                if wanted(self.heard[self._read - 1]):
                    return self.heard[self._read - 1]
            self.heard += self.poll(0.2)
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
        self.client.send_events(StopRequested())
        return self.finish()

    @property
    def clock(self) -> int:
        return max((said.clock for said in self.heard if isinstance(said, Progressed)), default=0)

    @property
    def redone(self) -> list[int]:
        """The clocks redone after each roll-back to B."""
        return [said.redone for said in self.heard if isinstance(said, RolledBack) and not said.lost]

    @property
    def returned(self) -> list[RolledBack]:
        """The roll-backs to a checkpoint, as some last copy was gone."""
        return [said for said in self.heard if isinstance(said, RolledBack) and said.lost]

    @property
    def checkpoints(self) -> list[int]:
        """The clocks of the whole ones."""
        return [said.clock for said in self.heard if isinstance(said, Checkpointed)]

    def logs(self) -> str:
        texts = (log.read_text()[-1500:] for log in sorted(self.folder.path.glob("machines/*/*.log")))
        return "\n".join(text for text in texts if text)

    def check_result(self) -> None:
        """Bit for bit the plain loop's model and objective."""
        clocks, data = self.finish().clock, self.folder.open_input()
        for gone_back in self.returned:
            assert gone_back.to in (self.setup.start, *self.checkpoints)
        model, objectives = serial(self.app, data, self.setup.shards, clocks)
        saved = self.folder.load_model(data.shape, self.setup.partitions)
        assert saved.tobytes() == model.tobytes()
        told = [said for said in self.heard if isinstance(said, ObjectiveAt)]
        last = max(said.clock for said in told)
        if last >= clocks:  # where a stop came a moment late
            _, objectives = serial(self.app, data, self.setup.shards, last + 1)
        assert told == [ObjectiveAt(said.clock, objectives[said.clock]) for said in told]
        assert all(redone <= self.setup.lag_limit for redone in self.redone)

    def check_nothing_left(self) -> None:
        self.client.poll(0)  # which confirms what was heard last
        until = time.monotonic() + PATIENCE_S
        while self.host.alive_machines() and time.monotonic() < until:
            self.client.poll(0.05)
        assert self.host.alive_machines() == []
        assert not (self.folder.path / "sockets").exists()
        assert orphans(since=self._segments) == frozenset()


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
    network: bool = False,
    checkpoints: str = "",
    every: int = 0,
    resume: str = "",
    rank: int = 4,
) -> Iterator[RunningJob]:
    """A prepared job without machines; whatever happens, nothing is left of it.

    ``every``: clocks between two checkpoints; ``rank``: of the model; rows are as long.
    """
    setup = Setup(
        partitions,
        shards,
        clocks,
        staleness,
        stage3_above=stage3_above,
        checkpoints=checkpoints,
        checkpoint_clocks=every,
    )
    job = RunningJob(
        path, TrainingJob(application, {"rank": rank}, setup, clock_s, timing, network=network), resume
    )
    try:
        yield job
    finally:
        job.client.close()
        job.host.kill_all()
