"""What docs/command-jobs.md shows can be launched; the variables it lists are those a program is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agileml.node.programs.machine_disk import MachineDisk
from spotctl.job.file import load_job, parse_job

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "command-jobs.md").read_text(encoding="utf-8")


def test_the_job_file_shown_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    spec = parse_job(block, "train.yaml", tmp_path)
    assert spec.command is not None
    assert (spec.command.run, spec.command.secrets) == ("python train.py", ("HF_TOKEN",))


def test_the_variables_are_those_of_the_table() -> None:
    told = set(re.findall(r"`(SPOTCTL_\w+)`", TEXT))
    of_the_job = {"SPOTCTL_ATTEMPT", "SPOTCTL_JOB", "SPOTCTL_RUN", "SPOTCTL_CPUS"}
    assert told == set(MachineDisk(ROOT).environment_variables(None)) | of_the_job


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("command_*.yaml")), ids=lambda p: p.name)
def test_the_examples_are_job_files(example: Path) -> None:
    spec = load_job(example)
    assert spec.command is not None
    assert example.name in TEXT
