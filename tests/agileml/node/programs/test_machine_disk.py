"""Tests which of a job's files get to its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.node.programs.machine_disk import MachineDisk
from agileml.node.programs.messages import ProgramDescription


@pytest.mark.parametrize("home", ["state", "deep/state", "../state"])
def test_records_of_runs_are_not_copied_with_the_files_they_are_beside(home: str, tmp_path: Path) -> None:
    """The disk is among them: a copy of itself into itself would never end."""
    project = tmp_path / "project"
    (project / "jobs").mkdir(parents=True)
    (project / "train.py").write_text("pass")
    (project / "jobs" / "data.csv").write_text("1")
    run = (project / home / "jobs" / "train" / "one").resolve()
    disk = MachineDisk(run / "training" / "disks" / "s1-1")
    disk.path.mkdir(parents=True)
    mounts = {"mounted": str(project)}
    records = str(project / home / "jobs")
    disk.place_files(
        ProgramDescription("train", "one", "", "true", str(project), mounts, (), "store", records)
    )
    for copied in (disk.work, disk.work / "mounted"):
        assert (copied / "train.py").exists()
        assert (copied / "jobs" / "data.csv").exists(), "a folder of the same name is no record"
        assert not (copied / home / "jobs").exists()
