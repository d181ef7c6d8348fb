"""A run that is over, for tests that look at one."""

from __future__ import annotations

import pytest

from tests.spotctl.cli.commandline import TRACE_START, Launched, spotctl, write_job


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """One run in the replay world, launched with --json, for tests that only look at it."""
    folder = tmp_path_factory.mktemp("launched")
    write_job(folder)
    job, home = str(folder / "nightly.yaml"), folder / "home"
    start = ("--trace-start", TRACE_START)
    result = spotctl("launch", job, "--world", "replay", "--yes", "--json", *start, home=home)
    return Launched(result, home / "replays")
