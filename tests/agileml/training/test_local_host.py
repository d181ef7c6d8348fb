"""Real processes: the trained model is the plain loop's, bit for bit, whatever happens to the machines."""

from __future__ import annotations

import signal
import tempfile
import time
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from agileml.client import TrainingClient
from agileml.node.agent.notices import NOTICE_FILE_VARIABLE
from agileml.node.tier import Tier
from agileml.protocol.commands import Failed, Finished, JoinedTraining, SafeToKill
from agileml.protocol.events import EvictionWarned, MachineReleased, Stage, StopRequested
from agileml.protocol.telemetry import EvictionNoticed, MachineGivenUp, ObjectiveAt
from agileml.training_host import TrainingHost
from tests.agileml.processes.real_jobs import PATIENCE_S, QUICK, running_job

pytestmark = pytest.mark.process


def test_undisturbed_to_the_last_clock(tmp_path: Path) -> None:
    with running_job(tmp_path, clocks=15, clock_s=0.0) as job:
        job.start("r1", "t1", cores=2)
        assert job.finish().clock == 15
        job.check_result()
        job.check_nothing_left()
        assert job.redone == []


def test_the_objective_of_the_last_clock_is_told_before_the_job_is_over(tmp_path: Path) -> None:
    """Before, a worker kept it for a moment, and servers in stage 2 do not: the model was saved by then."""
    with running_job(tmp_path, clocks=300, clock_s=0.0) as job:
        job.start("r1", "t1", "t2")
        job.finish()
        until_then = takewhile(lambda said: not isinstance(said, Finished), job.heard)
        told = [said.clock for said in until_then if isinstance(said, ObjectiveAt)]
        assert told[-1] == 299
        job.check_result()


def test_a_job_that_is_over_in_a_moment_ends_machines_that_have_not_spoken_yet(tmp_path: Path) -> None:
    """They call again at growing intervals until there is a controller, and would else end by their lease."""
    with running_job(tmp_path, clock_s=0.0, timing=replace(QUICK, lease_s=60.0)) as job:
        job.start("r1", "t1", "t2")
        job.reach(1)
        job.stop()
        ended = time.monotonic()
        job.check_nothing_left()
        assert time.monotonic() - ended < 30.0


def test_through_the_stages_and_back_with_nothing_redone(tmp_path: Path) -> None:
    with running_job(tmp_path, stage3_above=2.0) as job:
        job.start("r1", "t1")
        job.reach(2)
        job.start("t2")
        job.reach_stage(Stage.TWO)
        job.start("t3")
        job.reach_stage(Stage.THREE)
        some = job.evict("t1")
        job.reach_stage(Stage.TWO)
        job.reach(job.clock + 1)
        rest = job.evict("t2", "t3")
        job.reach_stage(Stage.ONE)
        job.reach(job.clock + 1)
        job.stop()
        print(f"safe to kill {some:.3f} s (some) and {rest:.3f} s (all) after the warning")
        job.check_result()
        job.check_nothing_left()
        assert job.redone == []


def test_deaths_one_after_the_other(tmp_path: Path) -> None:
    """A sample of what ``test_kills.py`` does at many moments."""
    with running_job(tmp_path) as job:
        job.start("r1", "t1", "t2")
        job.reach_stage(Stage.TWO)
        for role, machine in (("server", "t1"), ("controller", "r1"), ("worker", "t2"), ("agent", "t2")):
            job.reach(job.clock + 2)
            job.kill_role(role, machine)
        job.reach(job.clock + 2)
        job.kill("t1")
        job.reach(job.clock + 2)
        job.stop()
        job.check_result()
        job.check_nothing_left()
        assert job.redone


def test_a_stop_saves_the_model_as_a_later_client_learns(tmp_path: Path) -> None:
    with running_job(tmp_path, clock_s=0.05, staleness=1) as job:
        job.start("r1", "r2")
        job.reach(3)
        job.client.send_events(StopRequested())
        told = job.client.confirmed_count
        job.client.close()
        job.client = TrainingClient(job.folder.path, told=told, heard=len(job.heard))
        if told == 2:  # the first client had not brought it home; whoever knows what it told says it again
            job.client.send_events(StopRequested())
        finished = job.finish()
        assert finished.clock < job.setup.clocks
        assert Path(finished.path) == job.folder.model_folder
        shards_of_the_model = sorted(path.name for path in job.folder.model_folder.iterdir())
        assert shards_of_the_model == [f"partition-{p:05}.npy" for p in range(job.setup.partitions)]
        job.check_nothing_left()


def test_a_model_that_cannot_be_written_is_kept_until_it_can(tmp_path: Path) -> None:
    """Before, the server that held it died of that, and the training was lost with it."""
    with running_job(tmp_path, clock_s=0.0) as job:
        job.start("r1")
        job.reach(1)
        job.folder.model_folder.write_text("in the way")
        job.client.send_events(StopRequested())
        until = time.monotonic() + PATIENCE_S
        while "the model cannot be written yet: FileExistsError" not in job.logs():
            assert time.monotonic() < until
            job.listen(0.1)
        job.folder.model_folder.unlink()
        job.check_result()
        job.check_nothing_left()


