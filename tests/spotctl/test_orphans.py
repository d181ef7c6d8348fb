"""Machines without a job are found and ended; machines with one are left alone."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spotctl.runs import Run, Runs
from tests.spotctl.cli.test_app import Launched, launched, spotctl

pytestmark = pytest.mark.process

__all__ = ["launched"]
StartMachine = Callable[[Run, str], subprocess.Popen[bytes]]


@pytest.fixture
def start_machine() -> Iterator[StartMachine]:
    """Starts a process that holds a machine's lock, in a session of its own, as an agent does."""
    started: list[subprocess.Popen[bytes]] = []

    def start(run: Run, name: str) -> subprocess.Popen[bytes]:
        place = run.machines / name
        place.mkdir(parents=True)
        with (place / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
            started.append(subprocess.Popen(sleeps, start_new_session=True, pass_fds=(lock.fileno(),)))
        (place / "group").write_text(str(started[-1].pid))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def gc(home: Path, *arguments: str) -> list[str]:
    result = spotctl("gc", "--json", *arguments, home=home)
    assert result.exit_code == 0
    return [row["machine"] for row in json.loads(result.stdout)["machines"]]


def test_machines_of_an_ended_run_are_found_and_ended(
    launched: Launched, start_machine: StartMachine
) -> None:
    (run,) = Runs(launched.home).all()
    assert gc(launched.home) == []
    left = start_machine(run, "s1-0")
    assert gc(launched.home, "--dry-run") == ["s1-0"]
    assert left.poll() is None, "a dry run ends nothing"
    assert gc(launched.home) == ["s1-0"]
    assert left.wait() == -9
    assert gc(launched.home) == []


def test_machines_of_a_job_that_runs_are_left_alone(launched: Launched, start_machine: StartMachine) -> None:
    runs = Runs(launched.home)
    (run,) = runs.all()
    working = start_machine(run, "s1-1")
    with runs.lock(run.name):
        assert gc(launched.home) == []
    assert working.poll() is None
