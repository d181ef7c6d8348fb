"""Tests the promises of every store of checkpoints (``agileml/node/checkpoint_store.py``), on disk and S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from agileml.data.checkpoint_store import (
    Manifest,
    newest_checkpoint,
    read_partition,
    seal_checkpoint,
    write_partition,
)
from agileml.node.checkpoint_store import CheckpointError, ManifestStore
from agileml.node.programs.checkpoint_folder import Checkpoint
from agileml.node.programs.checkpoint_store import CheckpointStore
from tests.fakes.s3 import s3_bucket


class Kept(Protocol):
    """A store in use: of steps and, with each, a number that it must bring back."""

    def keep(self, step: int, number: int) -> None: ...

    def begin(self, step: int) -> None:
        """Writes as a writer does that is cut off before the end."""

    def newest(self) -> tuple[int, int] | None: ...


class TrainingStore:
    def __init__(self, place: str, _: Path) -> None:
        self._place = place

    def keep(self, step: int, number: int) -> None:
        self._write(step, number)
        seal_checkpoint(self._folder(step), Manifest(step, 1, 1, 1, 1))

    def begin(self, step: int) -> None:
        self._write(step, -1)

    def newest(self) -> tuple[int, int] | None:
        found = newest_checkpoint(self._place)
        if found is None:
            return None
        return found.manifest.clock, int(read_partition(found.folder, 0)[0, 0])

    def _write(self, step: int, number: int) -> None:
        write_partition(self._folder(step), 0, np.full((1, 1), number, np.float32))

    def _folder(self, step: int) -> str:
        return f"{self._place}/0123abcd/{step:010}-{step + 1}"


class ProgramStore:
    def __init__(self, place: str, disk: Path) -> None:
        self._store = CheckpointStore(place)
        self._raw = ManifestStore(place)
        self._disk = disk

    def keep(self, step: int, number: int) -> None:
        written = self._disk / f"step-{step}"
        written.write_text(str(number))
        self._store.publish(Checkpoint(step, written))

    def begin(self, step: int) -> None:
        half = self._disk / "half"
        half.write_text("-1")
        self._raw.upload(half, f"{step:015}-beef", "file", lambda: None)

    def newest(self) -> tuple[int, int] | None:
        found = next(self._store.list_complete(), None)
        if found is None:
            return None
        restored = self._store.restore(found, self._disk / "restored")
        return restored.step, int(restored.path.read_text())


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "kept")
        return
    with s3_bucket("kept") as url:
        yield f"{url}/{tmp_path.name}"


@pytest.fixture(params=[TrainingStore, ProgramStore])
def kept(request: pytest.FixtureRequest, place: str, tmp_path: Path) -> Kept:
    (tmp_path / "disk" / "restored").mkdir(parents=True)
    made: Kept = request.param(place, tmp_path / "disk")
    return made


def test_nothing_is_there_before_something_was_kept(kept: Kept) -> None:
    assert kept.newest() is None


def test_the_newest_comes_back_in_whichever_order_they_came(kept: Kept) -> None:
    for step in (9, 10, 100):
        kept.keep(step, 7 * step)
    assert kept.newest() == (100, 700)
    kept.keep(99, 1)
    assert kept.newest() == (100, 700)


def test_what_was_cut_off_counts_for_nothing(kept: Kept) -> None:
    kept.begin(5)
    assert kept.newest() is None
    kept.keep(3, 21)
    kept.begin(8)
    assert kept.newest() == (3, 21)


def test_a_manifest_that_was_cut_off_counts_for_nothing(kept: Kept, place: str) -> None:
    kept.keep(3, 21)
    kept.keep(8, 56)
    files = ManifestStore(place).files
    manifests = [name for name in files.find(ManifestStore(place).root) if name.endswith("manifest.json")]
    newest = max(manifests)
    files.pipe_file(newest, files.cat_file(newest)[:-1])
    assert kept.newest() == (3, 21)


def test_files_of_others_are_neither_taken_for_checkpoints_nor_removed_by_readers(
    kept: Kept, place: str
) -> None:
    kept.keep(3, 21)
    store = ManifestStore(place)
    store.make_folder(store.path("notes"))
    store.files.pipe_file(store.path("notes", "manifest.json"), b'{"mine": 1}')
    assert kept.newest() == (3, 21)
    assert store.files.cat_file(store.path("notes", "manifest.json")) == b'{"mine": 1}'


def test_a_store_that_cannot_be_opened_says_so() -> None:
    with pytest.raises(CheckpointError, match="unheard://x could not be opened"):
        ManifestStore("unheard://x")
