"""Entries and settings to JSON and back: nothing is lost, nothing unknown is swallowed."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.cluster.lease import Lease
from bidbrain.model import Action, Candidate, Decision
from pricing_data.model.billing import EndReason
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, MicroUsd, UsdPerHour
from spotctl.control import entries as e
from spotctl.records.codec import CodecError, decode_entry, encode_entry, from_json, to_json
from tests.spotctl.build import MARKETS, START, terms

NUMBERS = st.floats(allow_nan=False)
INSTANTS = st.integers(0, 2**40).map(Instant)
PRICES = NUMBERS.map(UsdPerHour)
MARKET = st.builds(Market, *[st.text(max_size=8)] * 4)
WEIGHED = st.builds(
    Candidate,
    st.sampled_from(Action),
    st.none() | MARKET,
    st.integers(0, 100),
    st.none() | NUMBERS,
    *[NUMBERS] * 4,
    st.booleans(),
    st.text(max_size=20),
)
DECISIONS = st.builds(
    Decision,
    INSTANTS,
    st.sampled_from(Action),
    NUMBERS,
    st.text(max_size=20),
    st.lists(WEIGHED, max_size=3).map(tuple),
    st.integers(0, 10**6),
    st.none() | st.text(max_size=5),
    st.none() | MARKET,
    st.integers(0, 100),
    st.none() | PRICES,
)
LEASES = st.builds(Lease, st.lists(MARKET, min_size=1, max_size=3).map(tuple), st.integers(1, 100), INSTANTS)
BY_HINT = {
    "Lease | None": st.none() | LEASES,
    "MicroUsd | None": st.none() | st.integers(0, 2**60).map(MicroUsd),
    "Instant": INSTANTS,
    "Instant | None": st.none() | INSTANTS,
    "UsdPerHour": PRICES,
    "UsdPerHour | None": st.none() | PRICES,
    "Market": MARKET,
    "Market | None": st.none() | MARKET,
    "Decision": DECISIONS,
    "RunSpec": st.just(terms()),
    "EndReason": st.sampled_from(EndReason),
    "UserRequest": st.sampled_from(e.UserRequest),
    "RunOutcome": st.sampled_from(e.RunOutcome),
    "tuple[str, ...]": st.lists(st.text(max_size=5), max_size=4).map(tuple),
    "str": st.text(max_size=20),
    "int": st.integers(),
    "float": NUMBERS,
    "bool": st.booleans(),
    "bool | None": st.none() | st.booleans(),
}


def entries_of(kind: type) -> st.SearchStrategy[Any]:
    return st.builds(kind, *(BY_HINT[str(field.type)] for field in dataclasses.fields(kind)))


@given(data=st.data())
@pytest.mark.parametrize("kind", get_args(e.Entry), ids=lambda kind: kind.__name__)
@settings(max_examples=15, deadline=None)
def test_whatever_an_entry_holds_comes_back(kind: type, data: st.DataObject) -> None:
    entry = data.draw(entries_of(kind))
    name, body = encode_entry(entry)
    assert name == kind.__name__
    assert decode_entry(name, body) == entry
    json.loads(body, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities_survive(value: float) -> None:
    held = Decision(START, Action.HOLD, value, "", (), 1)
    again = decode_entry(*encode_entry(e.Decided(START, held)))
    assert isinstance(again, e.Decided)
    assert again.decision.cost_per_work_now == value


def test_the_terms_of_a_run_come_back() -> None:
    entry = e.JobStarted(START, terms())
    assert decode_entry(*encode_entry(entry)) == entry


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("Invented", "{}", "'Invented' is no kind of ledger entry"),
        ("Market", "{}", "'Market' is no kind of ledger entry"),
        ("Woke", '{"at": 1, "why": "?"}', "Woke has no field why"),
        ("Woke", "{}", "a Woke entry cannot be read"),
        ("Woke", "[1]", "expected the fields of Woke"),
        ("Woke", '{"at": ', "a Woke entry cannot be read"),
        ("InstancesRunning", '{"at": 1, "instances": "s1-1"}', "expected a list"),
        ("Asked", '{"at": 1, "ask": "perhaps"}', "'perhaps' is not a valid UserRequest"),
        ("ObjectiveReported", '{"at": 1, "clock": 1, "value": "much"}', "could not convert"),
    ],
)
def test_what_is_no_entry_of_this_version_is_refused(kind: str, body: str, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        decode_entry(kind, body)


def test_a_field_that_was_added_with_a_default_may_be_missing() -> None:
    assert from_json(Decision, {**to_json(DECISION_OF_OLD), "considered": 3}) == DECISION_OF_OLD
    short = {key: value for key, value in to_json(DECISION_OF_OLD).items() if key != "bid"}
    assert from_json(Decision, short) == DECISION_OF_OLD


DECISION_OF_OLD = Decision(START, Action.ACQUIRE, 0.1, "cheap", (), 3, market=MARKETS[0], count=2)
