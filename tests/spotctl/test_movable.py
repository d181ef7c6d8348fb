"""What ``plan`` may conclude from the size of an input alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agileml.app import HasLargest, load_application
from agileml.tables import Table
from spotctl.errors import UsageError
from spotctl.jobfile import load_job
from spotctl.movable import BYTES_PER_VALUE, check_movable
from tests.scenarios.product import ROOT

EXAMPLES = ("quickstart", "mlr", "lda")


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
                check_movable(slow, 120)
        else:
            check_movable(slow, 120)
    check_movable(replace(slow, objective=replace(spec.objective, strategy="on-demand")), 120)


def test_an_input_that_cannot_be_read_is_refused_where_it_has_to_be_read(tmp_path: Path) -> None:
    spec = load_job(ROOT / "examples" / "quickstart.yaml")
    (tmp_path / "none.csv").write_text("user,item\n1,2\n")
    missing = replace(spec, data=str(tmp_path / "none.csv"))
    check_movable(missing, 120)
    with pytest.raises(UsageError, match=r"^data: [^ ]*none\.csv has the columns user, item; expected user"):
        check_movable(replace(missing, training=replace(spec.training, link_mbit_s=1e-9)), 120)


def test_an_application_that_is_none_is_the_jobs_fault_and_not_the_datas() -> None:
    spec = load_job(ROOT / "examples" / "quickstart.yaml")
    with pytest.raises(UsageError, match=r"^app: args\.rank of .* found 'eight'"):
        check_movable(replace(spec, args={"rank": "eight"}), 120)
