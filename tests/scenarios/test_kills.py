"""Anything may be killed at any moment: the model is the same, the bill is right, nothing is left.

``pytest --campaign -rP tests/scenarios/test_kills.py`` kills each kind of thing at twenty moments (about
half an hour); ``-rP`` shows a line for each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from agileml.job import Timing
from spotctl.control import entries as e
from spotctl.engines.agileml import JOIN_FLOOR_S
from tests.scenarios.support.product import (
    CLOCKS,
    ON_RELIABLE,
    PATIENCE_S,
    SPEED,
    STALENESS,
    Product,
    product,
)

pytestmark = [pytest.mark.process, pytest.mark.campaign]

LAST_TO_BE_HIT: Final = CLOCKS - 16
"""Kills come before this clock is over: all machines are still wanted, and there is work to go on with."""


def lose_an_active(job: Product, chance: random.Random) -> None:
    job.kill_role("server", chance.choice(job.transient))


def lose_a_worker(job: Product, chance: random.Random) -> None:
    job.kill_role("worker", chance.choice(job.transient))


def lose_a_machine(job: Product, chance: random.Random) -> None:
    job.host.kill(chance.choice(job.transient))


def lose_all_transient_machines(job: Product, _: random.Random) -> None:
    for machine in job.transient:
        job.host.kill(machine)


def lose_an_agent(job: Product, chance: random.Random) -> None:
    """Its roles end with it, and so the machine is gone."""
    job.kill_role("agent", chance.choice(job.transient))


def lose_the_reliable_worker(job: Product, _: random.Random) -> None:
    """Its agent starts another; the model is not on it."""
    job.kill_role("worker", ON_RELIABLE)


def lose_the_controller(job: Product, _: random.Random) -> None:
    job.kill_role("controller", ON_RELIABLE)


def lose_spotctl(job: Product, chance: random.Random) -> None:
    """Training goes on without it until the same command is given again."""
    job.kill_spotctl()
    time.sleep(chance.uniform(0.0, 2.0))
    job.launch()


KILLS: Final[Mapping[str, Callable[[Product, random.Random], None]]] = {
    "active": lose_an_active,
    "worker": lose_a_worker,
    "machine": lose_a_machine,
    "all transient": lose_all_transient_machines,
    "agent": lose_an_agent,
    "reliable worker": lose_the_reliable_worker,
    "controller": lose_the_controller,
    "spotctl": lose_spotctl,
}
OF_THE_RELIABLE: Final = frozenset({"reliable worker", "controller", "spotctl"})
"""What may be killed before there are transient machines."""
SAMPLE: Final = ("active", "machine", "controller", "spotctl")
"""Of each kind of loss one; the others are for the campaign."""
MOMENTS: Final = 20


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    in_full = metafunc.config.getoption("--campaign")
    kinds, seeds = KILLS if in_full else SAMPLE, range(MOMENTS if in_full else 1)
    if "killed" in metafunc.fixturenames:
        metafunc.parametrize(("killed", "seed"), [(kind, seed) for kind in kinds for seed in seeds])
    elif "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds)


def check(job: Product, undisturbed: bytes, killed_at: float, story: str) -> None:
    final = job.end()
    print(
        f"{story}: redone {final['clocks_redone']}, failures {final['failures']}, longest pause "
        f"{job.longest_pause_s(killed_at):.2f} s, {time.time() - killed_at:.1f} s to the end"
    )
    assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, CLOCKS)
    assert all(back.redone <= STALENESS + 2 for back in job.all(e.RolledBack))
    assert job.model.read_bytes() == undisturbed
    job.check_nothing_left()
    job.check_record(final)


def test_a_kill_costs_nothing_but_time(killed: str, seed: int, tmp_path: Path, undisturbed: bytes) -> None:
    chance = random.Random(f"{killed} {seed}")
    with product(tmp_path) as job:
        job.launch()
        if killed in OF_THE_RELIABLE:
            job.reach(1)
        else:
            job.reach_stage(2)
        job.reach(job.clock + int(chance.random() * max(0, LAST_TO_BE_HIT - job.clock)))
        time.sleep(chance.uniform(0.0, 0.1))
        clock = job.clock
        KILLS[killed](job, chance)
        check(job, undisturbed, time.time(), f"{killed}, seed {seed}: killed after clock {clock}")


def test_spotctl_may_die_while_it_starts(seed: int, tmp_path: Path, undisturbed: bytes) -> None:
    """Before the run is on record, before its input is cut, before machines are up or told to train."""
    chance = random.Random(f"start {seed}")
    with product(tmp_path) as job:
        job.launch()
        if seed % 4 == 3:
            time.sleep(chance.uniform(0.1, 0.6))
        else:
            job.wait(lambda entry: isinstance(entry, e.JobStarted))
            time.sleep(chance.uniform(0.0, (0.02, 0.2, 2.0)[seed % 4]))
        entries = len(job.rows())
        lose_spotctl(job, chance)
        check(job, undisturbed, time.time(), f"spotctl, seed {seed}: killed after {entries} entries")


def test_a_training_that_ended_while_nobody_listened_is_a_success(
    tmp_path: Path, undisturbed: bytes, campaign: bool
) -> None:
    """Its machines wait for a lease, leave a word, and end; only then the launch is given again."""
    if not campaign:
        pytest.skip("only with --campaign: it takes a whole lease, half a minute")
    with product(tmp_path) as job:
        job.launch()
        job.reach_stage(3)
        job.kill_spotctl()
        until = time.monotonic() + PATIENCE_S
        while job.host.alive_machines():
            assert time.monotonic() < until
            time.sleep(0.2)
        job.launch()
        check(job, undisturbed, time.time(), "spotctl, away for longer than a lease")
        (down,) = job.all(e.ControllerDown)
        assert down.over_at is not None, "its model's files say when"
        assert down.at < down.over_at < down.until - 0.8 * Timing().lease_s * SPEED
        assert not job.end()["ended_at_latest"]


def test_losing_the_only_reliable_machine_ends_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    with product(tmp_path) as job:
        job.launch()
        job.reach_stage(2)
        job.kill_role("agent", ON_RELIABLE)
        final = job.end()
        assert (final["state"], final["exit_code"], final["model"]) == ("failed", 1, None)
        assert ON_RELIABLE in final["why"]
        job.check_nothing_left()
        job.check_record(final)


@pytest.mark.parametrize("spotctl_too", [False, True])
def test_a_job_that_keeps_checkpoints_begins_again_by_itself_and_ends_with_the_same_model(
    spotctl_too: bool, tmp_path: Path, undisturbed: bytes, campaign: bool
) -> None:
    """Its only reliable machine is lost, whose controller led it; spotctl may die while it begins again."""
    if spotctl_too and not campaign:
        pytest.skip("only with --campaign: what is read of the ledger then is tested without processes too")
    with product(tmp_path) as job:
        with (tmp_path / "scenario.yaml").open("a") as file:
            file.write(f"checkpoint: {{store: {tmp_path}/states, every: 4}}\n")
        job.launch()
        job.reach_stage(2)
        job.wait(lambda entry: isinstance(entry, e.Checkpointed))
        job.kill_role("agent", ON_RELIABLE)
        if spotctl_too:
            job.wait(lambda entry: isinstance(entry, e.TellRestart))
            lose_spotctl(job, random.Random(0))
        final = job.end()
        assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, CLOCKS), job.chatter
        assert (final["restarts"], final["resumed_from"]) == (1, 0)
        (resumed,) = job.all(e.TrainingResumed)
        assert resumed.clock >= job.all(e.Checkpointed)[0].clock
        assert [entry.number for entry in job.all(e.TellRestart)] == [1]
        assert [entry.allocation for entry in job.all(e.Acquire) if entry.reliable] == ["r1", "r2"]
        assert job.model.read_bytes() == undisturbed
        assert not list((tmp_path / "states" / "scenario").iterdir()), "a finished job keeps none"
        job.check_nothing_left()
        job.check_record(final)


def test_one_of_two_reliable_machines_is_survived_and_replaced(tmp_path: Path) -> None:
    """Those that serve send copies of its backups to the other one; a third machine takes its place."""
    with product(tmp_path) as job:
        text = (tmp_path / "scenario.yaml").read_text()
        text = text.replace("reliable: {instance", "reliable: {instances: 2, instance")
        (tmp_path / "scenario.yaml").write_text(text.replace("stage2_above: 1", "stage2_above: 0.4"))
        job.launch()
        job.reach_stage(2)
        job.kill_role("agent", "r1-2")
        final = job.end()
        assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, CLOCKS), job.chatter
        assert final["failures"] == 1
        requests = [entry for entry in job.all(e.Acquire) if entry.reliable]
        assert [(entry.allocation, entry.count) for entry in requests] == [("r1", 2), ("r2", 1)]
        job.check_model(CLOCKS)
        job.check_nothing_left()
        job.check_record(final)


def test_backups_that_die_are_made_again_from_those_who_serve(tmp_path: Path, undisturbed: bytes) -> None:
    with product(tmp_path) as job:
        job.launch()
        job.reach_stage(2)
        job.kill_role("server", ON_RELIABLE)
        check(job, undisturbed, time.time(), "the server with the backups")


def test_losing_the_reliable_machine_before_it_trains_is_noticed_at_once(tmp_path: Path) -> None:
    """Although time holds for it to join."""
    with product(tmp_path) as job:
        job.launch()
        job.wait(lambda entry: isinstance(entry, e.TellJoin))
        job.kill_role("agent", ON_RELIABLE)
        final = job.end()
        assert (final["state"], final["exit_code"], final["clocks"]) == ("failed", 1, 0)
        assert final["wall_seconds"] < JOIN_FLOOR_S
        job.check_nothing_left()
        job.check_record(final)
