"""The running core over capacity as it was probed: V100 machines of 2023, with their prices of that time.

Prices hardly moved while machines came and went, so nothing here is evicted by price.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.model import Limits, ScalingModel
from pricing_data.formats.availability import read_grid
from pricing_data.formats.traces import read_trace
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.rules import AWS
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour, parse_instant
from spotctl.control.billing import cost_so_far
from spotctl.control.run_spec import MarketOption, Objective, Origin, RunSpec, StopCondition, WorkTerms
from spotctl.control.state import State
from tests.spotctl.build import replay

PROBED_FROM = parse_instant("2023-02-15T21:57:27")
ON_DEMAND = UsdPerHour(3.06)
WORK_H = 24
ZONES = ("us-east-1c", "us-east-2a", "us-west-2c")


def market(zone: str) -> Market:
    return Market("aws", zone[:-1], zone, "p3.2xlarge")


def job(zone: str, start: Instant, deadline_h: float | None) -> RunSpec:
    """A day of work on one V100; what keeps the model is small and does none of it."""
    return RunSpec(
        job="v100",
        origin=Origin(run="r", seed=1, prices="recorded"),
        start=start,
        rules=AWS,
        reliable=MarketOption(Market("aws", zone[:-1], zone, "t3.small"), UsdPerHour(0.0208), 0),
        reliable_count=1,
        spot=(MarketOption(market(zone), ON_DEMAND, 8),),
        limits=Limits(max_instances=1, max_per_allocation=1),
        work=WorkTerms(
            scaling=ScalingModel(1.0, Seconds(120), Seconds(60), stage2_above=0, stage3_above=0.5),
            stop=StopCondition(clocks=WORK_H * 30),
            core_seconds_per_clock=960.0,
        ),
        objective=Objective(deadline_s=None if deadline_h is None else Seconds(deadline_h * HOUR_S)),
        start_s=Seconds(60.0),
    )


def taken_h(state: State) -> float:
    assert state.ending.closed is not None
    assert (state.ending.closed.exit_code, state.work_left) == (0, 0), state.ending.closed.why
    assert state.training.training_over_at is not None
    return (state.training.training_over_at - state.terms.start) / HOUR_S


@pytest.mark.campaign
@pytest.mark.parametrize("zone", ZONES)
def test_a_deadline_is_kept_over_probed_capacity_for_less_than_on_demand(
    zone: str, recorded_data: Path, campaign: bool
) -> None:
    prices = recorded_data / "aws-v100-prices-2023" / "spot_prices.csv.gz"
    trace: PriceHistory = read_trace(prices, only=lambda m: m.zone == zone).history
    probes = recorded_data / "skypilot-spot-traces" / "availability" / "1-node" / "aws-02-15-2023"
    spells = read_grid(probes / f"{zone}_v100_1.json.gz", PROBED_FROM)
    capacity = Observations.from_spells({market(zone): spells})
    whole = WORK_H * ON_DEMAND
    for day in range(15, 36, 2) if campaign else (16,):
        start = Instant(PROBED_FROM + day * 86400)
        for deadline_h in (WORK_H + 2.0, WORK_H + 11.0, WORK_H * 2.5) if campaign else (WORK_H + 11.0,):
            state, _ = replay(job(zone, start, deadline_h), trace, capacity=capacity)
            share = cost_so_far(state).total / 1e6 / whole
            story = f"{zone}, day {day}: {taken_h(state):.1f} of {deadline_h:.0f} h, {share:.2f} of on-demand"
            print(f"{story}, {state.recovery.evicted_allocations} evictions")
            assert taken_h(state) <= deadline_h, story
            assert share < (1.0 if deadline_h < WORK_H + 3 else 0.85), story
