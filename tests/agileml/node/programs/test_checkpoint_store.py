"""Whole checkpoints in and out of a store; what is not whole is never used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agileml.node.checkpoint_store import CheckpointError
from agileml.node.programs.checkpoint_folder import Checkpoint, newest_checkpoint
from agileml.node.programs.checkpoint_store import KEPT, CheckpointStore, StoredCheckpoint
from tests.fakes.s3 import s3_bucket


def written(folder: Path, step: int, text: str = "weights") -> Checkpoint:
    path = folder / f"step-{step}"
    (path / "deep").mkdir(parents=True)
    (path / "model").write_text(f"{text} {step}")
    (path / "deep" / "optimizer").write_text("momentum")
    return Checkpoint(step, path)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program").mkdir()
    return tmp_path / "program"


def steps(store: CheckpointStore) -> list[int]:
    return [stored.step for stored in store.list_complete()]


def one(store: CheckpointStore) -> StoredCheckpoint:
    return next(store.list_complete())


def test_what_was_stored_comes_back(place: str, program: Path, tmp_path: Path) -> None:
    CheckpointStore(place).publish(written(program, 120))
    restored = CheckpointStore(place).restore(one(CheckpointStore(place)), tmp_path)
    assert (restored.path.name, (restored.path / "model").read_text()) == ("step-120", "weights 120")
    assert (restored.path / "deep" / "optimizer").read_text() == "momentum"


def test_a_checkpoint_may_be_a_single_file(place: str, program: Path, tmp_path: Path) -> None:
    (program / "step-7").write_bytes(b"\0" * 1000)
    CheckpointStore(place).publish(Checkpoint(7, program / "step-7"))
    restored = CheckpointStore(place).restore(one(CheckpointStore(place)), tmp_path)
    assert restored.path.read_bytes() == b"\0" * 1000


def test_the_newest_two_are_kept(place: str, program: Path) -> None:
    store = CheckpointStore(place)
    for step in (9, 10, 100, 101):
        store.publish(written(program, step))
    assert steps(store) == [101, 100]
    assert len(list(Path(place).iterdir())) == KEPT


def test_data_without_a_manifest_is_not_used_and_goes(place: str, program: Path) -> None:
    store = CheckpointStore(place)
    store.publish(written(program, 1))
    cut_off = Path(place, "000000000000002-abcd", "files")
    cut_off.mkdir(parents=True)
    (cut_off / "model").write_text("half")
    assert steps(store) == [1]
    store.publish(written(program, 3))
    assert not cut_off.exists()


def test_a_manifest_that_was_cut_off_is_none(place: str, program: Path) -> None:
    store = CheckpointStore(place)
    store.publish(written(program, 1))
    store.publish(written(program, 2))
    (manifest,) = Path(place).glob("*2-*/manifest.json")
    for length in range(len(manifest.read_bytes())):
        manifest.write_bytes(manifest.read_bytes()[:length])
        assert steps(store) == [1]


def test_a_checkpoint_that_lacks_a_file_is_not_whole(place: str, program: Path) -> None:
    store = CheckpointStore(place)
    store.publish(written(program, 1))
    store.publish(written(program, 2))
    next(Path(place).glob("*2-*/files/model")).unlink()
    assert steps(store) == [1]


def test_damage_is_noticed_and_nothing_appears(place: str, program: Path, tmp_path: Path) -> None:
    store = CheckpointStore(place)
    store.publish(written(program, 2))
    next(Path(place).glob("*2-*/files/model")).write_text("Weights 2")
    with pytest.raises(CheckpointError, match="step-2 is damaged: model"):
        store.restore(one(store), tmp_path)
    assert not (tmp_path / "step-2").exists()


def test_a_manifest_cannot_name_files_outside_of_its_checkpoint(place: str, program: Path) -> None:
    store = CheckpointStore(place)
    store.publish(written(program, 2))
    (manifest,) = Path(place).glob("*/manifest.json")
    content = json.loads(manifest.read_text())
    content["files"][0]["path"] = "../../../escaped"
    manifest.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="outside of its checkpoint"):
        one(store)


def test_a_store_that_refuses_says_what_it_refused(tmp_path: Path, program: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = CheckpointStore(str(tmp_path / "file" / "below"))
    with pytest.raises(CheckpointError, match="could not be written to: NotADirectoryError"):
        store.check_writable()
    with pytest.raises(CheckpointError, match="could not be given step-1"):
        store.publish(written(program, 1))


def test_a_checkpoint_that_is_gone_is_not_the_stores_fault(place: str, program: Path) -> None:
    with pytest.raises(FileNotFoundError):
        CheckpointStore(place).publish(Checkpoint(5, program / "step-5"))


def test_a_pipe_is_refused_whose_end_would_be_waited_for_for_ever(place: str, program: Path) -> None:
    checkpoint = written(program, 3)
    os.mkfifo(checkpoint.path / "to the monitor")
    with pytest.raises(CheckpointError, match="to the monitor is a pipe, a socket or a device"):
        CheckpointStore(place).publish(checkpoint)
    assert steps(CheckpointStore(place)) == []


def test_only_renamed_checkpoints_are_whole(program: Path) -> None:
    for name in ("step-5.tmp", "writing-9", "step-", "latest"):
        (program / name).mkdir()
    assert newest_checkpoint(program) is None
    found = [written(program, step) for step in (12, 9)]
    assert newest_checkpoint(program) == found[0]


def test_the_end_of_the_work_is_on_record_and_no_checkpoint(place: str, program: Path) -> None:
    store = CheckpointStore(place)
    assert store.read_end() is None
    store.publish(written(program, 1))
    store.record_end(40)
    store.publish(written(program, 2))
    end = CheckpointStore(place).read_end()
    assert end is not None
    assert (end.steps, steps(store)) == (40, [2, 1])
    Path(place, "ended.json").write_text('{"at":')
    assert store.read_end() is None, "it was cut off"


@pytest.fixture
def bucket() -> Iterator[str]:
    """An empty bucket of a real S3 server on this machine."""
    with s3_bucket("checkpoints") as url:
        yield url


def test_a_bucket_is_as_good_as_a_folder(bucket: str, program: Path, tmp_path: Path) -> None:
    store = CheckpointStore(f"{bucket}/job/run")
    store.check_writable()
    for step in (1, 2, 3):
        store.publish(written(program, step))
    assert steps(CheckpointStore(store.location)) == [3, 2]
    restored = store.restore(one(store), tmp_path)
    assert (restored.path / "model").read_text() == "weights 3"
    with pytest.raises(CheckpointError, match=r"s3://elsewhere.*could not be written to"):
        CheckpointStore("s3://elsewhere/x").check_writable()


def test_a_file_beside_the_checkpoints_neither_stops_them_nor_is_removed(place: str, program: Path) -> None:
    Path(place).mkdir()
    (Path(place) / "README").write_text("of the user")
    store = CheckpointStore(place)
    for step in (1, 2, 3):
        store.publish(written(program, step))
    assert steps(store) == [3, 2]
    assert (Path(place) / "README").read_text() == "of the user"
