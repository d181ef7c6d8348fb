"""Stages by measured cost: what is reported, what follows from it, and that nothing flaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agileml.controller.cluster import ClusterState
from agileml.controller.placement.load_model import LoadReports, measure_clock_cost
from agileml.controller.stages import WORTH_A_CHANGE, ClockCost, Footprint, cheapest_stage, clock_seconds
from agileml.protocol.commands import StageChanged
from agileml.protocol.events import ClockCompleted, ServerLoad, Setup, Stage, WorkerLoad
from agileml.protocol.messages import (
    Patch,
    Peer,
    Push,
    Read,
    ReadDone,
    Reply,
    Send,
    ShardDelta,
    Update,
    UpdatePart,
)
from agileml.protocol.meters import REPORT_EVERY_S, ServerMeter, WorkerMeter
from agileml.sync.bounded_staleness import make_barrier
from tests.agileml.simulated.job import Job

seconds = st.floats(0.0, 1e3)
loads = st.builds(ClockCost, st.floats(0.01, 1e3), seconds, seconds, st.floats(0.0, 2.0))
footprints = st.builds(
    lambda reliable, transient, cores: Footprint(
        reliable, transient, (transient + 1) // 2, reliable * cores, transient * cores
    ),
    st.integers(1, 64),
    st.integers(1, 64),
    st.integers(1, 8),
)


@given(
    loads, footprints, st.sampled_from(Stage), st.dictionaries(st.sampled_from(Stage), st.floats(0.3, 3.0))
)
def test_a_stage_is_left_only_for_one_that_is_worth_it_and_then_kept(
    load: ClockCost, on: Footprint, stage: Stage, strayed: dict[Stage, float]
) -> None:
    def seconds_of(some: Stage) -> float:
        return strayed.get(some, 1.0) * clock_seconds(some, load, on)

    chosen = cheapest_stage(stage, load, on, strayed)
    assert cheapest_stage(chosen, load, on, strayed) is chosen
    assert seconds_of(chosen) * WORTH_A_CHANGE <= min(map(seconds_of, Stage))
    if chosen is not stage:
        assert seconds_of(chosen) < WORTH_A_CHANGE * seconds_of(stage)


@pytest.mark.parametrize(
    ("reliable", "straggling", "stage"),
    [(32, 1.0, Stage.ONE), (4, 0.2, Stage.TWO), (1, 1.0, Stage.THREE)],
)
def test_each_stage_wins_where_the_paper_says(reliable: int, straggling: float, stage: Stage) -> None:
    """64 machines: 4 s of computing, 0.1 s of a link for a worker each way, 3 s for all pushes."""
    load = ClockCost(4.0 * 64, 0.2 * 64, 3.0, straggling)
    transient = 64 - reliable
    on = Footprint(reliable, transient, transient // 2, reliable, transient)
    assert min(Stage, key=lambda some: clock_seconds(some, load, on)) is stage


def worked(job: Job, busy_s: dict[str, float], *, computing_s: float, clock_s: float) -> None:
    """Workers report, each of two shards, and once more: a first report may tell of what was before."""
    for machine in 2 * list(busy_s):
        job.tell(WorkerLoad(machine, 1, 2, computing_s, busy_s[machine], clock_s))


def stage_of(job: Job) -> Stage:
    return job.cluster.stages.current


def automatic_job() -> Job:
    return Job(automatic=True, link_bytes_per_s=1000.0, stage2_above=100.0, stage3_above=100.0)


def test_reports_move_the_job_through_the_stages_whatever_the_ratio_says() -> None:
    job = automatic_job()
    job.up("r0", "t1", "t2", "t3")
    assert stage_of(job) is Stage.ONE
    job.tell(ServerLoad("r0", 1, completions=4, exchanged=8000, pushed=0))
    assert stage_of(job) is Stage.ONE  # nothing is known of the computing yet
    worked(job, {"t1": 3.0}, computing_s=0.5, clock_s=8.5)
    assert StageChanged(Stage.TWO) in job.settle()
    assert stage_of(job) is Stage.TWO
    # 4 partitions of 250 bytes are pushed each clock: 1 s of r0's link, by a fifth of which its worker lags.
    job.tell(ServerLoad("t1", 1, completions=2, exchanged=4000, pushed=500))
    worked(job, {"t1": 3.0, "t2": 3.0, "r0": 3.2}, computing_s=0.5, clock_s=4.5)
    assert job.cluster.stages.loads.straggling == pytest.approx(0.2)
    job.settle()
    assert stage_of(job) is Stage.TWO  # so little lag is less than a twentieth of the clock


def test_a_worker_that_lags_beside_a_backup_is_retired_and_called_back() -> None:
    job = automatic_job()
    job.up("r0", *(f"t{number}" for number in range(1, 5)))
    job.tell(ServerLoad("r0", 1, completions=4, exchanged=20_000, pushed=0))
    worked(job, {"t1": 3.0}, computing_s=4.0, clock_s=21.6)
    job.settle()
    assert stage_of(job) is Stage.TWO
    job.tell(ServerLoad("t1", 1, completions=4, exchanged=20_000, pushed=8000))
    worked(job, {"t1": 3.0, "r0": 11.0}, computing_s=4.0, clock_s=19.6)
    job.settle()
    job.next_clock()
    assert (stage_of(job), job.shards("r0")) == (Stage.THREE, 0)
    job.tell(ServerLoad("t1", 1, completions=4, exchanged=20_000, pushed=80))
    job.settle()
    assert stage_of(job) is Stage.THREE  # 0.4 s of computing more is not worth a change
    assert job.cluster.stages.loads.straggling == pytest.approx(1.0)


def test_automatic_stages_need_to_know_what_a_link_carries() -> None:
    setup = Setup(1, 1, 1, automatic=True)
    with pytest.raises(ValueError, match="link_bytes_per_s"):
        ClusterState.from_setup(setup, make_barrier(setup))


def test_what_a_clock_costs_is_summed_over_servers_and_workers() -> None:
    setup = Setup(partitions=4, shards=8, clocks=1, automatic=True, link_bytes_per_s=100.0)
    known = LoadReports().with_worker(
        WorkerLoad("t1", 1, 4, computing_s=2.0, busy_s=9.0, clock_s=9.5), version=1
    )
    assert measure_clock_cost(known, setup) is None
    known = known.with_server(ServerLoad("t1", 1, completions=2, exchanged=600, pushed=100))
    known = known.with_server(ServerLoad("t2", 1, completions=1, exchanged=300, pushed=50))
    assert measure_clock_cost(known, setup) == ClockCost(
        computing_s=4.0, exchanged_s=12.0, pushed_s=2.0, straggling=0.0
    )


def test_a_server_counts_the_arrays_it_exchanges_and_pushes() -> None:
    rows, values = np.arange(3), np.zeros((3, 2), np.float32)
    patch = Patch(rows, values)
    meter = ServerMeter("t1", 2, now=0.0)
    meter.count_received(
        Update(1, 0, 1, parts=(UpdatePart(0, 1, (ShardDelta(0, patch), ShardDelta(1, patch))),), cut=False)
    )
    meter.count_sent(Reply("worker/t2/1", ReadDone(1, 0, values)))
    assert meter.make_report(REPORT_EVERY_S) is None  # no clock was completed
    meter.count_sent(ClockCompleted("t1", 0, 0, 1))
    meter.count_sent(Send(Peer("r0", "there"), Push(0, 0, 0, 0, 1, patch)))
    assert meter.make_report(REPORT_EVERY_S / 2) is None
    assert meter.make_report(REPORT_EVERY_S) == ServerLoad("t1", 2, 1, exchanged=2 * 48 + 24, pushed=48)
    assert meter.make_report(2 * REPORT_EVERY_S) is None


def test_a_worker_is_busy_from_its_first_value_to_its_next_clock() -> None:
    """The second clock's answer is there before the first clock is done."""
    meter = WorkerMeter("t1", 1, now=0.0)
    server = Peer("r0", "there")
    for request, clock in enumerate((1, 1, 2, 3), 1):  # for the first from two servers
        meter.note_request(Send(server, Read(request, 0, clock, ())))
    meter.set_clock(1, 0.5)
    for request, at in ((1, 1.0), (2, 1.5), (3, 2.5)):
        meter.note_answer(ReadDone(request, 0, np.zeros((1, 1), np.float32)), at)
    meter.set_clock(1, 3.0)
    meter.set_clock(2, 4.0)
    meter.set_clock(3, 7.0)
    meter.count_computed(shards=4, core_s=2.0)
    assert meter.make_report(REPORT_EVERY_S) == WorkerLoad("t1", 1, 4, 2.0, busy_s=3.0, clock_s=3.25)
