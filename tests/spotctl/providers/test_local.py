"""Machines of this computer, where a crash came between starting them and writing that down."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.job import JobFolder, TrainingJob
from agileml.protocol.events import Setup
from agileml.training_host import TrainingHost
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.errors import CapacityUnavailable
from spotctl.providers.base import Order
from spotctl.providers.local import LocalProvider
from spotctl.providers.simulated import SimulatedProvider
from tests.spotctl.build import MARKETS, START, scripted_trace

DEAR_AT_S = 600


@pytest.mark.process
def test_machines_that_run_were_granted_whatever_the_price_is_now(tmp_path: Path) -> None:
    ratings = tmp_path / "ratings.csv.gz"
    write_ratings(planted_ratings(users=20, items=10, rank=2, noise=0.1, density=0.5, seed=0), ratings)
    job = TrainingJob(
        "agileml.apps.mf:MatrixFactorization", {"rank": 2}, Setup(partitions=1, shards=2, clocks=1)
    )
    JobFolder.prepare(tmp_path / "job", job, ratings)
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
