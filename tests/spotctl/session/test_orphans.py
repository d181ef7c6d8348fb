"""Machines without a job are found and ended; machines with one are left alone."""

from __future__ import annotations

import errno
import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from agileml.node.hosts.local import LocalHost
from spotctl.engines.agileml_model import SimulatedTraining
from spotctl.records.run import Run, RunStore
from spotctl.worlds.local import end_training
from tests.spotctl.build import terms
from tests.spotctl.cli.commandline import Launched, spotctl
from tests.spotctl.records.test_run import begun

pytestmark = pytest.mark.process

StartMachine = Callable[[Run, str], subprocess.Popen[bytes]]


@pytest.fixture
def start_machine() -> Iterator[StartMachine]:
    """Starts a process that holds a machine's lock, in a session of its own, as an agent does."""
    started: list[subprocess.Popen[bytes]] = []

    def start(run: Run, name: str) -> subprocess.Popen[bytes]:
        place = run.machines_folder / name
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
    (run,) = RunStore(launched.home).list_runs()
    assert gc(launched.home) == []
    left = start_machine(run, "s1-0")
    assert gc(launched.home, "--dry-run") == ["s1-0"]
    assert left.poll() is None, "a dry run ends nothing"
    assert gc(launched.home) == ["s1-0"]
    assert left.wait() == -9
    assert gc(launched.home) == []


def test_machines_of_a_job_that_runs_are_left_alone(launched: Launched, start_machine: StartMachine) -> None:
    runs = RunStore(launched.home)
    (run,) = runs.list_runs()
    working = start_machine(run, "s1-1")
    with runs.lock_job(run.name):
        assert gc(launched.home) == []
    assert working.poll() is None


def test_a_record_that_cannot_be_read_hides_no_other_job_and_keeps_no_machine(
    launched: Launched, start_machine: StartMachine
) -> None:
    """Whichever way it is damaged: not to be opened, or not to be read."""
    (whole,) = RunStore(launched.home).list_runs()
    for name, content in (("torn", b"no ledger"), ("cut", whole.ledger_path.read_bytes()[:8192])):
        folder = launched.home / "jobs" / name / "20260101T000000Z"
        folder.mkdir(parents=True)
        (folder / "ledger.db").write_bytes(content)
    left = start_machine(Run(folder), "r1")

    shown = spotctl("status", "--json", home=launched.home)
    assert shown.exit_code == 1
    assert [run["job"] for run in json.loads(shown.stdout)["runs"]] == [whole.name]
    assert spotctl("status", whole.name, home=launched.home).exit_code == 0
    for command in (("status",), ("down", "--all")):
        said = spotctl(*command, home=launched.home)
        assert said.exit_code == 1
        assert "torn: " in said.stderr
        assert "cut: " in said.stderr
        assert "spotctl gc" in said.stderr

    ended = spotctl("gc", "--json", home=launched.home)
    assert [row["machine"] for row in json.loads(ended.stdout)["machines"]] == ["r1"]
    assert ended.exit_code == 1
    assert "its machines have ended, its bill has not" in ended.stderr
    assert left.wait() == -9


@pytest.mark.parametrize("command", [("down", "nightly"), ("down", "--all"), ("gc",)], ids=" ".join)
def test_no_machine_stays_where_a_run_cannot_be_gone_on_with(
    tmp_path: Path, start_machine: StartMachine, command: Sequence[str]
) -> None:
    """As when its trace or its input is gone: here its record does not say what was launched."""
    run = begun(RunStore(tmp_path), "nightly")
    left = start_machine(run, "r1-1")
    ended = spotctl(*command, home=tmp_path)
    assert ended.exit_code == 1
    assert "its machines have ended, its bill has not" in ended.stderr
    assert "does not say what was launched" in ended.stderr
    assert left.wait() == -9
    assert run.fold_state().ending.closed is None, "what it cost is still to be said"


def test_one_machine_that_cannot_be_ended_keeps_no_other(tmp_path: Path, start_machine: StartMachine) -> None:
    class Stubborn(LocalHost):
        def kill(self, machine: str) -> None:
            if machine == "s1-1":
                raise TimeoutError("processes of s1-1 survived")
            super().kill(machine)

    run = Run(tmp_path / "job" / "run")
    left = [start_machine(run, name) for name in ("s1-1", "s1-2")]
    with pytest.raises(TimeoutError, match="s1-1"):
        Stubborn(run.training_folder).kill_all()
    assert left[1].wait() == -9
    assert left[0].poll() is None


def test_no_machine_stays_where_a_training_cannot_be_closed(
    tmp_path: Path, start_machine: StartMachine
) -> None:
    class OnAFullDisk(SimulatedTraining):
        def close(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    run = Run(tmp_path / "job" / "run")
    left = start_machine(run, "s1-0")
    with pytest.raises(OSError, match="No space left"):
        end_training(OnAFullDisk(terms()), LocalHost(run.training_folder))
    assert left.wait() == -9
