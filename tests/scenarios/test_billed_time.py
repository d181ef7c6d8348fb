"""Nobody works who is not billed, whoever looks away: machine-seconds billed are machine-seconds alive.

What machines record of their own lives is compared with the bill, to the nominal second; what they computed
with what they could. ``pytest --campaign -rP tests/scenarios/test_billed_time.py`` disturbs a hundred runs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from agileml.node.hosts.nominal_time import lapses_at
from pricing_data.model.billing import EndReason
from pricing_data.model.units import Instant, format_instant
from spotctl.control import entries as e
from spotctl.report.fold import build_account, work_possible
from tests.scenarios.support.command import command
from tests.scenarios.support.market import QUIET, SPIKE, ZONES, Step
from tests.scenarios.support.product import CLOCKS, PROMPT, SPEED, Product, product

pytestmark = pytest.mark.process

QUESTION: Final = "[g/c/d/l] "
LENT_S: Final = 0.5
"""Real seconds for which machines go on when their driver has just stopped; they are billed."""
SPIKES: Final[Sequence[Step]] = (
    (ZONES[0], 170, QUIET + 0.01),
    (ZONES[1], 3000, SPIKE),
    (ZONES[1], 3600, QUIET),
    (ZONES[0], 6000, SPIKE),
    (ZONES[0], 6600, QUIET),
)
RUNS: Final = 104


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(RUNS if metafunc.config.getoption("--campaign") else 1))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Product]:
    with product(tmp_path, SPIKES) as made:
        yield made


def check_truth(job: Product, stopped: frozenset[str] = frozenset()) -> None:
    """``stopped``: machines that were, and may have been taken before they could record their end."""
    state = job.run.fold_state()
    for name, instance in state.instances.items():
        life = job.host.read_life(name)
        assert instance.ended_at is not None, f"{name} is billed without end"
        if life is None:
            assert not instance.joined, f"{name} worked and recorded nothing"
            continue
        if life.ended is None and name in stopped:
            assert life.seen <= instance.ended_at + 1
            continue
        assert life.ended is not None, f"{name} did not record its end"
        assert abs(life.ended - instance.ended_at) <= 1, (
            f"{name} lived to {life.ended}, and is billed otherwise"
        )
    money = build_account(state)
    assert money.not_comparable is None
    assert state.work_done <= work_possible(state)
    assert job.host.alive_machines() == []


def billed_s(job: Product) -> tuple[int, float]:
    """Machine-seconds billed, and those that machines recorded."""
    billed, lived = 0, 0.0
    for name, instance in job.run.fold_state().instances.items():
        life = job.host.read_life(name)
        if life is not None and life.ended is not None and instance.running_at is not None:
            assert instance.ended_at is not None
            billed += instance.ended_at - instance.running_at
            lived += life.ended - instance.running_at
    return billed, lived


def begin(job: Product) -> None:
    job.launch_at_terminal()
    job.reach_stage(2)


def nominal(job: Product) -> int:
    return job.rows()[-1].entry.at


# ---- the four cases ----------------------------------------------------------------------------------


def test_a_run_is_billed_for_what_it_does_while_nobody_looks(job: Product) -> None:
    """While somebody is asked, while spotctl is stopped, and after it was left running."""
    begin(job)
    the_run_goes_on_while_somebody_is_asked(job)
    nobody_works_while_spotctl_is_stopped(job)
    job.press("\x03")
    job.wait_for_screen(QUESTION, 2)
    job.press("l\n")
    assert job.exit_code() == 7
    assert "scenario goes on without this terminal" in job.screen
    assert "none, as it was left running" in job.command("status", "scenario").stdout
    assert job.wait_until_closed().exit_code == 0
    assert job.all(e.ControllerDown) == [], "it was never without a driver"
    assert "the work is done" in (job.run.folder / "launch.log").read_text()
    check_truth(job)


def the_run_goes_on_while_somebody_is_asked(job: Product) -> None:
    """Prices, decisions and machines do not wait for an answer."""
    job.press("\x03")
    job.wait_for_screen(QUESTION)
    before, clock = nominal(job), job.clock
    job.reach(clock + 2)
    assert nominal(job) > before
    assert not any(isinstance(row.entry, e.Asked) for row in job.rows())
    job.press("g\n")


def nobody_works_while_spotctl_is_stopped(job: Product) -> None:
    os.kill(driver := job.driver(), signal.SIGSTOP)
    time.sleep(LENT_S + 0.5)
    worked = _journal_size(job)
    time.sleep(2.5)
    assert _journal_size(job) == worked, "clocks were done while nominal time stood still"
    before = nominal(job)
    os.kill(driver, signal.SIGCONT)
    job.wait(lambda entry: entry.at > before)
    assert nominal(job) - before < 2.0 * SPEED, "the time of the stop is none"


def test_unattended_machines_end_when_their_price_says_and_a_relaunch_buys_none_for_done_work(
    tmp_path: Path,
) -> None:
    """The second zone is taken at 3120, the first at 6120: nobody is there who would take them."""
    with product(tmp_path, SPIKES, clocks=20) as job:
        begin(job)
        job.kill_driver()
        bought = {entry.allocation for entry in job.all(e.Acquire)}
        taken = set(job.transient)
        wait_until(job, lambda: not any(job.host.is_alive(name) for name in taken))
        wait_until(job, lambda: any((job.run.training_folder / "model").glob("*")))
        time.sleep(0.5)
        job.launch_at_terminal()
        assert job.wait_until_closed().exit_code == 0
        (down,) = job.all(e.ControllerDown)
        ended = [entry for entry in job.all(e.InstancesEnded) if entry.at < down.until]
        assert {name for entry in ended for name in entry.instances} >= taken
        assert {entry.end for entry in ended} == {EndReason.EVICTED}
        assert {entry.allocation for entry in job.all(e.Acquire)} == bought
        assert down.over_at is not None
        check_truth(job)


@pytest.mark.parametrize("keeps", [True, False], ids=["with checkpoints", "without"])
def test_machines_that_nobody_drives_end_with_their_lease(
    keeps: bool, tmp_path: Path, campaign: bool
) -> None:
    """Who launches again goes on from the checkpoint, or is told why it cannot be."""
    if not keeps and not campaign:
        pytest.skip("only with --campaign: without checkpoints it ends alike, and what follows is a message")
    with product(tmp_path) as job:
        with_a_lease_of_an_hour(job)
        if keeps:
            with (tmp_path / "scenario.yaml").open("a") as file:
                file.write(f"checkpoint: {{store: {tmp_path}/states, every: 4}}\n")
        job.launch()
        job.reach_stage(2)
        if keeps:
            job.wait(lambda entry: isinstance(entry, e.Checkpointed))
        lapsed_at, lived = leave_to_the_lease(job)
        job.check_nothing_left()
        assert set(job.transient) | {"r1-1"} <= lived.keys()
        clock = job.clock
        job.launch()
        final = job.end()
        check_the_lease(job, lapsed_at, lived)
        if keeps:
            assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, CLOCKS)
            assert [entry.number for entry in job.all(e.TellRestart)] == [1]
            job.check_model(CLOCKS)
        else:
            assert (final["state"], final["exit_code"], final["model"]) == ("failed", 1, None)
            assert final["why"].endswith("spotctl was away for longer than its lease (local.lease)")
            assert final["clocks"] >= clock
        job.check_record(final)
        check_truth(job)


def test_a_program_that_nobody_drives_ends_with_the_lease_of_its_machine(
    tmp_path: Path, campaign: bool
) -> None:
    """What it did since its newest checkpoint is done again, on another machine."""
    if not campaign:
        pytest.skip("only with --campaign: its agent asks for its bound as that of an elastic job does")
    with command(tmp_path, PAUSE="0.1") as job:
        with_a_lease_of_an_hour(job)
        job.launch()
        job.reach(12)
        lapsed_at, lived = leave_to_the_lease(job)
        job.launch()
        job.check_done()
        assert job.log().count("begins after") == 2
        assert "attempt 2 begins after step 0" not in job.log()
        check_the_lease(job, lapsed_at, lived)


def with_a_lease_of_an_hour(job: Product) -> None:
    file = job.folder / "scenario.yaml"
    file.write_text(file.read_text().replace("lease: 10d", "lease: 1h"))


def leave_to_the_lease(job: Product) -> tuple[float, dict[str, float]]:
    """Kill spotctl and wait for its machines to end: when the lease ran out, and what each recorded."""
    job.kill_spotctl()
    there = job.host.alive_machines()
    assert there
    assert "ends itself by" in job.command("status", "scenario").stdout
    wait_until(job, lambda: not (job.processes() or job.host.alive_machines()))
    lapsed_at = lapses_at(job.run.training_folder)
    assert lapsed_at is not None
    lives = {name: job.host.read_life(name) for name in there}
    lived = {name: life.ended for name, life in lives.items() if life is not None and life.ended is not None}
    assert lived == pytest.approx(dict.fromkeys(there, lapsed_at), abs=0.001), "all ended with the lease"
    (shown,) = json.loads(job.command("status", "--json").stdout)["runs"]
    assert shown["state"] == "unattended"
    assert shown["lease_ends"] == format_instant(Instant(int(lapsed_at)))
    return lapsed_at, lived


def check_the_lease(job: Product, lapsed_at: float, lived: dict[str, float]) -> None:
    (down,) = job.all(e.ControllerDown)
    assert down.lapsed_at == int(lapsed_at)
    instances = job.run.fold_state().instances
    for name, ended in lived.items():
        assert (instances[name].ended_at, instances[name].end) == (int(ended), EndReason.FAILED)
    assert "with their lease" in job.command("logs", "scenario").stdout


def test_while_spotctl_is_stopped_a_program_is_too(tmp_path: Path) -> None:
    """It cannot be slowed down, so it stands still."""
    with command(tmp_path, PAUSE="0.1") as job:
        job.launch()
        job.reach(2)
        os.kill(driver := job.driver(), signal.SIGSTOP)
        (progress,) = job.run.training_folder.rglob("progress.jsonl")
        time.sleep(LENT_S + 0.5)
        stood = progress.stat().st_size
        time.sleep(1.5)
        assert progress.stat().st_size == stood
        os.kill(driver, signal.SIGCONT)
        job.check_done()
        lived, ended = job.host.read_life(job.all(e.MachineJoined)[0].instance), job.all(e.InstancesEnded)[0]
        assert lived is not None
        assert lived.ended is not None
        assert abs(lived.ended - ended.at) <= 1


def wait_until(job: Product, wanted: Callable[[], bool]) -> None:
    until = time.monotonic() + job.patience_s
    while not wanted():
        assert time.monotonic() < until, job.chatter
        time.sleep(0.02)


def _journal_size(job: Product) -> int:
    """Every clock that is done is in the controller's journal."""
    return (job.run.training_folder / "controller" / "journal.jsonl").stat().st_size


