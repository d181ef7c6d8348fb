"""Where a model goes, and what is said where it cannot go there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest

from agileml.data.model_files import partition_file
from agileml.data.shards import ShardWriter
from agileml.job import JobFolder, TrainingJob
from agileml.model_shape import Shape
from agileml.protocol.events import Setup
from spotctl.errors import UsageError
from spotctl.records.outputs import OutputNotStored, check_output, keep_model, point_latest


def test_a_folder_that_can_be_written_to_is_left_empty(tmp_path: Path) -> None:
    check_output(str(tmp_path / "new" / "models"))
    assert list(tmp_path.iterdir()) == []
    check_output("memory://models")


@pytest.mark.parametrize("output", ["/proc/nowhere", "no-such-protocol://bucket/models"])
def test_one_that_cannot_is_refused_before_anything_starts(output: str) -> None:
    with pytest.raises(UsageError, match=f"^output: {output} cannot be written to: "):
        check_output(output)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    with pytest.raises(UsageError, match="models cannot be written to: File exists"):
        check_output(str(tmp_path / "models"))


def test_a_launch_that_cuts_no_input_waits_for_no_database() -> None:
    """One of a command job, or one that goes on: both libraries take longer to load than the rest."""
    loaded = "[name for name in ('duckdb', 'pandas', 'fsspec') if name in sys.modules]"
    code = f"import sys, spotctl.worlds.local; print({loaded})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def trained(folder: Path, value: float) -> JobFolder:
    """A job's folder with one saved partition of one row."""
    training = JobFolder(folder)
    folder.mkdir()
    setup = Setup(partitions=1, shards=1, clocks=1, staleness=0)
    job = TrainingJob("x:X", {}, setup, input_at=str(folder / "input"), model_at=str(folder / "model"))
    JobFolder.set_up(folder, job, None)
    ShardWriter(folder / "input").finish(Shape(1, 1), {"users": np.array(["anna"])})
    (folder / "model").mkdir()
    np.save(folder / "model" / partition_file(0), np.array([[value]], np.float32))
    return training


def kept_in(file: Path) -> float:
    with np.load(file) as arrays:
        assert arrays["users"].tolist() == ["anna"]
        return float(arrays["model"][0, 0])


def test_models_are_kept_by_run_and_latest_leads_to_the_newest_whole_one(tmp_path: Path) -> None:
    output = tmp_path / "models"
    for run, value in (("r1", 1.0), ("r2", 2.0)):
        kept = keep_model(trained(tmp_path / run, value), str(output), run, tmp_path)
        assert kept == str(output / run / "model.npz")
    assert (kept_in(output / "latest" / "model.npz"), kept_in(output / "r1" / "model.npz")) == (2.0, 1.0)
    broken = trained(tmp_path / "r3", 3.0)
    (tmp_path / "r3" / "model" / partition_file(0)).unlink()
    with pytest.raises(OutputNotStored):
        keep_model(broken, str(output), "r3", tmp_path)
    assert kept_in(output / "latest" / "model.npz") == 2.0, "the last good one stays"


def test_what_a_killed_process_left_behind_does_not_keep_latest_from_being_a_link(tmp_path: Path) -> None:
    (tmp_path / f"latest.{os.getpid()}").symlink_to("r0")
    point_latest(str(tmp_path), "r1")
    assert [(path.name, path.readlink().name) for path in tmp_path.iterdir()] == [("latest", "r1")]


def test_behind_a_url_latest_is_a_file_with_the_run_s_name(tmp_path: Path) -> None:
    output = f"memory://{tmp_path.name}"
    keep_model(trained(tmp_path / "r1", 1.0), output, "r1", tmp_path)
    memory = fsspec.filesystem("memory")
    assert memory.cat_file(f"/{tmp_path.name}/latest") == b"r1"
    assert memory.exists(f"/{tmp_path.name}/r1/model.npz")


def test_a_folder_called_latest_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    with pytest.raises(UsageError, match="latest is a folder, not a link"):
        check_output(str(tmp_path))


def test_where_only_the_link_to_the_newest_model_fails_the_model_is_where_it_belongs(tmp_path: Path) -> None:
    output = tmp_path / "models"
    (output / "latest" / "in the way").mkdir(parents=True)
    with pytest.raises(
        OutputNotStored, match=r"its model is in .*r1/model.npz, but .*latest still leads to an earlier"
    ):
        keep_model(trained(tmp_path / "one", 1.0), str(output), "r1", tmp_path / "instead")
    assert (output / "r1" / "model.npz").exists()
    assert not (tmp_path / "instead").exists()
    assert sorted(path.name for path in output.iterdir()) == ["latest", "r1"], "and no half-made link"
