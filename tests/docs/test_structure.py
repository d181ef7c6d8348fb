"""The code base stays one that a newcomer finds the way in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import structure
from tests.named import names

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 16
BENCHMARKS = frozenset(
    [
        "advise",
        "backtest",
        "beta",
        "cli",
        "data",
        "deadline",
        "decisions",
        "elasticity",
        "fetch",
        "history",
        "kept",
        "memory",
        "mf",
        "plane",
        "policies",
        "prices",
        "safe_to_kill",
        "ssp",
        "stages",
        "strategies",
    ]
)
REPRODUCTIONS = frozenset({"calibration", "deadline", "gavel", "gpus", "proteus", "tierml"})
SAME_EVENT_IN_TWO_LAYERS = frozenset(
    {
        *("CheckpointFailed", "Checkpointed", "EvictionNoticed", "EvictionWarned", "MachineGivenUp"),
        *("MachineJoined", "Progressed", "RolledBack", "SafeToKill", "TrainingFailed"),
    }
)
"""ARCHITECTURE.md lists them and says why."""


@pytest.fixture(scope="module")
def modules() -> list[structure.Module]:
    return structure.read_modules(ROOT)


def test_folders_are_small(modules: list[structure.Module]) -> None:
    everything = [*modules, *structure.read_modules(ROOT, ("tests",))]
    large = {name: n for name, n in structure.modules_by_folder(everything).items() if n > MOST_MODULES}
    assert large == {}


def test_every_folder_has_a_page_that_names_modules_that_exist(modules: list[structure.Module]) -> None:
    for page in (module for module in modules if module.is_page):
        folder = Path(page.name).parent
        assert page.docstring, f"{folder} says nothing about itself"
        for name in structure.modules_named_in(page.docstring):
            assert (ROOT / folder / name).exists(), f"{page.name} names {name}"


def test_no_class_name_has_two_meanings(modules: list[structure.Module]) -> None:
    shared = structure.shared_class_names(modules)
    assert shared.keys() <= SAME_EVENT_IN_TWO_LAYERS
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert all(f"`{name}`" in text for name in shared)


def test_modules_import_each_other_in_no_circle(modules: list[structure.Module]) -> None:
    assert structure.circles(structure.import_graph(modules)) == []


def test_nobody_learns_a_jobs_kind_from_what_it_lacks(modules: list[structure.Module]) -> None:
    assert structure.kinds_by_absence(modules) == []


DATES_OF_CACHES = {
    *(f"spotctl/records/{name}.py" for name in ("run_history", "shared_inputs", "trace_cache")),
    "spotctl/prices/market_table_build.py",
}
"""A cached result is believed while its file has the date that it had."""


def test_no_fact_about_a_run_is_the_date_of_a_file(modules: list[structure.Module]) -> None:
    dating = {module.name for module in modules if "st_mtime" in module.text}
    assert {name for name in dating if name.startswith("spotctl/")} == DATES_OF_CACHES


def test_names_and_docstrings_say_what_is_done(modules: list[structure.Module]) -> None:
    one_word, functions = structure.one_word_functions(modules)
    assert len(one_word) <= 0.2 * functions
    openings, strings = structure.bad_openings(modules)
    assert len(openings) <= 0.01 * strings


def test_every_benchmark_and_reproduction_can_be_run_by_its_name() -> None:
    """A module that moves must not vanish from the list."""
    assert set(names("bench")) == BENCHMARKS
    assert set(names("papers")) == REPRODUCTIONS


def test_users_run_the_versions_that_are_tested() -> None:
    run, dev = (
        dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("run.txt", "dev.txt")
    )
    assert run
    assert {name: (version, dev.get(name)) for name, version in run.items() if dev.get(name) != version} == {}
