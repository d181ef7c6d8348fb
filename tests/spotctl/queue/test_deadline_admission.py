"""What a queue says a promise takes is enough to make it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from pricing_data.model.units import MicroUsd, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.evolve import initial_state
from spotctl.control.state import State
from spotctl.queue.allocation.deadline_admission import judge_deadline
from spotctl.queue.allocation.quotas import Pools
from tests.spotctl.build import START, changed, scripted_trace, terms


@pytest.fixture(scope="module")
def beginning() -> State:
    return initial_state(
        e.JobStarted(START, changed(terms(), deadline_s=Seconds(30 * 86400.0))), scripted_trace()
    )


@given(st.integers(1, 3000), st.floats(0.01, 5) | st.integers(1, 300).map(lambda cents: cents / 100))
@settings(max_examples=40, deadline=None)
def test_the_money_that_is_said_to_be_missing_is_enough(beginning: State, clocks: int, price: float) -> None:
    of = beginning.terms
    dear = tuple(replace(tradable, on_demand=UsdPerHour(price)) for tradable in of.spot)
    state = structs.replace(
        beginning, terms=changed(of, spot=dear, stop=replace(of.work.stop, clocks=clocks))
    )
    refused = judge_deadline(state, Pools(), {}, MicroUsd(0))
    told = re.fullmatch(r"\$(\d+)\.(\d\d) have to be put aside for it, and are not there", refused.why)
    assert told is not None
    made = judge_deadline(state, Pools(), {}, MicroUsd(int(told[1] + told[2]) * 10_000))
    assert made.is_promised
    assert judge_deadline(state, Pools(), {}, made.least_budget).is_promised, "what is put aside, no more"
