"""Decisions survive JSON exactly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.decide import decide, renew_or_terminate
from bidbrain.model import Action, Decision, Weighed
from bidbrain.record import decision_from_json, decision_to_json
from pricing_data.market import Market
from pricing_data.units import Instant, Usd, UsdPerHour
from tests.bidbrain.build import Told, holding, observe

amounts = st.floats(0, 1e9)
markets = st.builds(Market, st.text(), st.text(), st.text(), st.text())
weighed = st.builds(
    Weighed,
    action=st.sampled_from(Action),
    market=st.none() | markets,
    count=st.integers(0, 9),
    bid_delta=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    beta=st.floats(0, 1),
    expected_charge=amounts.map(Usd),
    expected_work=amounts,
    cost_per_work=amounts | st.just(float("inf")),
    chosen=st.booleans(),
    why=st.text(),
)
decisions = st.builds(
    Decision,
    at=st.integers(0, 2**40).map(Instant),
    action=st.sampled_from(Action),
    cost_per_work_now=amounts | st.just(float("inf")),
    why=st.text(),
    weighed=st.lists(weighed, max_size=3).map(tuple),
    considered=st.integers(0, 9999),
    holding=st.none() | st.text(),
    market=st.none() | markets,
    count=st.integers(0, 9),
    bid=st.none() | amounts.map(UsdPerHour),
)


def through_json(decision: Decision) -> Decision:
    return decision_from_json(json.loads(json.dumps(decision_to_json(decision), allow_nan=False)))


@settings(max_examples=50, deadline=None)
@given(decisions)
def test_round_trip(decision: Decision) -> None:
    assert through_json(decision) == decision


def test_round_trip_of_what_is_really_decided() -> None:
    idle = replace(observe(evictions=Told(beta=1.0)), footprint=())
    held = observe(holding("one"))
    for decision in (decide(idle), decide(held), renew_or_terminate(held, "one")):
        assert through_json(decision) == decision


def test_a_record_without_a_field_is_refused() -> None:
    record = decision_to_json(decide(observe()))
    del record["bid"]
    with pytest.raises(KeyError, match="bid"):
        decision_from_json(record)
