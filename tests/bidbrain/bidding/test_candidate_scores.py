"""Requests weighed in bulk are the footprints with them, one by one; expected charges likewise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.billed_time import billed_seconds
from bidbrain.bidding.candidate_scores import RequestGrid, score_candidates
from bidbrain.bidding.expected_cost import cost_per_work, expected_charge, footprint_charge
from bidbrain.bidding.expected_work import AllocationColumns, expected_work, reliable_column
from bidbrain.model import ReliableMachines, ScalingModel
from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016, AZURE, GCP
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.integers(0, 4))
def test_weighed_in_bulk_as_one_by_one(seed: int, held: int, reliable_count: int) -> None:
    rng = np.random.default_rng(seed)
    scaling = ScalingModel(0.9, Seconds(60), Seconds(240), 1, 3)
    reliable = ReliableMachines(reliable_count, UsdPerHour(0.2), 4)
    footprint = _allocations(rng, (1, held))
    counts = np.array([1.0, 3.0, 8.0])
    grid = RequestGrid(
        cores=np.array([4.0, 8.0]),
        counts=counts[None, None, :],
        left_s=np.full(2, 3600.0),
        uptime_s=rng.uniform(0, 3600, (1, 2, 5)),
        survival=rng.uniform(0, 1, (1, 2, 5)),
        charge=rng.uniform(0.01, 0.1, (1, 2, 5)),
    )
    left = np.array([rng.choice([np.inf, 50_000.0])])
    weights = score_candidates(footprint, grid, reliable, scaling, left)
    for m, c, d in np.ndindex(2, 3, 5):
        at = (0, m, d)
        columns = (counts[c], grid.cores[m], 3600.0, grid.uptime_s[at], grid.survival[at])
        added = AllocationColumns(*(np.array([[x]]) for x in (*columns, counts[c] * grid.charge[at])))
        both = footprint.join_with(added)
        whole = both.join_with(reliable_column(both, reliable, scaling))
        work = np.minimum(expected_work(whole, scaling, changes=True), left)
        assert weights.work[0, m, c, d] == pytest.approx(float(work[0]))
        assert weights.charge[0, m, c, d] == pytest.approx(float(footprint_charge(whole)[0]))
        ratio = cost_per_work(whole, scaling, changes=True, work_left=left)
        assert weights.cost_per_work[0, m, c, d] == pytest.approx(float(ratio[0]))


def _allocations(rng: np.random.Generator, shape: tuple[int, int]) -> AllocationColumns:
    left = rng.uniform(60, 3600, shape)
    return AllocationColumns(
        count=rng.integers(1, 6, shape).astype(np.float64),
        cores=rng.choice([4.0, 8.0], shape),
        left_s=left,
        uptime_s=left * rng.uniform(0.2, 1, shape),
        survival=rng.uniform(0, 1, shape),
        charge=rng.uniform(0.01, 0.4, shape),
    )


class Constant:
    """A constant hazard, one by one and in bulk."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s

    def survival(self, horizon_s: float) -> float:
        return float(np.exp(-self.per_s * horizon_s))

    def expected_uptime(self, horizon_s: float) -> Seconds:
        return Seconds((1 - self.survival(horizon_s)) / self.per_s)

    def __call__(self, horizon_s: Floats, _: Flags) -> tuple[Floats, Floats]:
        survival = np.exp(-self.per_s * horizon_s)
        return survival, (1 - survival) / self.per_s


@pytest.mark.parametrize("rules", [AWS_2016, AWS, GCP, AZURE], ids=lambda rules: rules.name)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_charges_in_bulk_are_the_charges_one_by_one(rules: MarketRules, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lives = Constant(float(rng.uniform(1e-5, 1e-2)))
    age = rng.choice([0.0, 30.0, 59.0, 1800.0, 3599.0, 3600.0, 9000.0], 12)
    horizon = rng.uniform(1, 2 * HOUR_S, 12)
    survival = np.exp(-lives.per_s * horizon)
    billed = billed_seconds(rules, age, horizon, survival, lives)
    for i in range(12):
        alone = expected_charge(rules, UsdPerHour(1.0), float(age[i]), float(horizon[i]), lives)
        assert billed[i] / HOUR_S == pytest.approx(alone)
