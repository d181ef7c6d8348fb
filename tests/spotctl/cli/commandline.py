"""The command run in this process, and the job that most tests of it run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from spotctl.cli.app import app

JOB = """\
app: agileml.apps.mf:MatrixFactorization
data: ratings.csv
stop: {clocks: 24}
resources:
  reliable: {instance_type: m4.xlarge}
  spot: {instance_types: [c4.xlarge], max_instances: 4, max_per_allocation: 2}
local: {core_seconds_per_clock: 2880, lease: 10d}
"""
TRACE_START = "2016-07-01"
"""Of the bundled market, after a month of history: without it a replay starts as the clock says."""
FINAL_KEYS = {
    *("job", "state", "exit_code", "work_done", "objective", "wall_seconds", "sim_seconds", "cost"),
    *("savings_fraction", "evictions", "failures", "clocks_redone", "stage_transitions", "instances_left"),
    "ledger",
}


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch answered, and the home that makes other verbs look at its run."""

    result: Result
    home: Path

    @property
    def final(self) -> dict[str, Any]:
        final: dict[str, Any] = json.loads(self.result.stdout.splitlines()[-1])
        return final


def spotctl(*arguments: str, home: Path | None = None) -> Result:
    """Run the command in this process, with its runs in ``home`` or where the environment says."""
    environment = {} if home is None else {"SPOTCTL_HOME": str(home)}
    return CliRunner().invoke(app, arguments, prog_name="spotctl", env=environment)


def write_job(folder: Path) -> None:
    """The job file ``nightly.yaml`` and its training data."""
    (folder / "nightly.yaml").write_text(JOB)
    (folder / "ratings.csv").write_text("1,1,3.0\n")
