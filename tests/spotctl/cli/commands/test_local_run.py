"""A real run in the local world, seen and ended from other terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.node.hosts.local import LocalHost
from tests.spotctl.cli.commandline import spotctl
from tests.spotctl.cli.test_terminal import CTRL_C, SPOTCTL, Terminal

ROOT = Path(__file__).parents[4]
JOB = """\
app: agileml.apps.mf:MatrixFactorization
args: {rank: 2}
data: ratings.csv
stop: {clocks: 100000}
resources:
  reliable: {instance_type: m4.xlarge}
  spot: {instance_types: [c4.xlarge], max_instances: 1}
local: {core_seconds_per_clock: 240}
"""
PIPE_SIZE = 4096
"""Bytes: the least that Linux has."""
Launch = subprocess.Popen[str]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Launch]:
    """A launch that trains: its home is ``tmp_path/home``, its standard output JSON lines.

    They go into a pipe that is soon full, and that nobody reads while it trains.
    """
    (tmp_path / "nightly.yaml").write_text(JOB)
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), tmp_path / "ratings.csv")
    process = subprocess.Popen(
        [sys.executable, "-c", SPOTCTL, "launch", str(tmp_path / "nightly.yaml"), "--yes", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        pipesize=PIPE_SIZE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line).get("event") == "Progressed":
            break
    yield process
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def _ended(process: Launch) -> dict[str, Any]:
    """The final object, once the launch is over."""
    output, _ = process.communicate(timeout=240)
    final: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert process.returncode == final["exit_code"]
    return final


@pytest.mark.process
def test_a_running_job_can_be_seen_kept_single_and_cancelled(running: Launch, tmp_path: Path) -> None:
    home, job = tmp_path / "home", str(tmp_path / "nightly.yaml")
    (seen,) = json.loads(spotctl("status", "--json", home=home).stdout)["runs"]
    assert (seen["state"], seen["exit_code"]) == ("training", None)
    assert "r1" in {allocation["allocation"] for allocation in seen["footprint"]}
    assert "clock " in spotctl("status", "nightly", home=home).stdout

    assert spotctl("launch", job, "--yes", "--if-running", "skip", home=home).exit_code == 3
    assert json.loads(spotctl("gc", "--json", home=home).stdout)["machines"] == []

    asked = spotctl("cancel", "nightly", home=home)
    assert (asked.exit_code, asked.stdout) == (0, "")
    assert spotctl("wait", "nightly", home=home).exit_code == 7
    final = _ended(running)
    assert (final["state"], final["exit_code"], final["instances_left"]) == ("cancelled", 7, 0)
    assert Path(str(final["model"])).is_file()
    assert "it was cancelled" in spotctl("logs", "nightly", home=home).stdout


@pytest.mark.process
def test_ctrl_c_of_an_attached_view_ends_the_view_and_sigterm_ends_the_job(
    running: Launch, tmp_path: Path
) -> None:
    attach = ("launch", "nightly.yaml", "--yes", "--if-running", "attach")
    with Terminal(tmp_path, SPOTCTL, *attach) as terminal:
        # Of the footprint: what happened scrolls on, and a busy machine begins to look late.
        terminal.until("m4.xlarge@us-east-1a").type(CTRL_C)
        assert terminal.end() == 7
        assert "nightly goes on; only this view of it has ended" in terminal.shown
    assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    assert _ended(running)["state"] == "cancelled"


@pytest.mark.process
def test_a_job_that_lost_its_reliable_machine_goes_on_from_its_checkpoint_and_so_does_the_next_launch(
    tmp_path: Path,
) -> None:
    """Which ends at its last clock, and then keeps no checkpoint: the launch after that begins anew."""
    kept = "checkpoint: {store: states, every: 2, resume: true}\n"
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), tmp_path / "ratings.csv")
    home, job = tmp_path / "home", tmp_path / "nightly.yaml"
    job.write_text(JOB + kept)
    with _launched(job, home) as first:
        lost_at = _until(first, "Checkpointed")["clock"]
        seen = json.loads(spotctl("status", "--json", home=home).stdout)["runs"][0]
        assert seen["checkpoint"]["clock"] >= lost_at
        (training,) = home.glob("jobs/nightly/*/training")
        LocalHost(training).kill("r1-1")
        assert _until(first, "TrainingResumed")["clock"] >= lost_at
        _until(first, "Progressed")
        (seen,) = json.loads(spotctl("status", "--json", home=home).stdout)["runs"]
        assert (seen["state"], seen["restarts"], seen["failures"]) == ("training", 1, 1)
        assert "restarted once" in spotctl("status", "nightly", home=home).stdout
        first.send_signal(signal.SIGTERM)
        final = _ended(first)
    assert (final["state"], final["exit_code"], final["instances_left"]) == ("cancelled", 7, 0)
    assert (final["restarts"], final["resumed_from"]) == (1, 0)
    known = final["checkpoint"]["clock"]

    job.write_text(JOB.replace("100000", str(known + 40)) + kept)
    with _launched(job, home) as second:
        resumed = _until(second, "TrainingResumed")
        assert resumed["clock"] >= known  # the last one may not have been told of any more
        final = _ended(second)
    assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, known + 40)
    assert final["resumed_from"] == resumed["clock"]
    assert not list((tmp_path / "states" / "nightly").iterdir())


@contextmanager
def _launched(job: Path, home: Path) -> Iterator[Launch]:
    process = subprocess.Popen(
        [sys.executable, "-c", SPOTCTL, "launch", str(job), "--yes", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def _until(process: Launch, event: str) -> dict[str, Any]:
    """The next line of that kind."""
    assert process.stdout is not None
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line)
        if said.get("event") == event:
            return said
    raise AssertionError(f"it ended without a {event}")


@pytest.mark.process
def test_when_spotctl_was_killed_gc_finds_and_ends_what_it_left(running: Launch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    running.kill()
    running.wait()
    (left,) = json.loads(spotctl("status", "--json", home=home).stdout)["runs"]
    assert left["state"] == "unattended"
    assert "r1-1" in {
        row["machine"] for row in json.loads(spotctl("gc", "--json", home=home).stdout)["machines"]
    }
    (ended,) = json.loads(spotctl("status", "--json", home=home).stdout)["runs"]
    assert (ended["state"], ended["footprint"]) == ("taken down", [])
    assert json.loads(spotctl("gc", "--json", home=home).stdout)["machines"] == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda process, _: process.send_signal(signal.SIGINT), "cancelled"),
        (lambda _, home: spotctl("down", "--all", home=home), "taken down"),
    ],
    ids=["Ctrl-C without a terminal", "down"],
)
def test_ending_a_run_leaves_nothing_behind(
    running: Launch, tmp_path: Path, end: Callable[[Launch, Path], object], state: str
) -> None:
    end(running, tmp_path / "home")
    final = _ended(running)
    assert (final["state"], final["exit_code"], final["instances_left"]) == (state, 7, 0)
    assert json.loads(spotctl("gc", "--json", home=tmp_path / "home").stdout)["machines"] == []


def test_a_model_too_large_to_move_within_the_notice_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    """(20 + 10 + 2) rows of 2 float32 are 2048 bits: at 10 bit/s they take 205 s, and AWS gives 120."""
    (tmp_path / "large.yaml").write_text(JOB + "training: {link_mbit_s: 0.00001}\n")
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), tmp_path / "ratings.csv")
    for verb, options in (("launch", ["--yes"]), ("plan", [])):
        refused = spotctl(verb, str(tmp_path / "large.yaml"), *options, home=tmp_path / "home")
        assert refused.exit_code == 2
        told = " ".join(refused.output.split())
        assert "take 205 s over a link of 1e-05 Mbit/s" in told
        assert "more than the 120 s between a warning and the end of a spot machine" in told
        assert "training.link_mbit_s" in told
    assert json.loads(spotctl("gc", "--json", home=tmp_path / "home").stdout)["machines"] == []
