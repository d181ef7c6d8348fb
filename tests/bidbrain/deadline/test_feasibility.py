"""Tests what can be promised, and what cannot."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.deadline.baselines import on_demand_rule
from bidbrain.deadline.benchmark import simulate_rule
from bidbrain.deadline.feasibility import Promise, least_budget, least_deadline_s, round_up_budget
from bidbrain.deadline.model import DeadlineJob
from pricing_data.model.units import HOUR_S, Seconds, Usd, UsdPerHour, format_micros, parse_duration
from tests.bidbrain.deadline.build import TICK_S, job, jobs


def promise(of: DeadlineJob, budget: float) -> Promise:
    return Promise(of, Usd(budget), least_deadline_s(of), least_budget(of))


@settings(deadline=None)
@given(jobs())
def test_on_demand_alone_keeps_the_promise_to_the_dollar(of: DeadlineJob) -> None:
    runs = simulate_rule(of, np.zeros((1, of.tick_count), dtype=np.bool_), on_demand_rule)

    assert not runs.late[0]
    assert runs.cost[0] == pytest.approx(least_budget(of))
    assert least_deadline_s(of) <= of.deadline_s


def test_what_cannot_be_promised_names_what_can() -> None:
    of = job(work=6, deadline=5, overhead=0.5)

    answer = promise(of, budget=1.0)

    assert not answer.is_feasible
    assert answer.least_deadline_s == 6.5 * TICK_S
    assert answer.least_budget == pytest.approx(7 * 0.6)
    assert "the least that works is 1.09 h" in answer.why_not
    assert "the least that works is 4.20 $" in answer.why_not


def test_what_was_named_works_when_it_is_asked_for() -> None:
    of = job(work=6, deadline=1.09 * HOUR_S / TICK_S, overhead=0.5)

    answer = promise(of, budget=4.2)

    assert answer.is_feasible
    assert answer.why_not == ""


@settings(deadline=None)
@given(
    work_s=st.floats(1, 1e6),
    overhead_s=st.floats(0, 2000),
    tick_s=st.sampled_from([120.0, 600.0, 3600.0]),
    price=st.floats(1e-4, 400) | st.integers(1, 400_000).map(lambda milli: milli / 1000),
    reserve_s=st.floats(0, 5000),
)
def test_whatever_is_named_works_when_it_is_typed_in(
    work_s: float, overhead_s: float, tick_s: float, price: float, reserve_s: float
) -> None:
    """In hours and cents, as it is told, and to the micro-dollar, as programs read it."""
    of = DeadlineJob(
        work_s=Seconds(work_s),
        deadline_s=Seconds(1.0),
        overhead_s=Seconds(overhead_s),
        tick_s=Seconds(tick_s),
        spot=UsdPerHour(0.0),
        on_demand=UsdPerHour(price),
        reserve_s=reserve_s,
    )
    told = re.findall(r"the least that works is ([0-9.]+) (h|\$)", promise(of, budget=-1.0).why_not)
    (hours, _), (dollars, _) = told if len(told) == 2 else [("1000", "h"), *told]
    typed = replace(of, deadline_s=parse_duration(f"{hours}h"))
    to_the_micro = format_micros(round_up_budget(least_budget(of), step=1))
    for budget in (dollars, to_the_micro):
        assert promise(typed, float(budget)).is_feasible
    assert float(to_the_micro) == pytest.approx(least_budget(of), abs=1.1e-6)
