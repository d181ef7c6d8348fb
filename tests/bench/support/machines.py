"""What the experiments on many machines share: a job that is traffic, on namespaces whose links bind.

The proportions follow the paper's matrix factorization on 64 machines (Harlap 4.5.3): nearly all of the model
changes in a clock, and a worker exchanges a small part of it, yet where few machines serve all of them the
network is what they wait for. Computing is a sleep, since 64 workers on a few cores would measure the cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from agileml.job import Timing, TrainingJob
from agileml.protocol.commands import JoinedTraining, Progressed, StageChanged
from agileml.protocol.events import Setup, Stage
from tests.agileml.processes.netns import Network, unavailable
from tests.agileml.processes.real_jobs import RunningJob
from tests.agileml.processes.spread import write_numbered

MACHINES: Final = 64
MODEL: Final = {"height": 28_500, "width": 64, "seed": 0}
"""7.3 MB."""
TOUCHED: Final = 264 * 4 * MACHINES
"""Rows that all shards together read and update in a clock, however many they are: nine of ten change."""
PARTITIONS: Final = MACHINES // 2
TIMING: Final = Timing(repeat_s=2.0, silence_s=300.0, lease_s=600.0)
"""Rare signs of life, and patience: 200 processes share the cores of one host."""
PATIENCE_S: Final = 600.0


@dataclass
class Watched:
    """A running job, and when (in monotonic seconds) each clock of it was completed."""

    job: RunningJob
    network: Network
    completed_at: dict[int, float] = field(default_factory=dict)
    _seen: int = 0

    def listen(self, seconds: float = 0.5) -> None:
        """For a moment."""
        self.job.heard += self.job.client.poll(seconds)
        now = time.monotonic()
        for said in self.job.heard[self._seen :]:
            if isinstance(said, Progressed):
                self.completed_at.setdefault(said.clock, now)
        self._seen = len(self.job.heard)

    def meanwhile(self, work: Callable[[], object]) -> None:
        """Listen until ``work`` is done, so that clocks are timed when they are reported."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work)
            while not done.done():
                self.listen(0.01)
            done.result()

    def reach(self, clock: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.job.clock < clock:
            self.listen()
            if time.monotonic() > until:
                raise AssertionError(f"clock {clock} did not come within {PATIENCE_S} s\n{self.job.logs()}")

    def joined(self, machines: int) -> None:
        """Until so many take part."""
        until = time.monotonic() + PATIENCE_S
        while len({said.machine for said in self.job.heard if isinstance(said, JoinedTraining)}) < machines:
            self.listen()
            if time.monotonic() > until:
                raise AssertionError(f"{machines} machines did not join within {PATIENCE_S} s")

    def reach_stage(self, stage: Stage) -> None:
        """Until a transition into it is complete, if it is not there."""
        until = time.monotonic() + PATIENCE_S
        while [said.stage for said in self.job.heard if isinstance(said, StageChanged)][-1:] != [stage]:
            self.listen()
            if time.monotonic() > until:
                raise AssertionError(f"{stage} was not reached within {PATIENCE_S} s\n{self.job.logs()}")

    def clock_seconds(self, first: int, last: int) -> list[float]:
        """What clocks ``first`` to ``last`` took. A clock not reported by itself shares with the next."""
        known = sorted(clock for clock in self.completed_at if first - 1 <= clock <= last)
        steps = pairwise(known)
        return [
            (self.completed_at[after] - self.completed_at[before]) / (after - before)
            for before, after in steps
            for _ in range(after - before)
        ]

    def next_clocks(self, settle: int, measure: int) -> list[float]:
        """Let ``settle`` clocks pass, and say what the next ``measure`` take."""
        first = self.job.clock + settle
        self.reach(first + measure)
        return self.clock_seconds(first + 1, first + measure)


@contextmanager
def spread_job(setup: Setup, machines: Sequence[str], core_s: float, mbit_per_s: float) -> Iterator[Watched]:
    """The job on ``machines`` (those named r... are reliable), when all of them take part.

    A clock takes ``core_s`` core-seconds, and exchanges as much whatever the number of shards; links carry
    ``mbit_per_s`` each way.
    """
    why = unavailable()
    if why is not None:
        sys.exit(why)
    application = "tests.agileml.processes.spread:Spread"
    model = {**MODEL, "touched": TOUCHED // setup.shards}
    job = TrainingJob(application, model, setup, core_s, TIMING, network=True)
    with tempfile.TemporaryDirectory() as folder, Network(mbit_per_s, MACHINES) as network:
        source = write_numbered(setup.shards, Path(folder))
        running = RunningJob(Path(folder), job, source=source, where=network.add)
        try:
            watched = Watched(running, network)
            running.start(*machines)
            watched.joined(len(machines))
            yield watched
        finally:
            running.client.close()
            running.host.kill_all()


def median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds)
