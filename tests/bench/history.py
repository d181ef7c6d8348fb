"""How long ``status`` and ``report`` take with a thousand runs that ended.

One run is replayed for each of a few sizes, and its record copied until there are enough. The first status
folds all of them; the others read the sums that it kept. Aim on one quiet core: 0.3 s.
"""

from __future__ import annotations

import compileall
import datetime as dt
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNS = 1000
TIMES = 7
JOB = """\
app: agileml.apps.mf:MatrixFactorization
data: ratings.csv
stop: {{clocks: {clocks}}}
resources:
  reliable: {{instance_type: m4.xlarge}}
  spot: {{instance_types: [c4.xlarge], max_instances: 4, max_per_allocation: 2}}
local: {{core_seconds_per_clock: 2880}}
"""
CLOCKS = (12, 24, 60)
VERBS = (("status",), ("status", "--json"), ("report",), ("report", "--by", "day"), ("report", "--json"))


def main() -> None:
    """Print the wall and processor time of the first ``status``, and medians of those after it."""
    for package in ("spotctl", "bidbrain", "agileml", "pricing_data"):
        compileall.compile_dir(ROOT / package, quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        home = _thousand(Path(folder))
        wall_s, processor_s = _took(("status",), home)
        print(
            f"{RUNS} runs, the first status folds all: {wall_s:.1f} s, {processor_s:.1f} s of processor time"
        )
        _took(("--version",), home)
        for verb in VERBS:
            took = [_took(verb, home) for _ in range(TIMES)]
            wall, processor = (statistics.median(times) for times in zip(*took, strict=True))
            print(f"spotctl {' '.join(verb):20} {wall * 1000:5.0f} ms, {processor * 1000:5.0f} ms of CPU")


def _thousand(folder: Path) -> Path:
    """A home with so many runs that ended, of ten jobs, one a day."""
    (folder / "ratings.csv").write_text("1,1,3.0\n")
    for clocks in CLOCKS:
        job = folder / f"of{clocks}.yaml"
        job.write_text(JOB.format(clocks=clocks))
        _took(("launch", str(job), "--world", "replay", "--yes"), folder / "made")
    ledgers = sorted((folder / "made" / "replays" / "jobs").glob("*/*/ledger.db"))
    for number in range(RUNS):
        began = dt.datetime(2026, 1, 1, 2, tzinfo=dt.UTC) + dt.timedelta(days=number)
        run = folder / "home" / "jobs" / f"job-{number % 10}" / began.strftime("%Y%m%dT%H%M%SZ")
        run.mkdir(parents=True)
        shutil.copy2(ledgers[number % len(ledgers)], run / "ledger.db")
    return folder / "home"


def _took(arguments: tuple[str, ...], home: Path) -> tuple[float, float]:
    """Wall and processor time of one command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(home)}
    before, began = os.times(), time.perf_counter()
    program = "from spotctl.cli.app import main; main()"
    subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, check=True, capture_output=True
    )
    after = os.times()
    processor_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, processor_s
