"""Machines of this computer, where a crash came between starting them and writing that down."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.job import JobFolder, TrainingJob
from agileml.node.tier import Tier
from agileml.protocol.events import Setup
from agileml.training_host import TrainingHost
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.errors import CapacityUnavailable, InstanceNotFound
from spotctl.providers.base import InstanceStatus, Order, Report, live_instances
from spotctl.providers.local import LeftMachines, LocalProvider
from spotctl.providers.simulated import SimulatedProvider
from tests.spotctl.build import MARKETS, START, scripted_trace

DEAR_AT_S = 600


def prepare_job(folder: Path) -> None:
    ratings = folder.with_name("ratings.csv.gz")
    write_ratings(planted_ratings(users=20, items=10, rank=2, noise=0.1, density=0.5, seed=0), ratings)
    job = TrainingJob(
        "agileml.apps.mf:MatrixFactorization", {"rank": 2}, Setup(partitions=1, shards=2, clocks=1)
    )
    JobFolder.prepare(folder, job, ratings)


@pytest.mark.process
def test_machines_that_run_were_granted_whatever_the_price_is_now(tmp_path: Path) -> None:
    prepare_job(tmp_path / "job")
    host = TrainingHost(tmp_path / "job")
    trace = scripted_trace((0, DEAR_AT_S, 1.5))

    def provider(after_s: int) -> LocalProvider:
        """As a process that starts then makes it: what an earlier one granted it does not know."""
        market = SimulatedProvider(trace, AWS_2016, 60, lambda: Instant(START + after_s))
        return LocalProvider(market, host)

    order = Order("s1", MARKETS[0], 1, UsdPerHour(0.1), cores=1)
    try:
        names = provider(after_s=0).request(order)
        assert host.alive_machines() == list(names)
        assert provider(after_s=DEAR_AT_S).request(order) == names
        with pytest.raises(CapacityUnavailable):
            provider(after_s=DEAR_AT_S).request(Order("s2", MARKETS[0], 1, UsdPerHour(0.1), cores=1))
        assert host.alive_machines() == list(names)
    finally:
        host.kill_all()


@pytest.mark.process
def test_whoever_finds_a_run_lists_and_ends_its_machines_without_a_market(tmp_path: Path) -> None:
    left = LeftMachines(tmp_path / "job")
    assert left.describe() == ()
    prepare_job(tmp_path / "job")
    host = TrainingHost(tmp_path / "job")
    try:
        for name in ("s1-0", "s1-1"):
            host.start_machine(name, Tier.TRANSIENT, 1)
        assert live_instances(left) == ("s1-0", "s1-1")
        left.terminate(["s1-0"])
        assert left.describe() == (
            Report("s1-0", "s1", InstanceStatus.ENDED),
            Report("s1-1", "s1", InstanceStatus.RUNNING),
        )
        with pytest.raises(InstanceNotFound, match="s9-0"):
            left.terminate(["s9-0", "s1-1"])
        assert live_instances(left) == ()
        left.terminate(["s1-0", "s1-1"])  # what has ended already is no error
    finally:
        host.kill_all()
