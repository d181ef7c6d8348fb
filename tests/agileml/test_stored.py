"""Checkpoints where they are kept: whole or not at all, on a disk and behind a URL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agileml.events import Setup
from agileml.hosts.stored import (
    CheckpointError,
    Manifest,
    drop_before,
    newest,
    read_partition,
    seal,
    with_places,
    write_partition,
)
from agileml.partition import Shape

VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)
SETUP = Setup(partitions=1, shards=2, clocks=9)
SHAPE = Shape(3, 2)


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "kept") if request.param == "disk" else f"memory:///{tmp_path.name}"


def checkpoint(place: str, clock: int, attempt: int) -> str:
    folder = f"{place}/run/{clock:010}-{attempt}"
    write_partition(folder, 0, VALUES + clock)
    seal(folder, Manifest(clock, 1, 2, 3, 2))
    return folder


def test_what_was_written_is_read_again_under_the_same_name(place: str) -> None:
    folder = checkpoint(place, 4, 1)
    whole = newest(place)
    assert whole is not None
    assert (whole.folder, whole.manifest.clock) == (folder, 4)
    assert np.array_equal(read_partition(whole.folder, 0), VALUES + 4)
    assert newest(folder) == whole


def test_what_has_no_manifest_counts_for_nothing(place: str) -> None:
    write_partition(f"{place}/run/0000000008-2", 0, VALUES)
    assert newest(place) is None
    checkpoint(place, 4, 1)
    whole = newest(place)
    assert whole is not None
    assert whole.manifest.clock == 4


def test_older_ones_are_dropped_and_nothing_else(place: str) -> None:
    older = checkpoint(place, 2, 1)
    write_partition(f"{place}/run/0000000003-2", 0, VALUES)
    folder = checkpoint(place, 4, 3)
    other = f"{place}/another/0000000001-1"
    write_partition(other, 0, VALUES)
    drop_before(folder, 3)
    assert newest(older) is None
    assert np.array_equal(read_partition(other, 0), VALUES)
    with pytest.raises(CheckpointError, match="0000000003-2"):
        read_partition(f"{place}/run/0000000003-2", 0)
    assert np.array_equal(read_partition(folder, 0), VALUES + 4)


def test_a_torn_file_is_not_believed(tmp_path: Path) -> None:
    folder = checkpoint(str(tmp_path), 4, 1)
    file = Path(folder) / "partition-00000.npz"
    content = bytearray(file.read_bytes())
    content[content.index((VALUES + 4).tobytes())] ^= 255
    file.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="partition 0 of"):
        read_partition(folder, 0)


def test_a_job_starts_after_the_checkpoint_and_writes_below_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = checkpoint(str(tmp_path), 4, 1)
    wanted = replace(SETUP, checkpoints=str(tmp_path), checkpoint_clocks=2)
    setup = with_places(wanted, str(tmp_path), SHAPE, timed=False)
    assert (setup.start, setup.resume) == (4, folder)
    assert Path(setup.checkpoints).parent == tmp_path
    assert setup.checkpoints != with_places(wanted, "", SHAPE, timed=False).checkpoints


@pytest.mark.parametrize(
    ("changes", "shape", "why"),
    [
        ({"partitions": 2}, SHAPE, "this job is"),
        ({"shards": 3}, SHAPE, "this job is"),
        ({}, Shape(4, 2), "this job is"),
        ({"clocks": 4}, SHAPE, "set more clocks"),
    ],
)
def test_another_jobs_checkpoint_is_refused(
    changes: dict[str, Any], shape: Shape, why: str, tmp_path: Path
) -> None:
    checkpoint(str(tmp_path), 4, 1)
    with pytest.raises(CheckpointError, match=why):
        with_places(replace(SETUP, **changes), str(tmp_path), shape, timed=False)


def test_what_cannot_be_kept_or_found_is_said_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        with_places(SETUP, str(tmp_path), SHAPE, timed=False)
    with pytest.raises(CheckpointError, match="but when"):
        with_places(replace(SETUP, checkpoints=str(tmp_path)), "", SHAPE, timed=False)
    with pytest.raises(CheckpointError, match="no place"):
        with_places(SETUP, "", SHAPE, timed=True)
    with pytest.raises(CheckpointError, match="cannot be kept"):
        with_places(replace(SETUP, checkpoints=str(tmp_path / "file")), "", SHAPE, timed=True)
