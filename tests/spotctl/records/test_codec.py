"""Entries and settings to JSON and back: nothing is lost, nothing unknown is swallowed."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import numpy as np
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
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": NUMBERS,
    "bool": st.booleans(),
    "bool | None": st.none() | st.booleans(),
}


def hints_of(kind: type) -> dict[str, str]:
    """An entry's fields with their hints as written, its base's first."""
    return {
        name: hint
        for cls in reversed(kind.__mro__)
        for name, hint in vars(cls).get("__annotations__", {}).items()
    }


def entries_of(kind: type) -> st.SearchStrategy[Any]:
    return st.builds(kind, *(BY_HINT[hint] for hint in hints_of(kind).values()))


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


def test_numbers_and_words_of_numpy_are_plain_on_record() -> None:
    entry = e.ObjectiveReported(START, 1, np.float64(0.1))
    assert encode_entry(entry) == encode_entry(e.ObjectiveReported(START, 1, 0.1))
    assert encode_entry(e.SafeToKill(START, np.str_("s1"))) == encode_entry(e.SafeToKill(START, "s1"))


@pytest.mark.parametrize("text", ["\udc80", "caf\u00e9 \U0001f600", "Infinity", "inf", ""])
def test_any_text_comes_back(text: str) -> None:
    """A file's name may hold bytes that are no text, which Python keeps as lone surrogates."""
    entry = e.TrainingFailed(START, text)
    assert decode_entry(*encode_entry(entry)) == entry


def test_the_terms_of_a_run_come_back() -> None:
    entry = e.JobStarted(START, terms())
    assert decode_entry(*encode_entry(entry)) == entry


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("Invented", "{}", "'Invented' is no kind of ledger entry"),
        ("Market", "{}", "'Market' is no kind of ledger entry"),
        ("Woke", '{"at": 1, "why": "?"}', "unknown field `why`"),
        ("Woke", "{}", "missing required field `at`"),
        ("Woke", "[1]", "Woke: Expected `object`, got `array`"),
        ("Woke", '{"at": ', "a Woke entry cannot be read"),
        (
            "InstancesRunning",
            '{"at": 1, "instances": "s1-1"}',
            "Expected `array`, got `str` - at `\\$.instances`",
        ),
        ("Asked", '{"at": 1, "ask": "perhaps"}', "Invalid enum value 'perhaps' - at `\\$.ask`"),
        (
            "ObjectiveReported",
            '{"at": 1, "clock": 1, "value": "much"}',
            "Expected `float`, got `str` - at `\\$.value`",
        ),
    ],
)
def test_what_is_no_entry_of_this_version_is_refused(kind: str, body: str, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        decode_entry(kind, body)


def test_a_field_that_is_unknown_is_refused_wherever_it_is() -> None:
    raw = to_json(DECISION_OF_OLD)
    raw["market"]["moon"] = "full"
    with pytest.raises(CodecError, match="Decision has no field moon"):
        from_json(Decision, raw)


def test_a_field_that_was_added_with_a_default_may_be_missing() -> None:
    assert from_json(Decision, {**to_json(DECISION_OF_OLD), "considered": 3}) == DECISION_OF_OLD
    short = {key: value for key, value in to_json(DECISION_OF_OLD).items() if key != "bid"}
    assert from_json(Decision, short) == DECISION_OF_OLD


DECISION_OF_OLD = Decision(START, Action.ACQUIRE, 0.1, "cheap", (), 3, market=MARKETS[0], count=2)
