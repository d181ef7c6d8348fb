"""Shared fixtures and options, the order of test files, and who may run a second time."""

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
"""Files that need half a minute or more for a handful of tests. They run first, in this order."""
SECOND_CHANCES = 5
"""More failures than this have another cause than a busy machine, so none runs again."""

_BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def recorded_data() -> Path:
    """Returns the folder of recorded prices and traces, or skips the test if there is none.

    ``SPOTCTL_DATA`` names it. The repository does not contain it.
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
        help="with --last-failed: refuse a second run of many tests, or of tests that wait for no process",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Has hypothesis draw the same 60 examples in every default run, and 100 new ones in a campaign.

    Restores signals that the parent ignores (in the background, under nohup), as tests inherit them.
    """
    usual = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, heard)
    settings.register_profile("sample", usual, derandomize=True, database=None, max_examples=60)
    settings.register_profile("campaign", usual, derandomize=False)
    settings.load_profile("campaign" if config.getoption("--campaign") else "sample")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Orders files for several processes; refuses a second run if a busy machine cannot be the cause."""
    if hasattr(config, "workerinput"):  # set by pytest-xdist, which distributes files in this order
        take_turns(items)
    if not config.getoption("--alone"):
        return
    plain = [item.nodeid for item in items if not waits(item)]
    if plain:
        raise pytest.UsageError(
            "these failed, and wait for no real process: " + ", ".join(plain[:SECOND_CHANCES])
        )
    if len(items) > SECOND_CHANCES:
        raise pytest.UsageError(f"{len(items)} tests failed: too many for a busy machine to be the cause")


def pytest_collection_finish() -> None:
    """Exempts all imported objects from garbage collection, which would visit them again and again."""
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def waits(item: pytest.Item) -> bool:
    return item.get_closest_marker("process") is not None


def take_turns(items: list[pytest.Item]) -> None:
    """Alternates files that wait for real processes with files that compute, the largest of each kind first.

    Cores seldom idle this way: another file computes while one waits, and the last files are short.
    """
    files = [list(of_file) for _, of_file in groupby(items, key=lambda item: item.path)]
    files.sort(key=lambda of_file: (_first(of_file[0].path), -len(of_file)))
    place: dict[Path, float] = {}
    for waiting in (True, False):
        kind = [of_file[0].path for of_file in files if any(map(waits, of_file)) is waiting]
        place |= {path: number / len(kind) for number, path in enumerate(kind)}
    items.sort(key=lambda item: place[item.path])


def _first(path: Path) -> int:
    """Returns the position among the long files; all other files share the one after them."""
    places = (place for place, name in enumerate(FEW_TESTS_BUT_LONG) if str(path).endswith(f"/{name}"))
    return next(places, len(FEW_TESTS_BUT_LONG))


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> bool:
    """Whether long campaigns run in full; otherwise each runs a small, seeded sample."""
    return bool(request.config.getoption("--campaign"))
