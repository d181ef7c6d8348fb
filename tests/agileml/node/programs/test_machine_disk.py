"""Tests which of a job's files get to its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.node.programs.machine_disk import MachineDisk, ProgressFile
from agileml.node.programs.messages import ProgramDescription, Reached


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


def test_progress_is_read_on_after_the_program_began_its_file_anew(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    file.write_text('{"step": 100}\n{"step": 200}\n')
    progress = ProgressFile(file)
    file.write_text('{"step": 3}\n')
    assert progress.read_latest() == Reached(3)
    assert progress.read_latest() is None


@pytest.mark.parametrize(
    "line",
    [f'{{"step": {10**30}}}', f'{{"step": 1, "objective": {10**400}}}'],
    ids=["step", "objective"],
)
def test_numbers_too_large_for_a_message_are_reported_and_not_read(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = ProgressFile(tmp_path / "progress.jsonl")
    (tmp_path / "progress.jsonl").write_text(f"{line}\n")
    assert progress.read_latest() is None
    assert 'expected lines like {"step": 120}' in capsys.readouterr().err
