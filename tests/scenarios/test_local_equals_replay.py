"""A decision that differs between two worlds is a bug: the same job, run by real processes and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from msgspec import structs

from agileml.apps.planted import planted_ratings, write_ratings
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.job.choices import WorldKind
from spotctl.job.file import load_job
from spotctl.job.resolve import PriceOptions
from spotctl.job.settings import LaunchOptions
from spotctl.records.run import Run
from spotctl.session.interrupts import Answer
from spotctl.session.launch import FinishedRun, launch
from tests.scenarios.support.market import QUIET, SPIKE, START, ZONES, write_prices
from tests.spotctl.build import changed, redecided

pytestmark = pytest.mark.process

SPEED = 1200.0
JOB = """\
name: both
app: agileml.apps.mf:MatrixFactorization
args: {{rank: 4}}
data: ratings.csv
stop: {{clocks: 60}}
resources:
  reliable: {{instance_type: m4.large}}
  spot: {{instance_types: [c4.xlarge], max_instances: 4, max_per_allocation: 2}}
scaling: {{phi: 1.0, sigma: 60s, lambda: 30s, stage2_above: 1, stage3_above: 2}}
local: {{core_seconds_per_clock: 1200, boot: 60s, progress: {progress}}}
output: model
"""
STEPS = (
    (ZONES[0], 170, QUIET + 0.01),  # so the second allocation finds the other zone cheaper
    (ZONES[1], 1500, SPIKE),
    (ZONES[1], 1800, QUIET + 0.02),
    (ZONES[0], 3000, SPIKE),
    (ZONES[0], 3060, QUIET),
)


@dataclass(slots=True)
class Bystander:
    """Watches, says nothing, and has nothing to answer."""

    run: Run | None = None

    def on_start(self, run: Run, prices: str) -> None:
        self.run = run

    def on_entry(self, state: State, entry: e.Entry) -> None:
        pass

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        return "cancel"

    def leave_terminal(self, why: str) -> None:
        """It has no terminal."""

    def suspend(self) -> None:
        """It has no terminal."""

    def resume(self) -> None:
        """It has no terminal."""


@dataclass(frozen=True, slots=True)
class Ran:
    finished: FinishedRun
    run: Run
    entries: tuple[e.Entry, ...]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    write_ratings(planted_ratings(60, 30, 4, 0.2, 0.3, seed=1), tmp_path / "ratings.csv")
    write_prices(tmp_path / "prices.csv", STEPS)
    return tmp_path


def ran(folder: Path, world: WorldKind, progress: str) -> Ran:
    """The job launched to its end; nothing of it is left."""
    job = folder / "both.yaml"
    job.write_text(JOB.format(progress=progress))
    options = LaunchOptions(
        world=world, speed=SPEED, prices=PriceOptions(trace=folder / "prices.csv", start=START)
    )
    watcher = Bystander()
    finished = launch(load_job(job), options, watcher)
    assert (finished.exit_code, finished.final["instances_left"]) == (0, 0), finished.final["why"]
    assert watcher.run is not None
    ledger = watcher.run.open_ledger()
    entries = ledger.read_entries()
    ledger.close()
    return Ran(finished, watcher.run, entries)


def story(entries: Sequence[e.Entry]) -> list[e.Entry]:
    """Without what only a real training can say, and without the names of this run and its model."""
    told: list[e.Entry] = []
    for entry in entries:
        if isinstance(entry, e.JobStarted):
            told.append(structs.replace(entry, terms=changed(entry.terms, run="")))
        elif isinstance(entry, e.TrainingFinished):
            told.append(structs.replace(entry, model=""))
        elif not isinstance(entry, (e.Stalled, e.ObjectiveReported)):
            told.append(entry)
    return told


def test_with_modelled_progress_real_processes_and_a_replay_write_the_same_ledger(folder: Path) -> None:
    real = ran(folder, WorldKind.LOCAL, "modelled")
    replayed = ran(folder, WorldKind.REPLAY, "modelled")
    assert story(real.entries) == story(replayed.entries)
    kinds = {type(entry) for entry in replayed.entries}
    assert kinds >= {e.EvictionWarned, e.TellWarning, e.TellReleased, e.StageEntered, e.InstancesEnded}
    assert real.finished.final["cost"] == replayed.finished.final["cost"]
    assert Path(str(real.finished.final["model"])).is_file()


def test_a_measured_runs_facts_call_for_exactly_its_commands(folder: Path) -> None:
    measured = ran(folder, WorldKind.LOCAL, "measured")
    assert any(isinstance(entry, e.ObjectiveReported) for entry in measured.entries)
    assert any(isinstance(entry, e.EvictionWarned) for entry in measured.entries)
    assert redecided(measured.entries, measured.run.prices.load_prices()) == list(measured.entries)
