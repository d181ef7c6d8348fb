"""Processes that die over and over, with machines that live on: how long the controller looks on."""

from __future__ import annotations

import pytest

from agileml.controller.cluster import TrainingPhase
from agileml.protocol.commands import Command, Failed
from agileml.protocol.events import MachineLost, ServerLost, ServerReady, WorkerLost, WorkerReady
from tests.agileml.simulated.job import Job, only

PATIENCE = 100


def training() -> Job:
    job = Job(clocks=1000)
    job.up("r0", "t1", "t2")
    job.next_clock()
    return job


def worker_dies(job: Job, times: int, first: int = 1) -> list[Command]:
    """Kills t1's worker so many times; its agent starts another each time, of incarnation ``first`` + 1 and
    so on.
    """
    said: list[Command] = []
    for incarnation in range(first, first + times):
        said += job.tell(WorkerLost("t1", incarnation), WorkerReady("t1", incarnation + 1))
        said += job.settle()
    return said


def test_where_no_clock_comes_of_it_the_job_fails_and_says_so() -> None:
    """For want of memory, say, every worker that reads the input is killed."""
    job = training()
    assert not only(Failed, worker_dies(job, PATIENCE))
    (failed,) = only(Failed, job.tell(WorkerLost("t1", PATIENCE + 1)))
    assert failed.why == (
        "its processes died 101 times, and no clock after 1 was completed; the machines' logs have the reason"
    )
    assert job.cluster.phase is TrainingPhase.FAILED


def test_as_long_as_clocks_are_done_it_goes_on() -> None:
    job = training()
    for round_ in range(5):
        assert not only(Failed, worker_dies(job, PATIENCE - 1, 1 + round_ * (PATIENCE - 1)))
        job.next_clock()
    assert job.cluster.phase is TrainingPhase.TRAINING


def test_clocks_that_were_done_before_do_not_count() -> None:
    """A server that dies sends training back; whoever gets to where it was has got no further."""
    job = training()
    furthest, said, incarnation = job.cluster.completed_clock, list[Command](), 1
    while not (failed := only(Failed, said)):
        owner = next(p.owner for p in job.cluster.partitions if p.owner not in (None, "r0"))
        assert owner is not None
        server = job.cluster.roster.live_server(owner)
        assert server is not None
        incarnation = server.incarnation
        said = job.tell(
            ServerLost(owner, incarnation), ServerReady(owner, incarnation + 1, f"at {owner} again")
        )
        said += job.settle()
        if job.cluster.phase is TrainingPhase.TRAINING and job.cluster.completed_clock < furthest:
            said += job.complete(furthest) + job.settle()
    assert failed[0].why.startswith(f"its processes died 101 times, and no clock after {furthest}")


@pytest.mark.parametrize("machines", [6, 10])
def test_many_machines_may_have_more_deaths(machines: int) -> None:
    job = Job(clocks=1000)
    job.up("r0", *(f"t{number}" for number in range(1, machines)))
    job.next_clock()
    assert not only(Failed, worker_dies(job, 20 * machines))
    assert only(Failed, job.tell(WorkerLost("t1", 20 * machines + 1)))


def test_machines_that_are_lost_are_none_of_it() -> None:
    """Their loss is known to the client, which pays for others in their place."""
    job = training()
    for number in range(3, PATIENCE + 10):
        job.up(f"t{number}")
        assert not only(Failed, job.tell(MachineLost(f"t{number - 1}")) + job.settle())
    assert job.cluster.progress.deaths == 0
