"""What a job file's training becomes as a job of AgileML."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from agileml.data.model_files import partition_file
from agileml.job import JobFolder
from agileml.node.programs.checkpoint_store import CheckpointStore
from agileml.node.programs.job_folder import ProgramFolder
from pricing_data.model.units import Seconds
from spotctl.engines.registry import EngineAdapter, adapt_engine, job_of
from spotctl.engines.scoring import Scoring
from spotctl.errors import JobError
from spotctl.job.checks import check_job
from spotctl.job.file import load_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.job.spec import JobSpec, LocalSpec, ModelCheckpoints, TrainingSpec
from spotctl.records.run import Run
from spotctl.report.final import Unscored
from spotctl.timesource import wall_clock
from tests.spotctl.build import terms
from tests.spotctl.cli.story import state_after

EXAMPLES = Path(__file__).parents[3] / "examples"
QUICKSTART, COMMAND = EXAMPLES / "quickstart.yaml", EXAMPLES / "command_numpy.yaml"
TRAINING = TrainingSpec(
    staleness=0, partitions=2, shards=8, link_mbit_s=80, measured_stages=True, input_bytes=1_000_000
)


def described() -> JobSpec:
    return replace(load_job(QUICKSTART), training=TRAINING, local=LocalSpec())


def test_memory_and_measured_stages_are_told_to_the_job() -> None:
    job = job_of(described(), core_seconds_per_clock=60.0, speed=10.0)
    assert (job.setup.automatic, job.input_bytes) == (True, 1_000_000)


def test_a_throttled_machine_sends_as_much_faster_as_it_computes() -> None:
    """So that a clock's parts keep their proportions, whatever the speed."""
    job = job_of(described(), core_seconds_per_clock=60.0, speed=10.0)
    assert job.core_seconds_per_clock == pytest.approx(6.0)
    assert job.setup.link_bytes_per_s == pytest.approx(10 * 80e6 / 8)


def test_one_that_runs_free_sends_what_was_said() -> None:
    free = replace(described(), local=LocalSpec(throttle=False))
    job = job_of(free, core_seconds_per_clock=60.0, speed=10.0)
    assert job.core_seconds_per_clock == 0.0
    assert job.setup.link_bytes_per_s == pytest.approx(80e6 / 8)


def test_by_default_stages_go_by_the_ratio_and_all_input_is_kept() -> None:
    job = job_of(replace(described(), training=TrainingSpec(0, 2, 8)), core_seconds_per_clock=60.0, speed=1.0)
    assert (job.setup.automatic, job.input_bytes) == (False, None)


def test_checkpoints_are_kept_below_the_jobs_name_and_as_often_as_the_markets_time_says() -> None:
    by_time = ModelCheckpoints("s3://bucket/states/", seconds=Seconds(600.0))
    job = job_of(replace(described(), checkpoint=by_time), core_seconds_per_clock=60.0, speed=10.0)
    assert job.setup.checkpoints == f"s3://bucket/states/{described().name}"
    assert (job.setup.checkpoint_clocks, job.timing.checkpoint_s) == (0, 60.0)
    by_clocks = ModelCheckpoints("states", clocks=20)
    job = job_of(replace(described(), checkpoint=by_clocks), core_seconds_per_clock=60.0, speed=10.0)
    assert (job.setup.checkpoint_clocks, job.timing.checkpoint_s) == (20, 0.0)


def wrote(file: Path, at_s: float, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (at_s, at_s))


def run_of(folder: Path, spec: JobSpec) -> EngineAdapter:
    return adapt_engine(
        Settings.from_options(spec, LaunchOptions()), replace(terms(), engine=spec.engine), Run(folder)
    )


def test_an_elastic_training_is_over_since_its_controller_saw_the_last_part_of_its_model_saved(
    tmp_path: Path,
) -> None:
    engine, folder = run_of(tmp_path, described()), JobFolder(tmp_path / "training")
    folder.path.mkdir()
    JobFolder.set_up(folder.path, job_of(described(), core_seconds_per_clock=60.0, speed=10.0), None)
    assert engine.finished_at() is None
    folder.record_finish(2000.0)
    wrote(folder.model_folder / partition_file(1), at_s=3000.0)
    assert engine.finished_at() is None, "the other part of two is missing"
    wrote(folder.model_folder / partition_file(0), at_s=1000.0)
    assert engine.finished_at() == 2000.0
    folder.record_finish(2500.0)
    assert engine.finished_at() == 2000.0, "a controller that was started again saw it later"


def test_a_command_is_over_since_its_program_ended_with_status_0(tmp_path: Path) -> None:
    engine = run_of(tmp_path, load_job(COMMAND))
    engine.prepare()
    folder = ProgramFolder(tmp_path / "training")
    folder.remove_sockets()
    store = CheckpointStore(folder.read_description().store)
    assert engine.finished_at() is None
    before = wall_clock()
    store.record_end(None)
    ended = engine.finished_at()
    assert ended is not None
    assert before <= ended <= wall_clock()


def test_a_model_whose_input_is_gone_by_then_is_not_scored_and_the_run_ends_as_it_ended(
    tmp_path: Path,
) -> None:
    engine, folder = run_of(tmp_path, described()), JobFolder(tmp_path / "training")
    folder.path.mkdir()
    JobFolder.set_up(folder.path, job_of(described(), core_seconds_per_clock=60.0, speed=10.0), None)
    trained = structs.replace(
        state_after(52), ending=structs.replace(state_after(52).ending, model="models/model.npz")
    )
    assert (
        engine.plan_scoring(structs.replace(trained, ending=structs.replace(trained.ending, model=None)))
        is None
    )
    scoring = engine.plan_scoring(trained)
    assert isinstance(scoring, Scoring)
    score = scoring.score_model(60.0, lambda: False)
    assert isinstance(score, Unscored)
    assert "holds no cut input" in score.why


def test_what_fails_in_the_applications_code_is_not_called_the_datas_fault(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from agileml.apps.mf import MatrixFactorization\n"
        "class Mine(MatrixFactorization):\n"
        "    def survey(self, table, shards):\n"
        "        raise ValueError('no idea')\n"
    )
    spec = replace(described(), app=f"{tmp_path}/mine.py:Mine", output=str(tmp_path / "model"))
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(JobError, match=r"^app: .*survey failed: ValueError: no idea \(.*mine.py, line 4\)$"):
        run_of(run, spec).prepare()
    with pytest.raises(JobError, match=r"^app: .*survey failed"):
        check_job(Settings.from_options(spec, LaunchOptions()), terms())
