"""What may be concluded from the size of an input alone, and which models are too large."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agileml.api import HasLargest, load_application
from agileml.data.tables import Table
from spotctl.errors import JobError, UsageError
from spotctl.job.checks import check_job
from spotctl.job.choices import WorldKind
from spotctl.job.file import load_job
from spotctl.job.model_size import BYTES_PER_VALUE, memory_of_computer, refuse_too_large
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.job.spec import JobSpec
from tests.scenarios.support.product import ROOT
from tests.spotctl.build import terms

EXAMPLES = ("quickstart", "mlr", "lda")


def check(spec: JobSpec) -> None:
    """In the replay world: what the job is, and nothing of this computer."""
    check_job(Settings.from_options(spec, LaunchOptions(world=WorldKind.REPLAY)), terms())


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_largest_model_is_no_smaller_than_the_model(name: str) -> None:
    spec = load_job(ROOT / "examples" / f"{name}.yaml")
    app = load_application(spec.app, spec.args)
    table = Table(spec.data, app.columns)
    words = sum(len(str(row).split()) for batch in table.batches() for v in batch.values() for row in v)
    shape = app.survey(table, spec.training.shards).shape
    assert isinstance(app, HasLargest)
    assert app.largest_model(words) >= shape.rows * shape.columns


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_limit_is_the_models_size_however_it_was_found(name: str) -> None:
    spec = load_job(ROOT / "examples" / f"{name}.yaml")
    app = load_application(spec.app, spec.args)
    shape = app.survey(Table(spec.data, app.columns), spec.training.shards).shape
    mbit = shape.rows * shape.columns * BYTES_PER_VALUE * 8e-6
    for spare, refused in ((1.01, False), (0.99, True)):
        slow = replace(spec, training=replace(spec.training, link_mbit_s=spare * mbit / 120))
        if refused:
            with pytest.raises(UsageError, match="more than the 120 s"):
                check(slow)
        else:
            check(slow)
    check(replace(slow, objective=replace(spec.objective, strategy="on-demand")))


def test_an_input_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    spec = load_job(ROOT / "examples" / "quickstart.yaml")
    (tmp_path / "none.csv").write_text("user,item\n1,2\n")
    with pytest.raises(UsageError, match=r"^data: [^ ]*none\.csv has the columns user, item; expected user"):
        check(replace(spec, data=str(tmp_path / "none.csv")))


def test_an_application_that_is_none_is_the_jobs_fault_and_not_the_datas() -> None:
    spec = load_job(ROOT / "examples" / "quickstart.yaml")
    with pytest.raises(UsageError, match=r"^app: args\.rank of .* found 'eight'"):
        check(replace(spec, args={"rank": "eight"}))


def test_a_model_is_refused_of_which_two_copies_do_not_fit_into_memory() -> None:
    refuse_too_large(500, memory_bytes=1000)
    with pytest.raises(JobError, match=r"^args: the model has .* this computer has"):
        refuse_too_large(501, memory_bytes=1000)
    assert memory_of_computer() > 1 << 28
