"""Applications that are files: what may be in them, and which of their contents a job runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from agileml.api import ApplicationError, load_application
from agileml.job import JobFolder, TrainingJob
from agileml.job_bundle import JobBundle
from agileml.protocol.events import Setup

PROGRAM = """
from __future__ import annotations
from dataclasses import dataclass
from agileml.apps.mf import MatrixFactorization

@dataclass(frozen=True)
class Mine(MatrixFactorization):
    weight: float = 1.0
"""


def ratings(folder: Path) -> Path:
    file = folder / "ratings.csv"
    file.write_text("user,item,value\n1,1,3.0\n2,1,4.0\n")
    return file


def test_an_applications_file_may_have_dataclasses_whose_annotations_are_texts(tmp_path: Path) -> None:
    mine = tmp_path / "random.py"  # which hides no module of that name
    mine.write_text(PROGRAM)
    assert vars(load_application(f"{mine}:Mine", {"weight": 2.0}))["weight"] == 2.0
    assert importlib.import_module("random").__name__ == "random"


def test_a_job_runs_what_its_applications_file_was_when_it_began(tmp_path: Path) -> None:
    """People edit it meanwhile; a machine that comes later must not compute something else."""
    mine = tmp_path / "mine.py"
    mine.write_text(PROGRAM)
    job = TrainingJob(f"{mine}:Mine", {"weight": 2.0}, Setup(1, 2, 3))
    folder = JobFolder.prepare(tmp_path / "job", job, ratings(tmp_path))
    mine.write_text("raise RuntimeError\n")
    kept = folder.read_job()
    assert vars(kept.make_application())["weight"] == 2.0
    assert kept.application == f"{mine}:Mine"
    folder.remove_sockets()


def test_a_machine_elsewhere_gets_it_as_it_was(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(PROGRAM)
    job = TrainingJob(f"{mine}:Mine", {"weight": 2.0}, Setup(1, 2, 3), network=True)
    shipment = JobBundle.from_folder(JobFolder.prepare(tmp_path / "job", job, ratings(tmp_path)))
    mine.unlink()
    there = shipment.unpack(tmp_path / "there").read_job()
    assert Path(there.program).parent == tmp_path / "there"
    assert vars(there.make_application())["weight"] == 2.0


def test_arguments_and_numbers_that_no_job_can_have_are_said_before_the_input_is_cut(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(PROGRAM)
    nowhere = tmp_path / "nowhere.csv"
    odd = TrainingJob(f"{mine}:Mine", {"rank": np.int64(4)}, Setup(1, 2, 3))
    with pytest.raises(ApplicationError, match=r"cannot have the arguments .*int64.* as JSON"):
        JobFolder.prepare(tmp_path / "job", odd, nowhere)
    with pytest.raises(ValueError, match="clocks"):
        JobFolder.prepare(tmp_path / "job", TrainingJob(f"{mine}:Mine", {}, Setup(1, 2, 0)), nowhere)
