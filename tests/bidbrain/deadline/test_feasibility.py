"""What can be promised, and what can not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from bidbrain.deadline.baselines import on_demand
from bidbrain.deadline.feasibility import Promise, least_budget, least_deadline_s
from bidbrain.deadline.model import Job
from bidbrain.deadline.simulator import simulate
from pricing_data.units import HOUR_S, Usd
from tests.bidbrain.deadline.build import TICK_S, job, jobs


def promise(of: Job, budget: float) -> Promise:
    return Promise(of, Usd(budget), least_deadline_s(of), least_budget(of))


@settings(deadline=None)
@given(jobs())
def test_on_demand_alone_keeps_the_promise_to_the_dollar(of: Job) -> None:
    runs = simulate(of, np.zeros((1, of.ticks), dtype=np.bool_), on_demand)

    assert not runs.late[0]
    assert runs.cost[0] == pytest.approx(least_budget(of))
    assert least_deadline_s(of) <= of.deadline_s


def test_what_cannot_be_promised_names_what_can() -> None:
    of = job(work=6, deadline=5, overhead=0.5)

    answer = promise(of, budget=1.0)

    assert not answer.holds
    assert answer.least_deadline_s == 6.5 * TICK_S
    assert answer.least_budget == pytest.approx(7 * 0.6)
    assert "the least that works is 1.09 h" in answer.why_not
    assert "the least that works is 4.20 $" in answer.why_not


def test_what_was_named_works_when_it_is_asked_for() -> None:
    of = job(work=6, deadline=1.09 * HOUR_S / TICK_S, overhead=0.5)

    answer = promise(of, budget=4.2)

    assert answer.holds
    assert answer.why_not == ""
