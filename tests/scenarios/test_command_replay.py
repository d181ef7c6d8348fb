"""The same command job run by a real program and replayed, where progress is the model's: one ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.control import entries as e
from spotctl.job.choices import WorldKind
from spotctl.job.file import load_job
from spotctl.job.resolve import PriceOptions
from spotctl.job.settings import LaunchOptions
from spotctl.session.launch import launch
from tests.scenarios.support.command import PROGRAM
from tests.scenarios.support.market import QUIET, SPIKE, START, ZONES, write_prices
from tests.scenarios.test_local_equals_replay import Bystander, story
from tests.spotctl.build import redecided

pytestmark = pytest.mark.process

JOB = """\
name: both
engine: command
workdir: program
run: python process.py
work: {steps: 40, takes: 2h, on: c4.xlarge}
checkpoint: {every: 20m, restart: 30s, on_warning: false}
resources: {spot: {instance_types: [c4.xlarge]}}
scaling: {sigma: 60s}
objective: {deadline: 6h}
local: {boot: 60s, progress: modelled}
"""
STEPS = (
    *((zone, 3000, SPIKE) for zone in ZONES),
    *((zone, 4200, QUIET) for zone in ZONES),
    *((zone, 6300, SPIKE) for zone in ZONES),
    *((zone, 6360, QUIET) for zone in ZONES),
)


def test_a_real_program_and_a_replay_write_the_same_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "process.py").write_text(PROGRAM)
    (tmp_path / "both.yaml").write_text(JOB)
    write_prices(tmp_path / "prices.csv", STEPS)
    told = {}
    for world in (WorldKind.LOCAL, WorldKind.REPLAY):
        prices = PriceOptions(trace=tmp_path / "prices.csv", start=START)
        watcher = Bystander()
        options = LaunchOptions(world=world, speed=3000, prices=prices)
        finished = launch(load_job(tmp_path / "both.yaml"), options, watcher)
        assert (finished.exit_code, finished.final["instances_left"]) == (0, 0), finished.final["why"]
        assert watcher.run is not None
        ledger = watcher.run.open_ledger()
        told[world] = (story(ledger.read_entries()), finished.final["cost"])
        assert redecided(ledger.read_entries(), watcher.run.prices.load_prices()) == list(
            ledger.read_entries()
        )
        ledger.close()
    assert told[WorldKind.LOCAL] == told[WorldKind.REPLAY]
    kinds = {type(entry) for entry in told[WorldKind.REPLAY][0]}
    assert kinds >= {e.EvictionWarned, e.SafeToKill, e.TellReleased, e.RolledBack, e.Decided}
