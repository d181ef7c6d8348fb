"""Real processes: the trained model is the plain loop's, bit for bit, whatever happens to the machines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agileml.events import (
    EvictionWarned,
    MachineReleased,
    SafeToKill,
    Stage,
)
from agileml.telemetry import Upward
from tests.agileml.jobs import RunningJob, running_job

pytestmark = pytest.mark.process


def evict(job: RunningJob, *machines: str) -> float:
    """Warn, wait until all are safe to kill, take them away. Returns the seconds that it took."""
    warned_at = time.monotonic()
    job.client.tell(EvictionWarned(machines, 30.0))
    safe: set[str] = set()

    def all_safe(said: Upward) -> bool:
        if isinstance(said, SafeToKill):
            safe.add(said.machine)
        return safe >= set(machines)

    job.wait(all_safe)
    took = time.monotonic() - warned_at
    for machine in machines:
        job.host.kill(machine)
        job.client.tell(MachineReleased(machine))
    return took


def test_undisturbed(tmp_path: Path) -> None:
    with running_job(tmp_path, clocks=25) as job:
        job.start("r1", "t1")
        job.finish()
        job.check_result()
        job.check_nothing_left()
        assert job.redone == []


def test_through_the_stages_and_back(tmp_path: Path) -> None:
    with running_job(tmp_path, clocks=60, stage3_above=2.0) as job:
        job.start("r1", "t1")
        job.reach(3)
        job.start("t2")
        job.reach_stage(Stage.TWO)
        job.start("t3")
        job.reach_stage(Stage.THREE)
        evict(job, "t1")
        job.reach_stage(Stage.TWO)
        evict(job, "t2", "t3")
        job.reach_stage(Stage.ONE)
        job.finish()
        job.check_result()
        job.check_nothing_left()
        assert job.redone == []


@pytest.mark.parametrize("leaving", [("t1", "t2"), ("t1", "t2", "t3", "t4")], ids=["half", "all"])
def test_a_warned_eviction_redoes_nothing(tmp_path: Path, leaving: tuple[str, ...]) -> None:
    with running_job(tmp_path, clocks=40) as job:
        job.start("r1", "t1", "t2", "t3", "t4")
        job.reach_stage(Stage.TWO)
        job.reach(job.clock + 2)
        print(f"{len(leaving)} machines safe to kill {evict(job, *leaving):.3f} s after the warning")
        job.finish()
        job.check_result()
        job.check_nothing_left()
        assert job.redone == []
