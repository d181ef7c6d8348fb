"""Runs that are ended from outside: the model of a graceful end is whole, and nothing is ever left behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.scenarios.support.product import Product, product

pytestmark = pytest.mark.process

GRACEFUL: Final[dict[str, Callable[[Product], object]]] = {
    "SIGTERM": lambda job: job.signal(signal.SIGTERM),
    "Ctrl-C without a terminal": lambda job: job.signal(signal.SIGINT),
    "cancel": lambda job: job.command("cancel", "scenario"),
}
SUDDEN: Final[dict[str, tuple[str, ...]]] = {"down": ("down", "scenario"), "gc": ("gc", "--json")}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Product]:
    """A launch in stage 2 or 3, with work for a minute."""
    with product(tmp_path, clocks=800) as job:
        job.launch()
        job.reach_stage(2)
        yield job


@pytest.mark.parametrize("how", GRACEFUL)
def test_a_graceful_end_saves_the_model(running: Product, how: str) -> None:
    GRACEFUL[how](running)
    final = running.end()
    assert (final["state"], final["exit_code"], final["clocks_redone"]) == ("cancelled", 7, 0)
    assert final["model"] == str(running.model)
    running.check_model(final["clocks"])
    running.check_nothing_left()
    running.check_record(final)


def test_a_model_that_cannot_be_put_where_it_belongs_fails_the_job_and_is_kept(running: Product) -> None:
    """As when the disk is full by then: it costs nobody a machine, and nobody the model."""
    folder = running.output
    folder.write_text("in the way")
    running.signal(signal.SIGTERM)
    final = running.end()
    assert (final["state"], final["exit_code"], final["model"]) == ("failed", 1, None)
    kept = Path(final["ledger"]).with_name("model.npz")
    assert str(folder) in final["why"]
    assert final["why"].endswith(f"it is in {kept}")
    assert kept.is_file()
    running.check_nothing_left()
    running.check_record(final)


def test_down_takes_the_machines_away_now(running: Product) -> None:
    assert running.command("down", "scenario").returncode == 0
    final = running.end()
    assert (final["state"], final["exit_code"], final["model"]) == ("taken down", 7, None)
    running.check_nothing_left()
    running.check_record(final)


@pytest.mark.parametrize("command", SUDDEN)
def test_what_a_killed_spotctl_left_is_taken_away(running: Product, command: str) -> None:
    running.kill_spotctl()
    assert running.host.alive_machines() != []
    seen = ended_by(running, *SUDDEN[command])
    assert (seen["state"], seen["exit_code"]) == ("taken down", 7)


def test_a_run_whose_spotctl_was_killed_can_be_cancelled_with_its_model(running: Product) -> None:
    running.kill_spotctl()
    seen = ended_by(running, "cancel", "scenario")
    assert (seen["state"], seen["exit_code"]) == ("cancelled", 7)
    running.check_model(seen["clock"])


def ended_by(job: Product, *command: str) -> dict[str, Any]:
    """The run as ``status`` shows it after ``command`` ended it."""
    ended = job.command(*command)
    assert ended.returncode == 0, ended.stderr
    job.check_nothing_left()
    seen: dict[str, Any]
    (seen,) = json.loads(job.command("status", "--json").stdout)["runs"]
    job.check_record(seen)
    return seen
