"""What a job file's training becomes as a job of AgileML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import Seconds
from spotctl.config import JobSpec, Local, ModelCheckpoints, Training
from spotctl.jobfile import load_job
from spotctl.worlds.engines import job_of

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart.yaml"
TRAINING = Training(
    staleness=0, partitions=2, shards=8, link_mbit_s=80, measured_stages=True, input_bytes=1_000_000
)


def described() -> JobSpec:
    return replace(load_job(QUICKSTART), training=TRAINING, local=Local())


def test_memory_and_measured_stages_are_told_to_the_job() -> None:
    job = job_of(described(), core_seconds_per_clock=60.0, speed=10.0)
    assert (job.setup.automatic, job.input_bytes) == (True, 1_000_000)


def test_a_throttled_machine_sends_as_much_faster_as_it_computes() -> None:
    """So that a clock's parts keep their proportions, whatever the speed."""
    job = job_of(described(), core_seconds_per_clock=60.0, speed=10.0)
    assert job.core_seconds_per_clock == pytest.approx(6.0)
    assert job.setup.link_bytes_per_s == pytest.approx(10 * 80e6 / 8)


def test_one_that_runs_free_sends_what_was_said() -> None:
    free = replace(described(), local=Local(throttle=False))
    job = job_of(free, core_seconds_per_clock=60.0, speed=10.0)
    assert job.core_seconds_per_clock == 0.0
    assert job.setup.link_bytes_per_s == pytest.approx(80e6 / 8)


def test_by_default_stages_go_by_the_ratio_and_all_input_is_kept() -> None:
    job = job_of(replace(described(), training=Training(0, 2, 8)), core_seconds_per_clock=60.0, speed=1.0)
    assert (job.setup.automatic, job.input_bytes) == (False, None)


def test_checkpoints_are_kept_below_the_jobs_name_and_as_often_as_the_markets_time_says() -> None:
    by_time = ModelCheckpoints("s3://bucket/states/", seconds=Seconds(600.0))
    job = job_of(replace(described(), checkpoint=by_time), core_seconds_per_clock=60.0, speed=10.0)
    assert job.setup.checkpoints == f"s3://bucket/states/{described().name}"
    assert (job.setup.checkpoint_clocks, job.timing.checkpoint_s) == (0, 60.0)
    by_clocks = ModelCheckpoints("states", clocks=20)
    job = job_of(replace(described(), checkpoint=by_clocks), core_seconds_per_clock=60.0, speed=10.0)
    assert (job.setup.checkpoint_clocks, job.timing.checkpoint_s) == (20, 0.0)
