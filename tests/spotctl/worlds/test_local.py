"""Machines of this computer that died while spotctl was away: nobody is billed for the dead."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
from msgspec import structs

from agileml.node.hosts.nominal_time import NominalClock
from agileml.training_host import TrainingHost
from pricing_data.model.billing import EndReason
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.lifecycle import InstanceState
from spotctl.control.state import State
from spotctl.job.file import load_job
from spotctl.job.resolve import resolve_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.providers.base import InstanceStatus, Order, Report
from spotctl.providers.simulated import SimulatedProvider
from spotctl.records.run import Run, RunStore
from spotctl.session.open import create_run
from spotctl.timesource import PacedTime
from spotctl.worlds.local import Absence, end_dead_machines, last_seen
from tests.spotctl.build import MARKETS, START, scripted_trace
from tests.spotctl.cli.story import at, state_after

EXAMPLES = Path(__file__).parents[3] / "examples"
SPEED = 600.0
HOUR_AWAY = e.ControllerDown(at(20), Instant(at(20) + 3600 * int(SPEED)))
"""An hour here; the reliable machine and the four spot machines of the story run when it begins."""


def recorded(folder: Path, machine: str, seen: int, ended: float = nan) -> Path:
    """Writes what the machine's agent records of its life."""
    file = folder / "training" / "machines" / machine / "life"
    file.parent.mkdir(parents=True)
    file.write_text(f"{HOUR_AWAY.at - 600}.0 {seen}.0 {ended}")
    return file


def seen(folder: Path) -> dict[str, int]:
    """Nominal seconds after spotctl went away."""
    host = TrainingHost(folder / "training")
    found = last_seen(host, state_after(20), absence(time.time()))
    return {name: moment - HOUR_AWAY.at for name, moment in found.items()}


def test_a_machine_was_last_seen_when_it_last_recorded_that_it_lived(tmp_path: Path) -> None:
    recorded(tmp_path, "s1-0", seen=HOUR_AWAY.at + 1800)
    recorded(tmp_path, "s1-1", seen=HOUR_AWAY.at - 9000)
    recorded(tmp_path, "s1-2", seen=HOUR_AWAY.until + 100)
    found = seen(tmp_path)
    assert found["s1-0"] == 1800
    assert found["s1-1"] == 0, "it lived before spotctl went away, when it was still there"
    assert found["s1-2"] == 3600 * SPEED, "not in the future, whatever clocks say"
    assert found["r1-0"] == 0, "nothing is known of it"


def test_machines_that_had_ended_before_are_not_asked_for(tmp_path: Path) -> None:
    state = state_after(20)
    ended = structs.replace(state.instances["s1-3"], life=InstanceState.ENDED)
    state = structs.replace(state, instances={**state.instances, "s1-3": ended})
    host = TrainingHost(tmp_path / "training")
    found = last_seen(host, state, absence(time.time()))
    assert set(found) == {"r1-0", "s1-0", "s1-1", "s1-2"}


def test_a_machine_that_recorded_its_end_ended_then_whatever_its_files_dates_are(tmp_path: Path) -> None:
    file = recorded(tmp_path, "s1-0", seen=HOUR_AWAY.at + 4711, ended=HOUR_AWAY.at + 4711)
    os.utime(file, (0, 0))
    assert seen(tmp_path)["s1-0"] == 4711


def test_training_was_over_as_long_before_the_absence_ended_as_its_files_are_older() -> None:
    now = 1_000_000.0
    found = [absence(now).nominal_at(now - 3600 + seconds) for seconds in (-5.0, 0.0, 1800.0, 9000.0)]
    assert found == [at(20), at(20), Instant(at(20) + 1800 * int(SPEED)), HOUR_AWAY.until]
    assert absence(now).nominal_at(None) is None


