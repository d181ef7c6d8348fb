"""Warned evictions redo nothing, cost nothing for the hour they fall into, and change no bit of the model.

The prices of a zone rise above every bid while it serves; two of the four transient machines are in each.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from pricing_data.model.billing import EndReason
from spotctl.control import entries as e
from tests.scenarios.support.market import QUIET, SPIKE, START, ZONES, Step
from tests.scenarios.support.product import CLOCKS, STALENESS, Product, product

pytestmark = [pytest.mark.process, pytest.mark.campaign]

FIRST, SECOND = ZONES
APART: Final[Sequence[Step]] = ((FIRST, 170, QUIET + 0.01),)
"""The second allocation is asked for two minutes after the first, and finds the other zone cheaper."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """``refunded``: dollars; each machine's first hour, at the price when it began to run."""

    machines: int
    refunded: str
    steps: Sequence[Step]


EVICTIONS: Final[Mapping[str, Eviction]] = {
    "half": Eviction(2, "0.080000", [*APART, (SECOND, 2400, SPIKE)]),
    "all": Eviction(
        4, "0.180000", [*APART, (FIRST, 2400, SPIKE), (SECOND, 2400, SPIKE), (FIRST, 3000, QUIET)]
    ),
}


@pytest.mark.parametrize("evicted", EVICTIONS)
def test_an_eviction_redoes_nothing(evicted: str, tmp_path: Path, undisturbed: bytes) -> None:
    eviction = EVICTIONS[evicted]
    with product(tmp_path, eviction.steps) as job:
        job.launch()
        final = job.end()
        took = safe_after_s(job)
        print(f"{evicted}: safe to kill {', '.join(f'{s:.2f}' for s in took)} real seconds after the warning")
        assert len(took) == eviction.machines
        assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, CLOCKS)
        assert (final["failures"], final["clocks_redone"]) == (0, 0)
        assert final["cost"]["refunded"] == eviction.refunded
        assert job.model.read_bytes() == undisturbed
        job.check_nothing_left()
        job.check_record(final)


def test_an_eviction_while_spotctl_is_down_is_billed_as_it_was(tmp_path: Path, undisturbed: bytes) -> None:
    """Nobody warned the training, so to it the machines just died: an effective failure."""
    eviction = EVICTIONS["half"]
    with product(tmp_path, eviction.steps) as job:
        job.launch()
        job.reach_stage(3)
        job.kill_spotctl()
        time.sleep(0.7)  # beyond the eviction, in nominal time
        job.launch()
        final = job.end()
        (down,) = job.all(e.ControllerDown)
        assert down.at < START + 2400 < START + 2520 < down.until
        (gone,) = [ended for ended in job.all(e.InstancesEnded) if ended.end is EndReason.EVICTED]
        assert (gone.at, len(gone.instances)) == (START + 2520, eviction.machines)
        assert (final["state"], final["clocks"]) == ("done", CLOCKS)
        assert (final["failures"], final["cost"]["refunded"]) == (eviction.machines, eviction.refunded)
        assert all(back.redone <= STALENESS + 2 for back in job.all(e.RolledBack))
        assert job.model.read_bytes() == undisturbed
        job.check_nothing_left()
        job.check_record(final)


def test_a_reliable_machine_on_spot_that_is_taken_costs_what_came_after_the_checkpoint(
    tmp_path: Path, undisturbed: bytes
) -> None:
    """The default keeps the model on spot where a checkpoint stands behind it; its price takes it away."""
    with product(tmp_path, [(FIRST, 1800, SPIKE), (FIRST, 2400, QUIET)]) as job:
        with (job.folder / "scenario.yaml").open("a") as file:
            file.write(f"checkpoint: {{store: {job.folder}/states, every: 4}}\n")
        job.launch()
        final = job.end()
        first, second = (entry for entry in job.all(e.Acquire) if entry.reliable)
        assert (first.market.zone, first.market.instance_type) == (FIRST, "c4.xlarge")
        assert first.bid == 0.209, "the list price"
        (taken,) = [ended for ended in job.all(e.InstancesEnded) if "r1-1" in ended.instances]
        assert (taken.at, taken.end) == (START + 1920, EndReason.EVICTED)
        assert second.market.zone == SECOND, "the first zone is dearer than on demand"
        assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, CLOCKS), job.chatter
        assert final["restarts"] == 1
        assert final["clocks_redone"] <= 4 + STALENESS + 2
        assert job.model.read_bytes() == undisturbed
        job.check_nothing_left()
        job.check_record(final)


def safe_after_s(job: Product) -> list[float]:
    """Real seconds from the warning of each evicted machine until nothing would be lost with it."""
    warned = {
        name: row.recorded
        for row in job.rows()
        if isinstance(row.entry, e.EvictionWarned)
        for name in row.entry.instances
    }
    return [
        row.recorded - warned[row.entry.instance]
        for row in job.rows()
        if isinstance(row.entry, e.SafeToKill) and row.entry.instance in warned
    ]
