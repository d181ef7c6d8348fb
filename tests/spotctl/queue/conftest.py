"""A home of its own for each test of a queue, and the records of the queue ``night`` in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.job.choices import WorldKind
from spotctl.queue.lifecycle.journal import QueueFolder, root_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder() -> QueueFolder:
    return QueueFolder("night", root_of(WorldKind.REPLAY))
