"""Fixtures for every package: recorded data, where there is some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def recorded_data() -> Path:
    """The folder of recorded prices and traces; tests that need it are skipped where there is none.

    ``SPOTCTL_DATA`` names it. It is never part of the repository.
    """
    setting = os.environ.get("SPOTCTL_DATA")
    folder = Path(setting) if setting else _BESIDE_THE_REPOSITORY
    if not folder.is_dir():
        pytest.skip(f"no recorded data at {folder}; set SPOTCTL_DATA to a folder that has it")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", action="store_true", help="run the long campaigns in full, not a sample")


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> bool:
    """Whether long campaigns run in full; otherwise each runs a small, seeded sample of itself."""
    return bool(request.config.getoption("--campaign"))
