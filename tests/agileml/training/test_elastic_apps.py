"""Applications on machines that come and go: the plain loop's model bit for bit, and ends by other rules."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agileml.apps import planted_classes, planted_topics
from agileml.job import EarlyStop, TrainingJob
from agileml.protocol.events import Setup, Stage
from agileml.protocol.telemetry import ConvergenceCheck, ObjectiveAt
from tests.agileml.processes.real_jobs import QUICK, RunningJob

pytestmark = pytest.mark.process


@contextmanager
def running(path: Path, job: TrainingJob, source: Path | None = None) -> Iterator[RunningJob]:
    made = RunningJob(path / "running", job, source=source)
    try:
        yield made
    finally:
        made.client.close()
        made.host.kill_all()


@pytest.mark.parametrize("name", ["mlr:LogisticRegression", "lda:LatentDirichletAllocation"])
def test_the_model_is_the_same_through_joins_evictions_and_a_death(name: str, tmp_path: Path) -> None:
    """The inputs do not fit into the workers' room, so shards are read again and again as well."""
    source = tmp_path / "in.csv.gz"
    if name.startswith("mlr"):
        planted_classes.main([str(source), "--rows=600", "--features=8"])
    else:
        planted_topics.main([str(source), "--documents=80", "--words=60", "--vocabulary=60"])
    setup = Setup(partitions=3, shards=8, clocks=1000, stage3_above=2.0)
    job = TrainingJob(f"agileml.apps.{name}", {}, setup, 0.2, QUICK, input_bytes=40_000)
    with running(tmp_path, job, source) as run:
        run.start("r1", "t1")
        run.reach(2)
        run.start("t2", "t3")
        run.reach_stage(Stage.THREE)
        run.reach(run.clock + 2)
        run.evict("t1")
        run.reach(run.clock + 2)
        run.kill("t2")
        run.reach(run.clock + 2)
        run.evict("t3")
        run.reach(run.clock + 2)
        run.stop()
        run.check_result()
        run.check_nothing_left()
        assert run.redone


def test_a_job_ends_when_its_objective_has_settled(tmp_path: Path) -> None:
    setup = Setup(partitions=2, shards=4, clocks=1000)
    arguments = {"rank": 4}
    delta = 2e-3
    job = TrainingJob(
        "agileml.apps.mf:MatrixFactorization", arguments, setup, 0.05, QUICK, stop=EarlyStop(delta=delta)
    )
    with running(tmp_path, job) as run:
        run.start("r1", "t1")
        ended = run.finish().clock
        values = [said.value for said in run.heard if isinstance(said, ObjectiveAt)]
        settling = ConvergenceCheck(delta)
        first = next(clock for clock, value in enumerate(values) if settling.has_converged(value))
        assert first <= ended <= first + 4
        run.check_result()
        run.check_nothing_left()


def test_a_job_ends_when_its_time_is_up(tmp_path: Path) -> None:
    setup = Setup(partitions=2, shards=4, clocks=100_000)
    arguments = {"rank": 4}
    job = TrainingJob(
        "agileml.apps.mf:MatrixFactorization", arguments, setup, 0.05, QUICK, stop=EarlyStop(seconds=8.0)
    )
    with running(tmp_path, job) as run:
        run.start("r1")
        run.reach(1)
        began = time.monotonic()
        run.listen(5.0)
        run.kill_role("controller", "r1")
        run.finish()
        assert 6.5 < time.monotonic() - began < 13.0, "counted anew by the next controller it would be more"
        run.check_result()


@pytest.mark.parametrize("wrong", [{"seconds": 0.0}, {"delta": -1.0}, {"delta": float("nan")}])
def test_an_end_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"stops after (seconds|delta) above 0"):
        EarlyStop(**wrong)
