"""The ladder of strategies on recorded GPU prices, against what the dissertation claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.papers.gpus import DYNAMIC, JOBS, LADDER, ladder, lost_every_h, markets, speeds


@pytest.mark.campaign
def test_the_ladder(recorded_data: Path, campaign: bool) -> None:
    """Sampled: the job that gains most; in full, all of table 6.1."""
    found, speed = markets(recorded_data), speeds(recorded_data)
    jobs = JOBS if campaign else JOBS[:1]
    four_days = {job: ladder(found, speed, job, 4) for job in jobs}
    for rungs in four_days.values():
        costs = [rungs[name].cost for name in (*LADDER, DYNAMIC)]
        assert costs == sorted(costs, reverse=True)
        assert rungs[DYNAMIC].moves <= 3
        assert rungs[DYNAMIC].starts > 10
    gains = {job: rungs["1xV100"].cost / rungs[DYNAMIC].cost for job, rungs in four_days.items()}
    assert max(gains.values()) > 3.4
    week = ladder(found, speed, JOBS[0], 7)
    assert week["multi-cloud"].cost / week[DYNAMIC].cost > 1.2


def test_recorded_markets_are_complete(recorded_data: Path) -> None:
    found, speed = markets(recorded_data), speeds(recorded_data)
    assert {gpu.gpu for gpu in found} == {"k80", "p100", "v100"}
    assert {gpu.market.cloud for gpu in found} == {"aws", "azure"}
    assert all((job, gpu.gpu) in speed for job in JOBS for gpu in found)
    hours, losses = lost_every_h(recorded_data)["1xk80"]
    assert losses > 0
    assert hours > 1