# ---- without a terminal ------------------------------------------------------------------------------


def test_neither_ctrl_z_nor_a_closed_terminal_ends_a_run(tmp_path: Path) -> None:
    with product(tmp_path, clocks=800) as job:
        begin(job)
        job.press("\x1a")
        time.sleep(0.5)
        shown = len(job.screen)
        job.reach(job.clock + 2)
        assert len(job.screen) == shown, "the terminal is the shell's"
        job.close_terminal()
        job.reach(job.clock + 2)
        assert "detached" in job.command("status").stdout
        assert "as its terminal was closed" in job.command("status", "scenario").stdout
        assert job.command("cancel", "scenario").returncode == 0
        assert job.wait_until_closed().exit_code == 7
        assert job.model.exists()
        check_truth(job)


def test_fg_shows_a_run_again_that_went_on_behind_its_stopped_view(tmp_path: Path) -> None:
    with product(tmp_path, clocks=120) as job:
        job.launch_at_shell()
        job.reach_stage(2)
        job.wait_for_screen("footprint")
        job.press("\x1a")
        job.wait_for_screen("Stopped")
        job.wait_for_screen(PROMPT, 2)
        time.sleep(0.5)
        shown, views = len(job.screen), job.screen.count("footprint")
        before = nominal(job)
        job.reach(job.clock + 4)
        assert nominal(job) > before, "machines cost money: whoever lets them go is not stopped with the view"
        assert len(job.screen) == shown, "the terminal is the shell's"
        job.press("fg\n")
        job.wait_for_screen("footprint", views + 2)
        assert job.wait_until_closed().exit_code == 0
        job.wait_for_screen(PROMPT, 3)
        job.press("echo its exit code was $?\n")
        job.wait_for_screen("its exit code was 0")
        assert "the work is done" in job.screen
        check_truth(job)


