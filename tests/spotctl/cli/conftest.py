"""A home of its own for each test of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.cli.commandline import TRACE_START, write_job


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own place for runs, and a job file in the current folder."""
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("SPOTCTL_TRACE_START", TRACE_START)
    return tmp_path / "home"
