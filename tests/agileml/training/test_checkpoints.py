"""Checkpoints of real jobs: what a reliable machine's death costs, and how a job is resumed elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agileml.data.checkpoint_store import newest_checkpoint
from agileml.protocol.commands import Checkpointed, CheckpointFailed, Failed, RolledBack
from agileml.protocol.events import MachineLost, Stage
from tests.agileml.processes.real_jobs import QUICK, RunningJob, running_job

pytestmark = pytest.mark.process


def reach_checkpoint(job: RunningJob, clock: int) -> None:
    if max(job.checkpoints, default=0) < clock:
        job.wait(lambda said: isinstance(said, Checkpointed) and said.clock >= clock)


def test_a_lost_param_server_costs_the_clocks_since_the_checkpoint(tmp_path: Path) -> None:
    with running_job(tmp_path, clock_s=0.1, checkpoints=str(tmp_path / "kept"), every=3) as job:
        job.train_on("r1", "r2")
        reach_checkpoint(job, 3)
        job.kill("r2")
        lost = job.wait(lambda said: isinstance(said, RolledBack))
        assert isinstance(lost, RolledBack)
        assert lost.lost
        assert lost.to in job.checkpoints
        job.reach(job.clock + 4)
        job.stop()
        job.check_result()
        job.check_nothing_left()


def test_a_lost_backup_is_made_again_and_no_clock_is_redone(tmp_path: Path) -> None:
    with running_job(tmp_path, clock_s=0.1) as job:
        job.train_on("r1", "r2", "t1", "t2", "t3")
        job.reach_stage(Stage.TWO)
        job.reach(2)
        job.kill("r2")
        job.reach(job.clock + 4)  # no clock is far beyond what is backed up, so there are new backups
        job.start("r3")
        job.reach(job.clock + 4)
        job.kill_role("server", "r1")
        job.reach(job.clock + 4)
        job.stop()
        job.check_result()
        job.check_nothing_left()
        assert job.redone == []
        assert job.returned == []


def test_a_job_that_lost_its_controllers_machine_is_resumed_and_ends_as_if_it_had_not(tmp_path: Path) -> None:
    kept, timing = str(tmp_path / "kept"), replace(QUICK, lease_s=10.0)
    with running_job(tmp_path / "a", clocks=24, clock_s=0.1, checkpoints=kept, every=2, timing=timing) as job:
        job.start("r1", "t1", "t2")
        reach_checkpoint(job, 4)
        job.kill("r1")
        failed = job.wait(lambda said: isinstance(said, Failed))
        assert isinstance(failed, Failed)
        job.check_nothing_left()  # the others end by lease
    whole = newest_checkpoint(kept)
    assert whole is not None
    assert failed.checkpoint == whole.folder
    with running_job(tmp_path / "b", clocks=24, clock_s=0.0, resume=failed.checkpoint) as again:
        assert again.setup.start == whole.manifest.clock >= 4
        again.start("r9", "t9")
        assert again.finish().clock == 24
        again.check_result()
        again.check_nothing_left()


def test_training_goes_on_where_checkpoints_cannot_be_written(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    with running_job(tmp_path, clock_s=0.1, checkpoints=str(place), every=2) as job:
        job.start("r1")
        job.reach(1)
        run = next(place.iterdir())
        run.rename(tmp_path / "elsewhere")
        run.write_text("a file where the folder was")
        failed = job.wait(lambda said: isinstance(said, CheckpointFailed))
        assert isinstance(failed, CheckpointFailed)
        assert str(run) in failed.why
        run.unlink()
        reach_checkpoint(job, failed.clock + 1)
        job.stop()
        job.check_result()


def test_a_checkpoint_that_cannot_be_read_fails_the_job_and_says_why(tmp_path: Path) -> None:
    with running_job(tmp_path, clock_s=0.1, checkpoints=str(tmp_path / "kept"), every=2) as job:
        job.train_on("r1", "r2")
        reach_checkpoint(job, 2)
        whole = newest_checkpoint(str(tmp_path / "kept"))
        assert whole is not None
        for run in (tmp_path / "kept").iterdir():
            run.rename(tmp_path / "elsewhere")
        job.host.kill("r2")
        job.client.send_events(MachineLost("r2"))
        failed = job.wait(lambda said: isinstance(said, Failed))
        assert isinstance(failed, Failed)
        assert "partition" in failed.why
        assert "FileNotFoundError" in failed.why
        job.check_nothing_left()
