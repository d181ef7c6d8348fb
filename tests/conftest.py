"""Fixtures for every package: recorded data, where there is some."""

from __future__ import annotations

import gc
import os
import signal
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

FEW_TESTS_BUT_LONG = (
    *("docs/test_readme.py", "scenarios/test_queue.py", "scenarios/test_kills.py", "ray/test_run.py"),
    *("scenarios/test_ends.py", "training/test_network_namespaces.py", "training/test_local_host.py"),
    *("ray/test_kills.py", "training/test_paper_timings.py", "backtest/test_with_deadline.py"),
)
"""Files that take half a minute or more for a handful of tests: they begin first, in this order."""
SECOND_CHANCES = 5
"""More failures than these are no busy machine's doing: nothing is run again."""

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
    parser.addoption(
        "--alone",
        action="store_true",
        help="with --last-failed: a second run of what failed beside others, allowed to few and only where"
        " real processes were waited for",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The default run draws the same examples everywhere; a campaign draws new ones.

    Signals that whoever began the run ignores (in the background, under nohup) are heard: tests inherit them.
    """
    usual = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, heard)
    settings.register_profile("sample", usual, derandomize=True, database=None)
    settings.register_profile("campaign", usual, derandomize=False)
    settings.load_profile("campaign" if config.getoption("--campaign") else "sample")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the work, order it; refuse a second run that no busy machine explains."""
    if hasattr(config, "workerinput"):  # of pytest-xdist, which hands out files in this order
        take_turns(items)
    if not config.getoption("--alone"):
        return
    plain = [item.nodeid for item in items if not waits(item)]
    if plain:
        raise pytest.UsageError("failed, and wait for no real process: " + ", ".join(plain[:SECOND_CHANCES]))
    if len(items) > SECOND_CHANCES:
        raise pytest.UsageError(f"{len(items)} tests failed: too many to be a busy machine's doing")


def pytest_collection_finish() -> None:
    """All that was imported stays: whoever looks for garbage need not go through it again and again."""
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def waits(item: pytest.Item) -> bool:
    return item.get_closest_marker("process") is not None


def take_turns(items: list[pytest.Item]) -> None:
    """Files that wait for real processes in turn with those that compute, of each kind the largest first.

    So cores seldom idle while a file waits, nor in the end, when the last files are short.
    """
    files = [list(of_file) for _, of_file in groupby(items, key=lambda item: item.path)]
    files.sort(key=lambda of_file: (_first(of_file[0].path), -len(of_file)))
    place: dict[Path, float] = {}
    for waiting in (True, False):
        kind = [of_file[0].path for of_file in files if any(map(waits, of_file)) is waiting]
        place |= {path: number / len(kind) for number, path in enumerate(kind)}
    items.sort(key=lambda item: place[item.path])


def _first(path: Path) -> int:
    """Its place among the long files; all others come after those."""
    places = (place for place, name in enumerate(FEW_TESTS_BUT_LONG) if str(path).endswith(f"/{name}"))
    return next(places, len(FEW_TESTS_BUT_LONG))


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> bool:
    """Whether long campaigns run in full; otherwise each runs a small, seeded sample of itself."""
    return bool(request.config.getoption("--campaign"))
