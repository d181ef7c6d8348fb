"""Tests what a lost message costs in time, and that a slow link carries nothing twice. In virtual time."""

from __future__ import annotations

import pytest

from agileml.protocol.events import Setup, Stage, StageDecided
from agileml.protocol.messages import Inquiry, Push, Read, ReadDone, Update, UpdateDone
from tests.agileml.simulated.timed import Timed, Traffic

ASK_AFTER_S = 2.0
SETUP = Setup(partitions=2, shards=4, clocks=10**6)
TRAFFIC = Traffic(rows=4000, columns=16, touched=500)
SHARD_S = 0.05
FAST, SLOW = 1e9, 1e4
"""Bytes a second of a link. Over the slow one an answer takes several times ``ASK_AFTER_S``."""
STEADY, MORE = 5, 8
"""Clocks until all is in place, and clocks that are looked at."""


def training(stage: Stage, bytes_per_s: float, ask_after_s: float | None) -> Timed:
    """One reliable machine and two transient ones, steadily at work."""
    job = Timed(SETUP, TRAFFIC, SHARD_S, bytes_per_s, ask_after_s)
    job.tell(StageDecided(stage))
    job.add("r0", "t0", "t1")
    job.reach(STEADY)
    assert [word.stage for word in job.stages] == [stage]
    return job


@pytest.mark.parametrize("stage", [Stage.ONE, Stage.TWO])
@pytest.mark.parametrize("kind", [Read, ReadDone, Update, UpdateDone])
@pytest.mark.parametrize("times", [1, 4])
def test_a_request_or_answer_that_is_lost_costs_the_same_each_time(
    stage: Stage, kind: type, times: int
) -> None:
    check_losses(training(stage, FAST, ASK_AFTER_S), kind, times)


@pytest.mark.parametrize("times", [1, 4])
def test_a_range_for_a_backup_that_is_lost_costs_the_same_each_time(times: int) -> None:
    check_losses(training(Stage.TWO, FAST, ASK_AFTER_S), Push, times)


def check_losses(job: Timed, kind: type, times: int) -> None:
    """Each costs between one and two times ``ASK_AFTER_S``, at most one after the other."""
    steady = max(job.clock_seconds(STEADY - 1, STEADY))
    job.lose(kind, times)
    job.reach(STEADY + MORE)
    longest = max(job.clock_seconds(STEADY + 1, STEADY + MORE))
    assert ASK_AFTER_S < longest < steady + times * 2.1 * ASK_AFTER_S


@pytest.mark.parametrize("stage", [Stage.ONE, Stage.TWO])
def test_what_a_slow_link_still_carries_is_not_sent_again(stage: Stage) -> None:
    alone, asking = (training(stage, SLOW, ask_after_s) for ask_after_s in (None, ASK_AFTER_S))
    for job in (alone, asking):
        job.reach(STEADY + MORE)
    assert min(alone.clock_seconds(STEADY + 1, STEADY + MORE)) > 3 * ASK_AFTER_S
    assert asking.carried[Inquiry] > alone.carried[Inquiry] == 0
    for kind in (Read, ReadDone, Update, UpdateDone, Push):
        assert asking.carried[kind] == alone.carried[kind]
    longest = max(asking.clock_seconds(STEADY + 1, STEADY + MORE))
    assert longest < 1.05 * max(alone.clock_seconds(STEADY + 1, STEADY + MORE))
