"""Scoring a model: is it bounded, and does it end when nobody wants it any more?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agileml.apps.planted import planted_ratings, write_ratings
from spotctl.engines.scoring import INTERRUPTED, Scoring, limit_s
from spotctl.report.final import Score, Unscored
from tests.spotctl.cli.commandline import spotctl
from tests.spotctl.cli.test_terminal import SPOTCTL

ROOT = Path(__file__).parents[3]
SLOW = """
import time
from agileml.apps.mf import MatrixFactorization

class Slow(MatrixFactorization):
    def reference_objectives(self, table):
        yield 0.5
        yield 0.25
        time.sleep(1000)
"""
JOB = """\
app: slow.py:Slow
args: {rank: 2}
data: ratings.csv
stop: {clocks: 3}
resources:
  reliable: {instance_type: m4.xlarge}
  spot: {instance_types: [c4.xlarge], max_instances: 1}
local: {throttle: off}
"""
SECONDS_TO_END = 5.0
SPEED = ("--speed", "600")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Scoring:
    """A model whose trusted solver never converges."""
    folder = tmp_path_factory.mktemp("trained")
    write_job(folder)
    assert spotctl("launch", str(folder / "slow.yaml"), "--yes", *SPEED, home=folder / "home").exit_code == 0
    (training,) = (folder / "home").glob("jobs/slow/*/training")
    return Scoring(training, str(folder / "ratings.csv"))


def write_job(folder: Path, more: str = "score: off\n") -> None:
    (folder / "slow.py").write_text(SLOW)
    (folder / "slow.yaml").write_text(JOB + more)
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), folder / "ratings.csv")


@contextmanager
def alarm(number: int, seconds: float) -> Iterator[None]:
    """This process gets SIGALRM then, and answers it as Python does SIGINT."""
    before = signal.signal(number, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


def test_scoring_takes_a_tenth_of_the_training_within_bounds() -> None:
    assert [limit_s(training) for training in (1.0, 300.0, 36000.0)] == [10.0, 30.0, 60.0]


@pytest.mark.process
def test_a_solver_that_runs_out_of_time_is_told_with_its_sweeps(trained: Scoring) -> None:
    score = trained.score_model(6.0, lambda: False)
    assert isinstance(score, Score)
    assert (score.metric, score.reference, score.reference_name) == ("rmse", 0.25, "ALS")
    assert score.reference_note == "after 2 sweeps: it took more than the 6 s that scoring may take"


@pytest.mark.process
def test_what_is_not_found_in_time_is_not_scored(trained: Scoring) -> None:
    score = trained.score_model(0.0, lambda: False)
    assert score == Unscored("it took more than the 0 s that scoring may take")


@pytest.mark.process
def test_an_interrupt_ends_the_scoring_and_nothing_else(trained: Scoring) -> None:
    began = time.monotonic()
    with alarm(signal.SIGALRM, 0.2):
        score = trained.score_model(60.0, lambda: False)
    # On a fast computer the model's own objective is known by then, and counts.
    assert INTERRUPTED in ((score.reference_note or "") if isinstance(score, Score) else score.why)
    assert trained.score_model(60.0, lambda: True) == Unscored(INTERRUPTED)
    assert time.monotonic() - began < SECONDS_TO_END


@pytest.mark.process
def test_who_scores_ends_with_who_asked(trained: Scoring) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "spotctl.engines.scoring", str(trained.training), trained.data],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    child.stdin.close()
    assert child.wait(timeout=SECONDS_TO_END) == 1
    child.stdout.close()


@pytest.mark.process
@pytest.mark.parametrize(
    "stop",
    [
        lambda process, _: process.send_signal(signal.SIGTERM),
        lambda _, home: spotctl("cancel", "slow", home=home),
    ],
    ids=["TERM", "cancel"],
)
def test_a_run_whose_model_is_being_scored_is_over(
    stop: Callable[[subprocess.Popen[str], Path], object], tmp_path: Path
) -> None:
    """Its bill is told, nobody waits for it, and it ends with its own exit code as soon as it is asked to."""
    write_job(tmp_path, more="")
    home = tmp_path / "home"
    process = subprocess.Popen(
        [sys.executable, "-c", SPOTCTL, "launch", str(tmp_path / "slow.yaml"), "--yes", "--json", *SPEED],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = (json.loads(line) for line in process.stdout)
    ended = next(line for line in lines if line.get("event") == "RunEnded")
    assert (ended["state"], ended["exit_code"], ended["instances_left"]) == ("done", 0, 0)
    assert spotctl("wait", "slow", home=home).exit_code == 0
    (seen,) = json.loads(spotctl("status", "--json", home=home).stdout)["runs"]
    assert seen["state"] == "done"
    assert process.poll() is None, "it is scoring"
    stop(process, home)
    began = time.monotonic()
    final: dict[str, Any] = [*lines][-1]
    assert process.wait(timeout=SECONDS_TO_END) == 0
    assert time.monotonic() - began < SECONDS_TO_END
    process.stdout.close()
    assert final["schema"] == "spotctl.launch/1"
    assert {**ended, "schema": "", "event": ""} == {
        "at": final["ended"],
        **{name: value for name, value in final.items() if name not in ("objective", "not_scored")},
        "schema": "",
        "event": "",
    }
    assert final["not_scored"] == INTERRUPTED or INTERRUPTED in final["objective"]["reference_note"]
    assert spotctl("cancel", "slow", home=home).exit_code == 3
