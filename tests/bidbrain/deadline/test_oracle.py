"""The clairvoyant optimum is what trying every way finds, and no rule goes below it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.arrays import Flags
from bidbrain.deadline.availability_belief import BeliefBatch
from bidbrain.deadline.benchmark import simulate_rule
from bidbrain.deadline.least_cost import LeastCost
from bidbrain.deadline.model import Codes, DeadlineJob, DeadlineStates, MachineKind
from bidbrain.deadline.oracle import least_costs
from pricing_data.model.units import Seconds
from tests.bidbrain.deadline.build import job, jobs


def brute_force(of: DeadlineJob, up: Flags) -> float:
    """The least cost of all 3 ** ticks plans for one window, each run by the simulator."""
    plans = np.array(list(product([int(machine) for machine in MachineKind], repeat=of.tick_count)))
    plans = plans[~((plans == MachineKind.SPOT) & ~up).any(axis=1)]

    def follow(now: DeadlineStates, _: BeliefBatch) -> Codes:
        tick = round((of.deadline_s - now.left_s[0]) / of.tick_s)
        machines: Codes = plans[:, tick]
        return machines

    runs = simulate_rule(of, np.tile(up, (len(plans), 1)), follow)
    return float(np.where(runs.late, np.inf, runs.cost).min())


@settings(max_examples=40, deadline=None)
@given(
    work=st.integers(1, 10),
    overhead=st.integers(0, 5),
    ticks=st.integers(1, 6),
    on_demand=st.sampled_from([3.6, 0.6]),
    data=st.data(),
)
def test_it_is_what_trying_every_way_finds(
    work: int, overhead: int, ticks: int, on_demand: float, data: st.DataObject
) -> None:
    up = np.array(data.draw(st.lists(st.booleans(), min_size=ticks, max_size=ticks)))
    of = job(work=work / 2, deadline=ticks, overhead=overhead / 2, on_demand=on_demand)

    assert least_costs(of, up[None])[0] == pytest.approx(brute_force(of, up))


@settings(deadline=None)
@given(jobs(), st.integers(0, 1000))
def test_no_policy_goes_below_it(of: DeadlineJob, seed: int) -> None:
    up = np.random.default_rng(seed).random((8, of.tick_count)) < 0.6

    ours = simulate_rule(of, up, LeastCost.for_job(of).cheapest_machines).cost

    assert (ours >= least_costs(of, up) - 1e-9).all()


def test_it_needs_whole_seconds() -> None:
    of = DeadlineJob(Seconds(100.5), Seconds(1200), Seconds(0), Seconds(600), job().spot, job().on_demand)

    with pytest.raises(ValueError, match="whole seconds"):
        least_costs(of, np.ones((1, 2), dtype=np.bool_))
