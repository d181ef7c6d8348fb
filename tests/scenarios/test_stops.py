"""A launch that is told to end, at any moment of its life: is it gone within seconds, and is nothing left?

``pytest --campaign tests/scenarios/test_stops.py`` takes forty seeded moments, and more data; else three.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from spotctl.records.run import RunStore
from tests.scenarios.support.product import ROOT
from tests.spotctl.cli.commandline import spotctl

pytestmark = pytest.mark.process

SEED: Final = 26
SECONDS_TO_END: Final = 5.0
PATIENCE_S: Final = 60.0
JOB: Final = """\
app: agileml.apps.mf:MatrixFactorization
args: {rank: 8}
data: ratings.csv
stop: {clocks: 12}
resources:
  reliable: {instance_type: c4.xlarge}
  spot: {instance_types: [c4.xlarge], max_instances: 2}
local: {throttle: off}
"""
PHASES: Final[Mapping[str, str]] = {
    "starting": "",
    "cutting its input": "JobStarted",
    "starting machines": "Acquire",
    "training": "Progressed",
    "closing": "TrainingFinished",
    "scoring": "RunEnded",
}
"""What it does, and the event with which that begins."""
OVER: Final = (0, 7, 130)
"""Done, cancelled or taken down, interrupted before anything was started."""
OPTIONS: Final = ("--yes", "--json", "--speed", "600")
BEFORE_IT_LISTENS: Final = (-signal.SIGINT, -signal.SIGTERM)
Stop = Callable[["Launched"], object]
STOPS: Final[Mapping[str, Stop]] = {
    "INT": lambda launched: launched.process.send_signal(signal.SIGINT),
    "TERM": lambda launched: launched.process.send_signal(signal.SIGTERM),
    "cancel": lambda launched: launched.ask("cancel"),
    "down": lambda launched: launched.ask("down"),
}
SAMPLE: Final = (("TERM", "cutting its input"), ("cancel", "cutting its input"), ("INT", "closing"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    moments: list[tuple[str, str]] = [*SAMPLE]
    if metafunc.config.getoption("--campaign"):
        phases = [*PHASES, *[phase for phase in PHASES if phase not in ("starting", "closing")]]
        moments = [(stop, phase) for stop in STOPS for phase in phases]
    metafunc.parametrize(("stop", "phase"), moments)


class Launched:
    """A launch in a process of its own, whose temporary files are all below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.home, self.temporary = folder / "home", folder / "t"
        self.temporary.mkdir()
        self._chatter = folder / "chatter"
        with self._chatter.open("w") as chatter:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                [sys.executable, "-m", "spotctl", "launch", str(folder / "stopped.yaml"), *OPTIONS],
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "SPOTCTL_HOME": str(self.home),
                    "TMPDIR": str(self.temporary),
                },
                stdout=subprocess.PIPE,
                stderr=chatter,
                text=True,
            )

    @property
    def said(self) -> str:
        """What it told people, not programs."""
        return self._chatter.read_text()

    def reach(self, event: str) -> None:
        """Until it says ``event``; "" is its beginning."""
        assert self.process.stdout is not None
        for line in self.process.stdout if event else ():
            if json.loads(line).get("event") == event:
                return

    def ask(self, verb: str) -> None:
        """Until there is a run to ask it of, or none any more."""
        by = time.monotonic() + PATIENCE_S
        while (
            spotctl(verb, "stopped", home=self.home).exit_code not in (0, 3) and self.process.poll() is None
        ):
            assert time.monotonic() < by

    def left(self) -> list[str]:
        """The processes that have to do with it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended meanwhile
                if str(self.home) in (process / "cmdline").read_text():
                    found.append((process / "cmdline").read_text())
        return found


@contextmanager
def launched(folder: Path) -> Iterator[Launched]:
    made = Launched(folder)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()
        spotctl("gc", home=made.home)


def busy() -> float:
    """How many times as long as on an idle computer things take, at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def write_job(folder: Path, ratings: int) -> None:
    rng = np.random.default_rng(SEED)
    users, items = rng.integers(ratings // 100, size=ratings), rng.integers(ratings // 300, size=ratings)
    rows = np.column_stack([users, items, rng.normal(size=ratings)])
    np.savetxt(folder / "ratings.csv", rows, ("%d", "%d", "%.3f"), ",", header="user,item,value", comments="")
    (folder / "stopped.yaml").write_text(JOB)


def test_a_launch_that_is_told_to_end_is_gone_within_seconds(
    stop: str, phase: str, tmp_path: Path, campaign: bool
) -> None:
    """The time that a clock takes comes on top for a graceful end: here it is a fraction of a second."""
    write_job(tmp_path, ratings=1_000_000 if campaign else 100_000)
    chance = np.random.default_rng([SEED, [*STOPS].index(stop), [*PHASES].index(phase)])
    delay_s = float(chance.uniform(0.0, 1.0 if campaign else 0.2))
    with launched(tmp_path) as run:
        run.reach(PHASES[phase])
        time.sleep(delay_s)
        STOPS[stop](run)
        began = time.monotonic()
        output, _ = run.process.communicate(timeout=PATIENCE_S)
        took = time.monotonic() - began
        code = run.process.returncode
        told = f"{stop} {delay_s:.3f} s into {phase}: exit {code} after {took:.1f} s; {run.said}"
        print(told)
        assert took < SECONDS_TO_END * busy(), told
        assert code in OVER or (phase == "starting" and code in BEFORE_IT_LISTENS), told
        assert run.left() == [], told
        assert [*run.temporary.iterdir()] == [], told
        runs = RunStore(run.home)
        with runs.lock_job("stopped"):
            assert runs.find_unfinished("stopped") is None, told
        last = json.loads((output.splitlines() or ["{}"])[-1])
        if last.get("schema") == "spotctl.launch/1":  # else it had not begun
            assert last["exit_code"] == code, told
        elif output:
            assert code != 0, told
