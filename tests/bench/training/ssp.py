"""Stale reads against stragglers: the time to the same objective with s = 0 (BSP), 1 and 3.

Four real workers, two shards each, logistic regression on scikit-learn's digits. A shard's clock takes a
seeded delay, injected by the application itself: half of the runs an exponential one, so that in every clock
somebody else is slow; half of them a constant one, where less is to be won. Delays are sleeps, so that four
workers do not measure two cores. Repeats are interleaved; medians; the time counts from the first checkpoint.

The objective that workers report is no measure here: with s > 0 each has seen its own updates and not yet
those of others. So it is computed from the consistent states that the job checkpoints.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
from sklearn.datasets import load_digits

from agileml.apps.mlr import LogisticRegression
from agileml.data.checkpoint_store import read_partition
from agileml.data.sharding import cut_input
from agileml.data.shards import ShardReader
from agileml.job import Timing, TrainingJob
from agileml.node.arrays import Matrix
from agileml.node.checkpoint_store import CheckpointError
from agileml.protocol.commands import Checkpointed
from agileml.protocol.events import Setup
from tests.agileml.processes.real_jobs import serial
from tests.bench.support.measured_job import MeasuredJob

SEED: Final = 1
REPEATS: Final = 5
STALENESS: Final = (0, 1, 3)
JITTERS: Final = (1.0, 0.0)
WORKERS: Final = ("r1", "r2", "r3", "r4")
SHARDS: Final = 2 * len(WORKERS)
CLOCKS: Final = 45
"""What s = 0 takes to the objective."""
EVERY: Final = 3
"""Clocks between two checkpoints."""
MEAN_S: Final = 0.04
PATIENCE_S: Final = 120.0


def main() -> None:
    """Print seconds and clocks to the objective, and their ratio to s = 0 in the same repeats."""
    print(f"seed {SEED}; {len(WORKERS)} workers, medians of {REPEATS} interleaved repeats")
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "digits.npz"
        x, label = load_digits(return_X_y=True)
        np.savez(source, label=label, x=x)
        target = _objective_of_bsp(Path(place) / "target", source)
        print(f"objective to reach: {target:.6f}, which s = 0 does in {CLOCKS} clocks")
        for jitter in JITTERS:
            seconds: dict[int, list[float]] = {s: [] for s in STALENESS}
            clocks: dict[int, list[int]] = {s: [] for s in STALENESS}
            for repeat in range(REPEATS):
                for s in STALENESS[repeat % 3 :] + STALENESS[: repeat % 3]:
                    folder = Path(place) / f"{jitter} {s} {repeat}"
                    took, clock = _run(folder, source, s, jitter, repeat, target)
                    seconds[s].append(took)
                    clocks[s].append(clock)
            _show(jitter, seconds, clocks)


def _show(jitter: float, seconds: dict[int, list[float]], clocks: dict[int, list[int]]) -> None:
    print("\nexponential delays" if jitter else "\nconstant delays")
    for s in STALENESS:
        ratios = [mine / bsp for mine, bsp in zip(seconds[s], seconds[0], strict=True)]
        print(
            f"  s = {s}: {statistics.median(seconds[s]):6.2f} s, {statistics.median(clocks[s]):4.0f} clocks, "
            f"{statistics.median(ratios):5.2f} x s = 0 (from {min(ratios):.2f} to {max(ratios):.2f})"
        )


def _job(staleness: int, place: str = "", **delays: float) -> TrainingJob:
    setup = Setup(
        partitions=1,
        shards=SHARDS,
        clocks=20 * CLOCKS,
        staleness=staleness,
        checkpoints=place,
        checkpoint_clocks=EVERY if place else 0,
    )
    arguments = {"regularization": 1.0, "momentum": 0.5, **delays}
    return TrainingJob(
        "tests.bench.support.jittery_app:Jittery", arguments, setup, timing=Timing(repeat_s=0.1)
    )


def _objective_of_bsp(folder: Path, source: Path) -> float:
    """By a plain loop: with s = 0 the model is that one's, bit for bit."""
    app = _job(0, mean_s=0.0).make_application()
    cut_input(app, source, SHARDS, folder)
    return serial(app, ShardReader(folder), SHARDS, CLOCKS + 1)[1][CLOCKS]


def _run(
    folder: Path, source: Path, staleness: int, jitter: float, repeat: int, target: float
) -> tuple[float, int]:
    """Seconds and clocks until the objective is as low as ``target``."""
    delays = {"mean_s": MEAN_S, "jitter": jitter, "delays": SEED + repeat}
    job = MeasuredJob(folder, _job(staleness, str(folder / "kept"), **delays), source)
    app, data = LogisticRegression(1.0), job.folder.open_input()
    shards = [data.read_shard(number) for number in range(SHARDS)]
    began: float | None = None
    try:
        job.start(*WORKERS)
        until = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < until:
            for kept in (said for said in job.listen(0.02) if isinstance(said, Checkpointed)):
                now = time.perf_counter()
                began = now if began is None else began
                model = _model(kept.folder)
                if model is None:
                    continue
                parts = [app.process(shard, model, (0, 0)) for shard in shards]
                reached = sum(part.total for part in parts) / sum(part.count for part in parts)
                if reached <= target:
                    return now - began, kept.clock
        raise AssertionError(f"not reached in {PATIENCE_S} s:\n{job.logs()}")
    finally:
        job.client.close()
        job.host.kill_all()


def _model(folder: str) -> Matrix | None:
    """None where a newer checkpoint has replaced it already."""
    try:
        return read_partition(folder, 0)
    except CheckpointError:
        return None