def test_a_client_that_is_away_when_the_job_ends_hears_the_rest_later(tmp_path: Path) -> None:
    with running_job(tmp_path, clocks=20, timing=replace(QUICK, lease_s=4.0)) as job:
        job.start("r1")
        job.reach(2)
        told = job.client.confirmed_count
        job.client.close()
        while job.host.alive_machines():
            time.sleep(0.1)
        job.client = TrainingClient(job.folder.path, told=told, heard=len(job.heard))
        assert job.finish().clock == 20
        job.check_result()
        clocks = [said.clock for said in job.heard if isinstance(said, ObjectiveAt)]
        assert clocks == list(range(20))


def test_a_hanging_machine_is_lost_and_ends_when_it_wakes(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start("r1", "t1", "t2")
        job.reach(2)
        job.host.freeze("t1")
        job.wait(lambda said: said == MachineGivenUp("t1"))
        job.reach(job.clock + 3)
        assert job.host.is_alive("t1")
        job.host.thaw("t1")
        while job.host.is_alive("t1"):
            job.listen(0.1)
        job.stop()
        job.check_result()
        job.check_nothing_left()


def test_a_machine_that_hears_of_its_eviction_itself_leaves_before_anybody_else_knows(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start("r1")
        notice = tmp_path / "notice"
        another = TrainingHost(job.folder.path, {NOTICE_FILE_VARIABLE: str(notice)})
        another.start_machine("t1", Tier.TRANSIENT, 1)
        job.announce("t1")
        job.wait(lambda said: said == JoinedTraining("t1"))
        notice.write_text("30")
        job.wait(lambda said: said == EvictionNoticed("t1", 30.0))
        job.wait(lambda said: said == SafeToKill("t1"))
        job.client.send_events(EvictionWarned(("t1",), 25.0))  # as its provider has it, too late to matter
        another.kill("t1")
        job.client.send_events(MachineReleased("t1"))
        job.reach(job.clock + 2)
        job.stop()
        job.check_result()
        job.check_nothing_left()


def test_who_drains_gives_up_a_read_that_does_not_come_in_half_of_the_notice(tmp_path: Path) -> None:
    """Reads stop where the backup does; of three workers two hold nothing that would have to reach it."""
    with running_job(tmp_path, clock_s=0.0, partitions=1, timing=replace(QUICK, silence_s=30.0)) as job:
        job.train_on("r1", "t1", "t2", "t3")
        job.reach_stage(Stage.TWO)
        job.reach(job.clock + 1)
        assert job.signal_role("server", "r1", signal.SIGSTOP) == 1
        before = -1
        while job.clock > before:  # as long as anybody still reads
            before = job.clock
            job.listen(1.0)
        warned_at = time.monotonic()
        job.client.send_events(EvictionWarned(("t1", "t2", "t3"), 8.0))
        first, second = (job.wait(lambda said: isinstance(said, SafeToKill)) for _ in range(2))
        assert first != second
        assert 3.0 < time.monotonic() - warned_at < 8.0
        job.signal_role("server", "r1", signal.SIGCONT)
        job.wait(lambda said: isinstance(said, SafeToKill))
        job.reach(before + 5)
        job.stop()
        assert job.redone == []
        job.check_result()


def test_a_laptop_that_sleeps_loses_nothing(tmp_path: Path) -> None:
    """All are stopped for longer than silence may last; those that judge it happen to wake up first."""
    timing = replace(QUICK, silence_s=5.0)
    with running_job(tmp_path, timing=timing) as job:
        job.start("r1", "t1")
        job.reach(2)
        for machine in ("r1", "t1"):
            job.host.freeze(machine)
        time.sleep(timing.silence_s + 0.5)
        for machine in ("r1", "t1"):
            job.signal_role("agent", machine, signal.SIGCONT)
        time.sleep(0.3)
        for machine in ("r1", "t1"):
            job.host.thaw(machine)
        job.reach(job.clock + 3)
        job.stop()
        assert job.redone == []
        job.check_result()


def test_an_application_that_cannot_compute_fails_the_job(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import agileml.apps.mf as mf\n"
        "class Broken(mf.MatrixFactorization):\n"
        "    def process(self, shard, values, seed):\n"
        "        raise ArithmeticError('I cannot compute')\n"
    )
    with running_job(tmp_path, application=f"{broken}:Broken") as job:
        job.start("r1", "t1")
        job.wait(lambda said: isinstance(said, Failed))
        job.check_nothing_left()
        assert "I cannot compute" in job.logs()
        assert "gave up: worker died 5 times in a row" in job.logs()


def test_a_machine_can_be_taken_away_the_moment_it_starts_and_by_another_process(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.host.start_machine("t1", Tier.TRANSIENT, 1)
        job.host.kill("t1")
        assert job.host.alive_machines() == []
        job.host.start_machine("t2", Tier.TRANSIENT, 1)
        another = TrainingHost(job.folder.path)
        assert another.alive_machines() == ["t2"]
        another.kill("t2")
        assert job.host.alive_machines() == []


@pytest.mark.parametrize("name", ["", "../t1", "a b", ".t1"])
def test_names_that_cannot_be_folders_are_refused(name: str, tmp_path: Path) -> None:
    with running_job(tmp_path) as job, pytest.raises(ValueError, match="cannot name a new machine"):
        job.host.start_machine(name, Tier.RELIABLE, 1)


def test_too_long_a_name_for_sockets_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / ("deep" * 25)
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    with pytest.raises(OSError, match="set TMPDIR to a shorter path"), running_job(tmp_path):
        pass