def test_a_run_that_ends_behind_its_stopped_view_has_its_exit_code(tmp_path: Path) -> None:
    with product(tmp_path) as job:
        job.launch_at_shell()
        job.reach_stage(2)
        job.press("\x1a")
        job.wait_for_screen(PROMPT, 2)
        assert job.wait_until_closed().exit_code == 0
        job.press("fg\n")
        job.wait_for_screen(PROMPT, 3)
        job.press("echo its exit code was $?\n")
        job.wait_for_screen("its exit code was 0")
        check_truth(job)


def test_a_run_goes_on_without_a_terminal_when_the_process_in_front_is_killed(tmp_path: Path) -> None:
    with product(tmp_path) as job:
        job.launch_at_shell()
        job.reach_stage(2)
        os.kill(job.front(), signal.SIGKILL)
        job.wait_for_screen("Killed")
        job.wait_for_screen(PROMPT, 2)
        wait_until(job, lambda: "detached" in job.command("status").stdout)
        shown = len(job.screen)
        assert "none, as the process in front of it was killed" in job.command("status", "scenario").stdout
        assert job.wait_until_closed().exit_code == 0
        assert len(job.screen) == shown, "the terminal is the shell's"
        assert "the work is done" in (job.run.folder / "launch.log").read_text()
        assert job.all(e.ControllerDown) == [], "it was never without a driver"
        check_truth(job)