def test_machines_that_recorded_their_end_were_not_taken_later() -> None:
    """Their lease ran out first: no refund, and not a second more on the bill."""
    now = Instant(START + 100_000)
    market = SimulatedProvider(scripted_trace((1, 500, 1.5)), AWS_2016, 60, lambda: now)
    names = ("s1-1", "s2-1", "s3-1", "s4-1")
    for name in names:
        market.restore_order(Order(name.removesuffix("-1"), MARKETS[1], 1, UsdPerHour(0.1), cores=4), START)
    ended = {"s1-1": Instant(START + 600), "s2-1": Instant(START + 620), "s3-1": Instant(START + 600)}
    ended["s4-1"] = ended["s1-1"]
    end_dead_machines(market, ended, {"s1-1", "s2-1", "s4-1"}, released={"s4-1"})
    assert [(report.ended_at, report.end) for report in market.describe()] == [
        (START + 600, EndReason.FAILED),
        (START + 620, EndReason.EVICTED),
        (START + 620, EndReason.EVICTED),
        (START + 600, EndReason.RELEASED),
    ], "s3-1 has only files to go by"


@pytest.mark.parametrize(
    ("ends", "lapsed"),
    [((600, 3600), 3600), ((600, 3601), 3601), ((600, 1200), None), ((), None)],
)
def test_a_lease_has_run_out_where_a_machine_ended_with_it(ends: tuple[int, ...], lapsed: int | None) -> None:
    away = replace(absence(1_000_000.0), lapses_at=HOUR_AWAY.at + 3600.4)
    found = away.lapse_among([Instant(HOUR_AWAY.at + end) for end in ends])
    assert found == (None if lapsed is None else HOUR_AWAY.at + lapsed)
    assert absence(1_000_000.0).lapse_among([HOUR_AWAY.until]) is None, "it has no end"


def absence(now: float) -> Absence:
    """Of an hour, which ends ``now`` (seconds since the epoch)."""
    return Absence(HOUR_AWAY, float(HOUR_AWAY.until), now, SPEED)


def test_the_dead_ended_when_they_were_last_seen_unless_they_were_taken() -> None:
    now = Instant(START + 100_000)
    market = SimulatedProvider(scripted_trace((1, 500, 1.5)), AWS_2016, 60, lambda: now)
    for name, zone in (("s1", 0), ("s2", 1), ("s3", 0)):
        market.restore_order(Order(name, MARKETS[zone], 1, UsdPerHour(0.1), cores=4), START)
    end_dead_machines(market, {"s1-1": Instant(START + 7000), "s2-1": Instant(START + 7000)})
    started = Instant(START + 60)
    assert market.describe() == (
        Report("s1-1", "s1", InstanceStatus.ENDED, started, Instant(START + 7000), EndReason.FAILED),
        Report("s2-1", "s2", InstanceStatus.ENDED, started, Instant(START + 620), EndReason.EVICTED),
        Report("s3-1", "s3", InstanceStatus.RUNNING, started),
    )


class Unwatched:
    def on_start(self, run: Run, prices: str) -> None: ...

    def on_entry(self, state: State, entry: e.Entry) -> None: ...


def test_a_world_that_cannot_be_built_leaves_no_clock_driven(tmp_path: Path) -> None:
    """Else its machines would keep their lease for as long as the process runs other jobs."""
    spec = replace(load_job(EXAMPLES / "command_numpy.yaml"), output=str(tmp_path / "output"))
    settings = Settings.from_options(spec, LaunchOptions())
    resolved = resolve_job(settings.spec, settings.prices, "", settings.seed)
    begun = create_run(RunStore(tmp_path / "runs"), settings, resolved, Unwatched())
    begun.prepare()
    (begun.run.training_folder / "sockets").unlink()
    source = PacedTime(resolved.terms.start, SPEED)
    down = e.ControllerDown(source.now, source.now)
    with pytest.raises(FileNotFoundError):
        begun.build_resumed_world(tuple, source, down)
    begun.ledger.close()
    clock = NominalClock.open_clock(begun.run.training_folder)
    assert clock is not None
    assert not clock.check_driver()
    released = clock.undriven_at(0.0)
    source.advance(Instant(source.now + 600), lambda _: False, tuple)
    assert clock.undriven_at(0.0) == released, "time moves on for the other jobs only"
