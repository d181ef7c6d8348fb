"""Queues in processes of their own: machines change hands, quotas hold, bills are right, and whoever runs the
queue may be killed.

``pytest --campaign tests/scenarios/test_queue.py`` kills it at twenty moments.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from agileml.node.programs.local_host import ProgramHost
from pricing_data.model.units import format_instant
from spotctl.control import entries as e
from spotctl.queue.lifecycle.journal import QueueFolder, QueueRecord
from spotctl.records.run import Run, RunStore
from tests.scenarios.support.command import PROGRAM, STEPS, result
from tests.scenarios.support.market import START, write_prices
from tests.scenarios.support.product import ROOT, SPOTCTL
from tests.spotctl.queue.build import entries_of, most_at_once, owed

pytestmark = [pytest.mark.process, pytest.mark.campaign]

PATIENCE_S: Final = 120.0
EXAMPLE: Final = ROOT / "examples" / "nightly_batch.yaml"
SPEED: Final = 900
MOMENTS: Final = 20
_JOB: Final = """\
name: {name}
engine: command
workdir: program
run: python process.py
work: {{steps: 40, takes: 45m, on: c4.xlarge}}
checkpoint: {{every: 10m, restart: 30s}}
resources: {{spot: {{instance_types: [c4.xlarge]}}}}
scaling: {{sigma: 30s}}
local: {{boot: 30s, lease: 10d}}
envs: {{PAUSE: "{pause}"}}
output: kept-{name}
"""


class QueueProduct:
    """A queue of command jobs whose results show whether each step was computed from the right state."""

    def __init__(self, folder: Path, temporary: Path, jobs: int, head: str, pause: float) -> None:
        write_prices(folder / "prices.csv")
        (folder / "program").mkdir()
        (folder / "program" / "process.py").write_text(PROGRAM)
        for name in self.names(jobs + 1):
            (folder / f"{name}.yaml").write_text(_JOB.format(name=name, pause=pause))
        listed = "".join(f"  - job: {name}.yaml\n" for name in self.names(jobs))
        (folder / "queue.yaml").write_text(f"{head}\njobs:\n{listed}")
        self.folder = folder
        self.home = folder / "home"
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SPOTCTL_HOME": str(self.home),
            "TMPDIR": str(temporary),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def names(count: int) -> list[str]:
        return [f"j{number}" for number in range(count)]

    # ---- commands ---------------------------------------------------------------------------

    def run(self) -> None:
        """Start ``spotctl queue run``; the second time it goes on with what the first has left."""
        options = ["--yes", "--json", "--speed", str(SPEED), "--rules", "aws-2016"]
        options += ["--trace", str(self.folder / "prices.csv"), "--trace-start", format_instant(START)]
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("ab") as chatter:
            self._process = subprocess.Popen(
                [*SPOTCTL, "queue", "run", str(self.folder / "queue.yaml"), *options],
                env=self._environment,
                stdout=out,
                stderr=chatter,
            )

    def spotctl(self, *arguments: str) -> str:
        """Another command beside it, as from another terminal; what it says."""
        done = subprocess.run(
            [*SPOTCTL, *arguments], env=self._environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> bool:
        """Whether it still ran."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        return self._process.wait(PATIENCE_S) == -signal.SIGKILL

    def end(self) -> dict[str, Any]:
        """The final object, once the queue is over."""
        assert self._process is not None
        code = self._process.wait(PATIENCE_S)
        said = (self.folder / "stdout").read_text().splitlines()
        final: dict[str, Any] = json.loads(said[-1]) if said else {}
        assert final.get("exit_code") == code, (self.folder / "stderr").read_text()
        return final

    # ---- what is known of it ------------------------------------------------------------------

    @property
    def record(self) -> QueueRecord:
        newest = QueueFolder("queue", self.home).newest_run()
        return QueueRecord() if newest is None else newest.read_record()

    def runs(self) -> Mapping[str, Run]:
        return {run.name: run for run in RunStore(self.home).list_runs()}

    def entries(self) -> Mapping[str, tuple[e.Entry, ...]]:
        return entries_of(self.runs())

    def wait(self, wanted: Callable[[], bool]) -> None:
        """Or until it has ended."""
        until = time.monotonic() + PATIENCE_S
        assert self._process is not None
        while not wanted() and self._process.poll() is None:
            assert time.monotonic() < until, (self.folder / "stderr").read_text()
            time.sleep(0.05)

    def joined(self) -> int:
        """Machines that took part, of all jobs."""
        return sum(
            isinstance(entry, e.MachineJoined) for entries in self.entries().values() for entry in entries
        )

    def check(self, final: dict[str, Any], quota: int, done: int) -> None:
        """``done`` jobs were done, and rightly; nothing is left; no quota was crossed; every dollar is
        billed.
        """
        ledgers = self.entries()
        assert most_at_once(ledgers)["c4.xlarge"] <= quota
        total = Decimal(0)
        for job in final["jobs"]:
            if job["run"] is not None:
                total += Decimal(job["cost"]["total"])
                assert Decimal(job["cost"]["total"]) == owed(ledgers[job["job"]], self.folder / "prices.csv")
        assert Decimal(final["cost"]["total"]) == total
        right = [job for job in final["jobs"] if job["state"] == "done"]
        assert len(right) == done
        for job in right:
            assert (job["exit_code"], job["clocks"]) == (0, STEPS)
            assert (Path(job["model"]) / "state").read_bytes() == result()
        assert len(RunStore(self.home).list_runs()) == len(self.runs()), "a job was begun twice"
        for run in self.runs().values():
            assert ProgramHost(run.training_folder).alive_machines() == []

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        for run in self.runs().values():
            if run.machines_folder.is_dir():
                ProgramHost(run.training_folder).kill_all()


