"""Checkpoints where they are kept: whole or not at all, on a disk and behind a URL."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from msgspec.structs import replace

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.data.checkpoint_store import (
    Manifest,
    drop_older,
    newest_checkpoint,
    read_partition,
    restart_setup,
    seal_checkpoint,
    with_checkpoint_folders,
    write_partition,
)
from agileml.job import JobFolder, TrainingJob
from agileml.model_shape import Shape
from agileml.node.checkpoint_store import CheckpointError
from agileml.protocol.events import Setup

VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)
SETUP = Setup(partitions=1, shards=2, clocks=9)
SHAPE = Shape(3, 2)


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "kept") if request.param == "disk" else f"memory:///{tmp_path.name}"


def checkpoint(place: str, clock: int, attempt: int) -> str:
    folder = f"{place}/run/{clock:010}-{attempt}"
    write_partition(folder, 0, VALUES + clock)
    seal_checkpoint(folder, Manifest(clock, 1, 2, 3, 2))
    return folder


def test_what_was_written_is_read_again_under_the_same_name(place: str) -> None:
    folder = checkpoint(place, 4, 1)
    whole = newest_checkpoint(place)
    assert whole is not None
    assert (whole.folder, whole.manifest.clock) == (folder, 4)
    assert np.array_equal(read_partition(whole.folder, 0), VALUES + 4)
    assert newest_checkpoint(folder) == whole


def test_what_has_no_manifest_counts_for_nothing(place: str) -> None:
    write_partition(f"{place}/run/0000000008-2", 0, VALUES)
    assert newest_checkpoint(place) is None
    checkpoint(place, 4, 1)
    whole = newest_checkpoint(place)
    assert whole is not None
    assert whole.manifest.clock == 4


def test_older_ones_are_dropped_and_nothing_else(place: str) -> None:
    older = checkpoint(place, 2, 1)
    write_partition(f"{place}/run/0000000003-2", 0, VALUES)
    folder = checkpoint(place, 4, 3)
    other = f"{place}/another/0000000001-1"
    write_partition(other, 0, VALUES)
    drop_older(folder, 3)
    assert newest_checkpoint(older) is None
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


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Writing beyond fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_what_could_not_be_written_whole_takes_no_room(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "0000000004-1"
    with files_no_larger_than(100_000), pytest.raises(OSError, match="File too large"):
        write_partition(str(folder), 0, np.zeros((100_000, 1), np.float32))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["run [v2]", "what*", "why?"])
def test_a_place_is_no_pattern(name: str, tmp_path: Path) -> None:
    folder = checkpoint(str(tmp_path / name), 4, 1)
    whole = newest_checkpoint(str(tmp_path / name))
    assert whole is not None
    assert whole.folder == folder
    of = replace(SETUP, checkpoints=f"memory:///{tmp_path.name}/{name}", checkpoint_clocks=2)
    with pytest.raises(CheckpointError, match=r"cannot be kept at memory.* without \*, \? and \["):
        with_checkpoint_folders(of, "", SHAPE, timed=False)


@pytest.mark.parametrize("place", ["foo://bucket/states", "refusing://states"])
def test_a_place_that_cannot_be_read_is_named_with_the_cause(place: str) -> None:
    """The place has an unknown protocol, or lacks credentials."""
    refusing = type("Refusing", (fsspec.AbstractFileSystem,), {"protocol": "refusing", "info": refuse})
    fsspec.register_implementation("refusing", refusing, clobber=True)
    told = f"{place} could not be (opened|read): (ValueError: Protocol not known|RuntimeError: Unable to)"
    with pytest.raises(CheckpointError, match=told):
        newest_checkpoint(place)
    with pytest.raises(CheckpointError, match=told):
        with_checkpoint_folders(SETUP, place, SHAPE, timed=False)
    with pytest.raises(CheckpointError, match=told):
        restart_setup(replace(SETUP, checkpoints=place))


def refuse(*_: object, **__: object) -> None:
    raise RuntimeError("Unable to locate credentials")


def test_a_job_starts_after_the_checkpoint_and_writes_below_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = checkpoint(str(tmp_path), 4, 1)
    wanted = replace(SETUP, checkpoints=str(tmp_path), checkpoint_clocks=2)
    setup = with_checkpoint_folders(wanted, str(tmp_path), SHAPE, timed=False)
    assert (setup.start, setup.resume) == (4, folder)
    assert Path(setup.checkpoints).parent == tmp_path
    assert setup.checkpoints != with_checkpoint_folders(wanted, "", SHAPE, timed=False).checkpoints


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
        with_checkpoint_folders(replace(SETUP, **changes), str(tmp_path), shape, timed=False)


def test_what_cannot_be_kept_or_found_is_said_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        with_checkpoint_folders(SETUP, str(tmp_path), SHAPE, timed=False)
    with pytest.raises(CheckpointError, match="but when"):
        with_checkpoint_folders(replace(SETUP, checkpoints=str(tmp_path)), "", SHAPE, timed=False)
    with pytest.raises(CheckpointError, match="no place"):
        with_checkpoint_folders(SETUP, "", SHAPE, timed=True)
    with pytest.raises(CheckpointError, match="could not be made: NotADirectoryError"):
        with_checkpoint_folders(replace(SETUP, checkpoints=str(tmp_path / "file")), "", SHAPE, timed=True)


def test_a_job_that_begins_again_goes_on_from_its_own_newest_checkpoint(place: str) -> None:
    """Else from where it began before; each attempt has a folder of its own, beside the others."""
    of = replace(SETUP, checkpoints=place, checkpoint_clocks=2)
    first = with_checkpoint_folders(of, "", SHAPE, timed=False)
    second = restart_setup(first)
    assert (second.start, second.resume) == (0, "")
    folder = f"{second.checkpoints}/0000000004-1"
    write_partition(folder, 0, VALUES)
    seal_checkpoint(folder, Manifest(4, 1, 2, 3, 2))
    third = restart_setup(second)
    assert (third.start, newest_checkpoint(third.resume)) == (4, newest_checkpoint(folder))
    homes = {setup.checkpoints for setup in (first, second, third)}
    assert len(homes) == 3
    assert len({home.rpartition("/")[0] for home in homes}) == 1
    fourth = restart_setup(third)
    assert (fourth.start, fourth.resume) == (third.start, third.resume), "it wrote none of its own"


def test_who_dies_while_a_job_is_begun_again_does_it_again_and_nobody_does_it_twice(tmp_path: Path) -> None:
    source, kept = tmp_path / "ratings.csv", tmp_path / "kept"
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), source)
    of = replace(SETUP, checkpoints=str(kept), checkpoint_clocks=2)
    job = TrainingJob("agileml.apps.mf:MatrixFactorization", {"rank": 2}, of)
    folder = JobFolder.prepare(tmp_path / "job", job, source)
    try:
        first = folder.read_job()
        folder.controller_record.write_text("r1-1")
        folder.model_folder.mkdir()
        folder.controller_folder.rename(folder.path / "controller-1")  # and then it was killed
        folder.restart_from_checkpoint(1)
        second = folder.read_job()
        assert (second.restarts, folder.controller_machine) == (1, None)
        assert second.setup.checkpoints != first.setup.checkpoints
        assert second.input_at == first.input_at
        assert (folder.path / "controller-1" / "machine").read_text() == "r1-1"
        assert (folder.path / "model-1").is_dir()
        assert not folder.model_folder.exists(), (
            "a model that nobody heard of does not say that this training is over"
        )
        folder.restart_from_checkpoint(1)
        assert folder.read_job() == second
    finally:
        folder.remove_sockets()
