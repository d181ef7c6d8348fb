"""Tests that an activity is reported once it takes longer than ever before, in time in
which the process ran.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agileml.node.agent.watchdog import Activities, RecordedStall, Stall, StallLog, recorded_stalls
from agileml.node.liveness import SilenceTimer
from tests.agileml.processes.real_jobs import PATIENCE_S, QUICK, running_job

EVERY_S, AFTER_S = 5.0, 60.0


class Looking:
    """Looks every five seconds, as the thread beside a main loop does."""

    def __init__(self) -> None:
        self.doings = Activities()
        self._now = 1000.0
        self._listening = SilenceTimer(self._now, 2 * EVERY_S)

    def after(self, seconds: float) -> tuple[Stall, ...]:
        """At once after so long: who was stopped meanwhile has not looked."""
        self._now += seconds
        self._listening.wake_up(self._now)
        return self.doings.find_stalled(self._listening, AFTER_S)

    def through(self, seconds: float) -> Iterator[Stall]:
        for _ in range(int(seconds / EVERY_S)):
            yield from self.after(EVERY_S)


@pytest.fixture
def looking() -> Looking:
    return Looking()


def test_a_loop_that_turns_has_nothing_to_tell(looking: Looking) -> None:
    loop = looking.doings.add_thread("starting")
    for _ in range(200):
        loop.start_turn()
        with loop.while_doing("computing clock {}", 7):
            pass
        assert looking.after(EVERY_S) == ()


def test_what_never_ends_is_told_after_a_minute_and_then_ever_more_seldom(looking: Looking) -> None:
    loop = looking.doings.add_thread("starting")
    loop.start_turn()
    with loop.while_doing("reading partition {} of {}", 3, "s3://dead/store"):
        overdue = list(looking.through(1000.0))
        assert {one.what for one in overdue} == {"reading partition 3 of s3://dead/store"}
        news = [one.seconds for one in overdue if one.news]
    assert news == [60.0, 120.0, 240.0, 480.0, 960.0]
    loop.start_turn()
    assert looking.after(EVERY_S) == ()


def test_a_start_that_never_ends_and_a_loop_that_stops_by_itself_are_told(looking: Looking) -> None:
    looking.doings.add_thread("starting")
    looking.doings.add_thread("starting").start_turn()
    assert {one.what for one in looking.through(100.0)} == {"starting", "handling messages"}


def test_what_always_takes_long_is_told_the_first_time_only(looking: Looking) -> None:
    """A clock of ten minutes is a clock of ten minutes."""
    loop = looking.doings.add_thread("starting")
    news = []
    for _ in range(5):
        loop.start_turn()
        with loop.while_doing("computing"):
            news.append([one for one in looking.through(600.0) if one.news])
    assert [len(some) for some in news] == [4, 0, 0, 0, 0]
    with loop.while_doing("reading"):
        assert list(looking.through(100.0)), "how long it computes says nothing of how long it reads"


def test_time_in_which_all_was_stopped_is_none(looking: Looking) -> None:
    loop = looking.doings.add_thread("starting")
    loop.start_turn()
    assert looking.after(EVERY_S) == ()
    assert looking.after(8 * 3600.0) == (), "a laptop slept"
    assert looking.after(EVERY_S) == ()


def test_a_thread_that_waits_for_work_may_do_so_for_ever(looking: Looking) -> None:
    writer = looking.doings.add_thread("")
    assert list(looking.through(1000.0)) == []
    with writer.while_doing("keeping a checkpoint"):
        assert list(looking.through(100.0))
    assert list(looking.through(1000.0)) == []


def test_what_is_not_sure_to_come_is_told_until_it_has(looking: Looking) -> None:
    saving = looking.doings.add_thread("")
    saving.set_activity("writing the model, which failed: {}", "no room")
    assert [one.what for one in looking.through(100.0)][:1] == ["writing the model, which failed: no room"]
    saving.set_activity("")
    assert list(looking.through(1000.0)) == []


def test_what_is_told_is_kept_beside_the_process_while_it_lasts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r1").mkdir()
    told = StallLog(tmp_path / "r1", "server")
    told.report_stalls((Stall("reading", 64.0, news=True),), now=1064.0)
    told.report_stalls((Stall("reading", 80.0, news=False),), now=1080.0)
    assert list(recorded_stalls(tmp_path)) == [RecordedStall("r1", "server", "reading", 1000.0)]
    assert capsys.readouterr().err == "still at it after 64 s: reading\n"
    told.report_stalls((), now=1090.0)
    assert list(recorded_stalls(tmp_path)) == []


def test_a_disk_that_refuses_to_keep_what_is_told_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told, reading = StallLog(tmp_path / "r1", "server"), Stall("reading", 64.0, news=False)
    told.report_stalls((reading,), now=1064.0)
    told.report_stalls((reading,), now=1064.0)
    log = capsys.readouterr().err
    assert log.startswith("what it is at cannot be kept: ")
    assert len(log.splitlines()) == 1
    (tmp_path / "r1").mkdir()
    told.report_stalls((reading,), now=1064.0)
    assert list(recorded_stalls(tmp_path)) == [RecordedStall("r1", "server", "reading", 1000.0)]
    (tmp_path / "r1").rename(tmp_path / "r2")
    (tmp_path / "r1").write_text("no folder")
    told.report_stalls((), now=1070.0)
    (tmp_path / "r1").unlink()
    (tmp_path / "r2").rename(tmp_path / "r1")
    told.report_stalls((), now=1075.0)
    assert list(recorded_stalls(tmp_path)) == []


def test_a_log_that_is_full_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        StallLog(tmp_path, "server").report_stalls((Stall("reading", 64.0, news=True),), now=1064.0)
        monkeypatch.undo()
        with suppress(OSError):
            full.close()
    assert (tmp_path / "server.waits").exists()


def test_what_a_killed_process_was_at_is_forgotten_by_the_next(tmp_path: Path) -> None:
    StallLog(tmp_path, "worker").report_stalls((Stall("computing", 64.0, news=True),), now=1064.0)
    StallLog(tmp_path, "worker")
    assert list(tmp_path.iterdir()) == []


GATED = '''
import time
from pathlib import Path
from agileml.apps.mf import MatrixFactorization

class Gated(MatrixFactorization):
    """Computes its second clock once somebody lets it."""

    def process(self, shard, values, seed):
        while seed[1] == 2 and not Path({gate!r}).exists():
            time.sleep(0.02)
        return MatrixFactorization.process(self, shard, values, seed)
'''


@pytest.mark.process
def test_a_worker_whose_application_never_returns_says_so_lives_and_goes_on(tmp_path: Path) -> None:
    gate, app = tmp_path / "gate", tmp_path / "gated.py"
    app.write_text(GATED.format(gate=str(gate)))
    timing = replace(QUICK, told_after_s=0.4)
    with running_job(tmp_path, clocks=4, clock_s=0.0, application=f"{app}:Gated", timing=timing) as job:
        job.start("r1")
        machines = job.folder.path / "machines"
        until = time.monotonic() + PATIENCE_S
        while not (found := [wait for wait in recorded_stalls(machines) if "in clock 2" in wait.what]):
            assert time.monotonic() < until
            job.listen(0.1)
        assert {(wait.machine, wait.process) for wait in found} == {("r1", "worker")}
        job.listen(2 * timing.silence_s)
        gate.touch()
        assert job.finish().clock == 4
        job.check_result()
        assert "still at it after" in (machines / "r1" / "worker.log").read_text()
