"""What docs/applications.md shows, runs; so do the example of each application."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agileml.api import Application

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "applications.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


def run(*command: str, folder: Path, home: Path) -> str:
    environment = {**os.environ, "SPOTCTL_HOME": str(home), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def final(said: str) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(said.splitlines()[-1])
    return last


def test_the_tutorial_ends_with_the_model_it_says(tmp_path: Path) -> None:
    for language, block in BLOCKS:
        if language in ("python", "yaml"):
            name = block.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(block)
    (commands,) = [block for language, block in BLOCKS if language == "sh"]
    for line in commands.splitlines():
        program, *arguments = shlex.split(line)
        module = ("-m", "spotctl") if program == "spotctl" else ()
        run(*module, *arguments, folder=tmp_path, home=tmp_path / "home")
    printed = run("use_it.py", folder=tmp_path, home=tmp_path / "home").strip()
    assert f"prints `{printed}`" in TEXT
    with (
        np.load(tmp_path / "model" / "latest" / "model.npz") as kept,
        np.load(tmp_path / "points.npz") as points,
    ):
        trusted = np.linalg.lstsq(points["x"], points["y"], rcond=None)[0]
        assert kept["model"][:, 0] == pytest.approx(trusted, abs=1e-3)


def test_the_table_names_every_part_of_an_application() -> None:
    parts = {name for name in vars(Application) if not name.startswith("_")} | {"columns"}
    listed = set(re.findall(r"^\| `(\w+)` \|", TEXT.partition("## 2.")[0], re.MULTILINE))
    assert listed == parts


@pytest.mark.parametrize(
    ("example", "why", "metric"),
    [("mlr", "the objective has settled", "log loss"), ("lda", "its training time is up", "perplexity")],
)
def test_the_examples_end_as_they_say(example: str, why: str, metric: str, tmp_path: Path) -> None:
    """By convergence, and by time."""
    job = (ROOT / "examples" / f"{example}.yaml").read_text()
    job = job.replace("data: ", f"data: {ROOT}/examples/").replace("../models", str(tmp_path / "models"))
    (tmp_path / f"{example}.yaml").write_text(job)
    said = run(
        "-m", "spotctl", "launch", f"{example}.yaml", "--yes", "--json", folder=tmp_path, home=tmp_path
    )
    ended = final(said)
    assert (ended["why"], ended["state"], ended["instances_left"]) == (why, "done", 0)
    assert ended["objective"]["metric"] == metric
    assert Path(ended["model"]).is_file()


def test_a_metric_that_the_application_does_not_report_is_refused(tmp_path: Path) -> None:
    job = (ROOT / "examples" / "mlr.yaml").read_text()
    job = job.replace("data: ", f"data: {ROOT}/examples/").replace("metric: log loss", "metric: rmse")
    (tmp_path / "mlr.yaml").write_text(job)
    ran = subprocess.run(
        [sys.executable, "-m", "spotctl", "launch", "mlr.yaml", "--yes"],
        cwd=tmp_path,
        env={**os.environ, "SPOTCTL_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ran.returncode == 2
    assert (
        "stop.converged.metric: found 'rmse', but agileml.apps.mlr:LogisticRegression reports 'log loss'"
        in (" ".join(ran.stderr.split()))
    )