@contextmanager
def queued(folder: Path, jobs: int, head: str, pause: float = 0.1) -> Iterator[QueueProduct]:
    """``pause``: real seconds that a step takes; there are forty."""
    temporary = Path(tempfile.mkdtemp(prefix="s-"))
    made = QueueProduct(folder, temporary, jobs, head, pause)
    try:
        yield made
    finally:
        made.clean_up()
        shutil.rmtree(temporary, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(MOMENTS if metafunc.config.getoption("--campaign") else 1))


TWO: Final = "name: queue\npolicy: las\nround: 20m\nquotas: {c4.xlarge: 1}"


def test_a_queue_that_is_killed_at_any_moment_goes_on(seed: int, tmp_path: Path) -> None:
    """Two jobs, one machine: it changes hands, or the queue dies while it does."""
    chance = random.Random(seed)
    with queued(tmp_path, 2, TWO) as queue:
        queue.run()
        entries = chance.randrange(0, 120)
        queue.wait(lambda: sum(map(len, queue.entries().values())) >= entries)
        if queue.kill():
            queue.run()
        queue.check(queue.end(), quota=1, done=2)


def test_jobs_come_and_go_while_a_queue_runs(tmp_path: Path) -> None:
    """Added while it runs, a job is run; removed, it is ended and accounted for; SIGTERM ends all of them."""
    file = str(tmp_path / "queue.yaml")
    with queued(tmp_path, 2, TWO.replace("c4.xlarge: 1", "c4.xlarge: 2"), pause=5.0) as queue:
        queue.run()
        queue.wait(lambda: queue.joined() >= 2)
        queue.spotctl("queue", "add", file, str(tmp_path / "j2.yaml"), "--deadline", "40h", "--best-effort")
        queue.spotctl("queue", "rm", file, "j0")
        queue.wait(lambda: "j0" in queue.record.left and "j2" in queue.record.entered)
        listed = {job["job"]: job for job in json.loads(queue.spotctl("queue", "ls", file, "--json"))["jobs"]}
        assert (listed["j0"]["state"], listed["j0"]["exit_code"]) == ("cancelled", 7)
        assert listed["j2"]["run"] is not None
        queue.wait(lambda: any(isinstance(entry, e.MachineJoined) for entry in queue.entries().get("j2", ())))
        queue.signal(signal.SIGTERM)
        final = queue.end()
        ends = {job["job"]: (job["state"], job["removed"]) for job in final["jobs"]}
        assert ends == {"j0": ("cancelled", True), "j1": ("cancelled", False), "j2": ("cancelled", False)}
        assert final["exit_code"] == 7
        queue.check(final, quota=2, done=0)


def test_the_example_runs_end_to_end(tmp_path: Path) -> None:
    """AgileML and command jobs under a budget and deadlines, for real, as the example says."""
    home = tmp_path / "home"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # as in an active venv
        "PYTHONPATH": str(ROOT),
        "SPOTCTL_HOME": str(home),
    }
    arguments = ("queue", "run", str(EXAMPLE), "--yes", "--json")
    ran = subprocess.run(
        [*SPOTCTL, *arguments], env=environment, capture_output=True, text=True, timeout=3 * PATIENCE_S
    )
    assert ran.returncode == 0, ran.stderr
    final = json.loads(ran.stdout.splitlines()[-1])
    assert {job["job"]: (job["state"], job["promised"]) for job in final["jobs"]} == {
        "ratings": ("done", False),
        "classes": ("done", True),
        "topics": ("done", False),
        "regression": ("done", True),
    }
    assert {job["engine"] for job in final["jobs"]} == {"agileml", "command"}
    assert final["instances_left"] == 0
    assert Decimal(final["cost"]["total"]) == sum(Decimal(job["cost"]["total"]) for job in final["jobs"])
    assert Decimal(final["cost"]["total"]) <= Decimal(final["budget"])
    most = most_at_once(entries_of({run.name: run for run in RunStore(home).list_runs()}))
    assert all(most[kind] <= quota for kind, quota in final["quotas"].items())