def test_detach_returns_once_there_are_machines(tmp_path: Path) -> None:
    with product(tmp_path, clocks=800) as job:
        job.launch("--detach")
        assert job.exit_code() == 0
        (detached,) = (job.folder / "stdout").read_text().splitlines()
        assert json.loads(detached)["run"] == job.run.id
        job.wait(lambda entry: isinstance(entry, e.Granted))  # on record an instant after it was told
        assert "detached" in job.command("status").stdout
        assert job.command("cancel", "scenario").returncode == 0
        assert job.command("wait", "scenario").returncode == 7
        check_truth(job)


def test_a_detached_launch_that_cannot_begin_ends_with_its_own_exit_code(job: Product) -> None:
    (job.folder / "ratings.csv").write_text("neither,users,nor,items\n")
    job.launch("--detach")
    assert job.exit_code() == 2
    assert "ratings.csv" in (job.folder / "stderr").read_text()


# ---- the campaign ------------------------------------------------------------------------------------


def leave_a_question_open(job: Product, chance: random.Random) -> None:
    asked = job.screen.count(QUESTION)
    job.press("\x03")
    job.wait_for_screen(QUESTION, asked + 1)
    time.sleep(chance.uniform(0.2, 3.0))
    job.press(chance.choice(["g\n", "\n"]))


def stop_spotctl(job: Product, chance: random.Random) -> None:
    os.kill(driver := job.driver(), signal.SIGSTOP)
    time.sleep(chance.uniform(0.2, 4.0))
    os.kill(driver, signal.SIGCONT)


def stop_a_machine(job: Product, chance: random.Random) -> None:
    """For less than it takes to be given up; the trace may take it meanwhile."""
    there = job.transient
    if there:
        machine = chance.choice(there)
        with (job.folder / "stopped").open("a") as file:
            file.write(f"{machine}\n")
        job.host.freeze(machine)
        time.sleep(chance.uniform(0.2, 2.0))
        job.host.thaw(machine)


def leave(job: Product, chance: random.Random) -> None:
    asked = job.screen.count(QUESTION)
    job.press("\x03")
    job.wait_for_screen(QUESTION, asked + 1)
    job.press("l\n")
    job.exit_code()
    time.sleep(chance.uniform(0.0, 1.0))


def close(job: Product, chance: random.Random) -> None:
    job.close_terminal()
    time.sleep(chance.uniform(0.0, 1.0))


def kill(job: Product, chance: random.Random) -> None:
    job.kill_driver()
    time.sleep(chance.uniform(0.0, 5.0))
    job.launch_at_terminal()


def stop_and_kill(job: Product, chance: random.Random) -> None:
    os.kill(job.driver(), signal.SIGSTOP)
    time.sleep(chance.uniform(0.2, 2.0))
    kill(job, chance)


AT_A_TERMINAL: Final = (leave_a_question_open, leave, close)
"""What needs one; afterwards only the first has left it there."""
ANYWHERE: Final = (stop_spotctl, stop_a_machine, kill, stop_and_kill)
Disturbance = Callable[[Product, random.Random], None]


def disturb(job: Product, chance: random.Random) -> list[str]:
    """Three things at random moments; what they were."""
    done, terminal = [], True
    for _ in range(3):
        job.reach(min(CLOCKS - 1, job.clock + chance.randint(1, 6)))
        if job.all(e.TrainingFinished) or not job.run.is_live():
            break
        possible: Sequence[Disturbance] = (*ANYWHERE, *(AT_A_TERMINAL if terminal else ()))
        chosen = chance.choice(possible)
        chosen(job, chance)
        done.append(getattr(chosen, "__name__", "?"))
        terminal = chosen not in (leave, close) and (terminal or chosen in (kill, stop_and_kill))
    return done


@pytest.mark.campaign
def test_billed_seconds_are_lived_seconds_whatever_happens_to_spotctl(seed: int, job: Product) -> None:
    chance = random.Random(f"billed {seed}")
    begin(job)
    told = disturb(job, chance)
    closed = job.wait_until_closed()
    billed, lived = billed_s(job)
    print(f"seed {seed}: {', '.join(told)}: billed {billed} s, lived {lived:.0f} s, exit {closed.exit_code}")
    assert closed.exit_code == 0, job.chatter
    stopped = job.folder / "stopped"
    check_truth(job, frozenset(stopped.read_text().split()) if stopped.exists() else frozenset())
