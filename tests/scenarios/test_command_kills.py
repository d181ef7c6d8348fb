"""Anything of a command job may be killed at any moment: the result is the same, the bill is right.

``pytest --campaign -rP tests/scenarios/test_command_kills.py`` kills each kind of thing at twenty moments;
``-rP`` shows a line for each.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from spotctl.control import entries as e
from tests.scenarios.support.command import STEPS, CommandProduct, command, spikes

pytestmark = [pytest.mark.process, pytest.mark.campaign]

EVERY: Final = 10
MOMENTS: Final = 20
LAST_TO_BE_HIT: Final = STEPS - 8


def lose_the_program(job: CommandProduct, _: random.Random) -> None:
    """It is tried again on its machine."""
    job.kill_program()


def lose_the_agent(job: CommandProduct, _: random.Random) -> None:
    """The program goes with it, and so does the machine."""
    group = int((job.run.machines_folder / job.running_on / "group").read_text())
    os.kill(group, signal.SIGKILL)


def lose_the_machine(job: CommandProduct, _: random.Random) -> None:
    job.host.kill(job.running_on)


def lose_spotctl(job: CommandProduct, chance: random.Random) -> None:
    """The program goes on without it, and may end, until the same command is given again."""
    job.kill_spotctl()
    time.sleep(chance.uniform(0.0, 2.5))
    job.launch()


def lose_both(job: CommandProduct, chance: random.Random) -> None:
    machine = job.running_on
    job.kill_spotctl()
    job.host.kill(machine)
    time.sleep(chance.uniform(0.0, 0.5))
    job.launch()


KILLS: Final[Mapping[str, Callable[[CommandProduct, random.Random], None]]] = {
    "program": lose_the_program,
    "agent": lose_the_agent,
    "machine": lose_the_machine,
    "spotctl": lose_spotctl,
    "spotctl and machine": lose_both,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "killed" in metafunc.fixturenames:
        seeds = range(MOMENTS if metafunc.config.getoption("--campaign") else 1)
        metafunc.parametrize(("killed", "seed"), [(kind, seed) for kind in KILLS for seed in seeds])


def test_a_kill_costs_no_more_than_the_steps_since_the_newest_checkpoint(
    killed: str, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(f"{killed} {seed}")
    evicted = spikes(after=int(chance.uniform(900, 2400))) if seed % 2 else ()
    with command(tmp_path, evicted) as job:
        job.launch()
        at = chance.randrange(1, LAST_TO_BE_HIT)
        job.reach(at)
        time.sleep(chance.uniform(0.0, 0.1))
        KILLS[killed](job, chance)
        final = job.check_done()
        redone = [back.redone for back in job.all(e.RolledBack)]
        print(
            f"{killed}, seed {seed}: killed after step {at}, redone {redone}, evictions {final['evictions']}"
        )
        assert all(steps <= EVERY + 3 for steps in redone), "the newest is stored within moments"
        assert len(redone) <= 2


def test_a_machine_that_hangs_is_replaced(tmp_path: Path, campaign: bool) -> None:
    if not campaign:
        pytest.skip("only with --campaign: a hung machine is waited for, twenty seconds")
    with command(tmp_path) as job:
        job.launch()
        job.reach(12)
        job.host.freeze(job.running_on)
        final = job.check_done()
        assert final["failures"] == 1
