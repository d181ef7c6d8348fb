"""Equations 4.2 to 4.4 on numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bidbrain.bidding.expected_cost import cost_per_work
from bidbrain.bidding.expected_work import (
    AllocationColumns,
    eviction_of_any,
    expected_work,
    mean_time_left,
    reliable_column,
    useful_time,
)
from bidbrain.model import ReliableMachines, ScalingCurve, ScalingModel
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour

IDEAL = ScalingModel(phi=1.0, sigma_s=Seconds(0), lambda_s=Seconds(0), stage2_above=1, stage3_above=15)
SLOWED = ScalingModel(phi=1.0, sigma_s=Seconds(60), lambda_s=Seconds(300), stage2_above=1, stage3_above=15)


def allocations(*rows: tuple[float, float, float, float, float, float]) -> AllocationColumns:
    """Rows of count, cores, time left, uptime, survival, charge."""
    return AllocationColumns(*np.array(rows, dtype=np.float64).reshape(-1, 6).T)


TWO = allocations((4, 4, 3600, 3240, 0.8, 0.16), (2, 8, 1800, 1710, 0.9, 0.12))
"""Four of 4 cores for an hour, beta 0.2; two of 8 cores for half an hour, beta 0.1."""


def test_any_eviction_strikes_the_whole_footprint() -> None:
    assert eviction_of_any(TWO) == pytest.approx(1 - 0.8 * 0.9)


def test_equation_4_2() -> None:
    """0.28 x 300 s are lost to evictions, and 60 s to a change: 3240 - 84 - 60, 1710 - 84 - 60."""
    assert useful_time(TWO, SLOWED, changes=True) == pytest.approx([3096, 1566])
    assert useful_time(TWO, SLOWED, changes=False) == pytest.approx([3156, 1626])


def test_no_allocation_loses_more_time_than_it_has() -> None:
    ending = allocations((4, 4, 30, 30, 1.0, 0.0))
    assert useful_time(ending, SLOWED, changes=True) == pytest.approx([0])


def test_equation_4_3() -> None:
    """Both have 16 cores: 16 x (3096 + 1566); with phi 0.9 on six machines times 0.9 ** log2(6)."""
    assert expected_work(TWO, SLOWED, changes=True) == pytest.approx(16 * 4662)
    curved = ScalingModel(0.9, Seconds(60), Seconds(300), 1, 15)
    assert expected_work(TWO, curved, changes=True) == pytest.approx(16 * 4662 * 0.9 ** math.log2(6))
    constant = ScalingModel(0.9, Seconds(60), Seconds(300), 1, 15, ScalingCurve.CONSTANT)
    assert expected_work(TWO, constant, changes=True) == pytest.approx(16 * 4662 * 0.9)


def test_equation_4_4() -> None:
    assert cost_per_work(TWO, SLOWED, changes=True) == pytest.approx(0.28 / (16 * 4662))


def test_a_second_allocation_spreads_the_idle_reliable_machine_over_more_work() -> None:
    """The paper's toy in numbers: an idle on-demand machine at 0.20 beside one, then two cheap allocations.

    0.20 + 0.10 over 16 core-hours, then 0.20 + 0.10 + 0.12 over 32: dearer in all, cheaper per work.
    """
    idle = ScalingModel(phi=1.0, sigma_s=Seconds(0), lambda_s=Seconds(0), stage2_above=0, stage3_above=0)
    reliable = ReliableMachines(1, UsdPerHour(0.20), 4)
    yellow = allocations((4, 4, HOUR_S, HOUR_S, 1.0, 0.10))
    both = yellow.join_with(allocations((4, 4, HOUR_S, HOUR_S, 1.0, 0.12)))
    costs = [
        float(cost_per_work(f.join_with(reliable_column(f, reliable, idle)), idle, changes=False)) * HOUR_S
        for f in (yellow, both)
    ]
    assert costs == pytest.approx([0.30 / 16, 0.42 / 32])


def test_reliable_machines_work_until_stage_three() -> None:
    reliable = ReliableMachines(2, UsdPerHour(0.20), 4)
    works = reliable_column(allocations((30, 4, HOUR_S, HOUR_S, 1.0, 1.0)), reliable, IDEAL)
    idles = reliable_column(allocations((31, 4, HOUR_S, HOUR_S, 1.0, 1.0)), reliable, IDEAL)
    assert (works.count.tolist(), idles.count.tolist()) == ([2], [0])
    assert works.charge == idles.charge == pytest.approx([0.40])


def test_reliable_machines_are_counted_over_the_mean_time_left() -> None:
    """So that E does not depend on where in its hour a footprint is; an hour where there is nothing else."""
    reliable = ReliableMachines(1, UsdPerHour(0.20), 4)
    assert mean_time_left(TWO) == pytest.approx(2700)
    at_its_start = allocations((4, 4, HOUR_S, HOUR_S, 1.0, 0.10))
    in_the_middle = allocations((4, 4, 1800, 1800, 1.0, 0.05))
    costs = [
        float(cost_per_work(f.join_with(reliable_column(f, reliable, IDEAL)), IDEAL, changes=False))
        for f in (at_its_start, in_the_middle)
    ]
    assert costs[0] == pytest.approx(costs[1])
    alone = reliable_column(allocations(), reliable, IDEAL)
    assert (alone.left_s.tolist(), alone.charge.tolist()) == ([HOUR_S], [0.2])


def test_no_work_costs_infinitely_much() -> None:
    assert cost_per_work(allocations(), IDEAL, changes=False) == np.inf


def test_many_footprints_at_once_are_the_footprints_one_by_one() -> None:
    rows = ((1, 4, 3600, 3500, 0.9, 0.1), (3, 8, 3600, 3000, 0.5, 0.2))
    singly = [float(expected_work(TWO.join_with(allocations(row)), SLOWED, changes=True)) for row in rows]
    added = AllocationColumns(*np.array(rows, dtype=np.float64).T[..., None])
    assert expected_work(TWO.join_with(added), SLOWED, changes=True) == pytest.approx(singly)
