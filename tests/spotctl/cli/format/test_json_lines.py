"""The JSON that scripts rely on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest

from bidbrain.model import Action
from pricing_data.model.units import Instant, MicroUsd, Seconds, Usd, UsdPerHour
from spotctl.cli.format import json_lines
from spotctl.control import entries as e
from tests.spotctl.cli.story import SPOT, at, decision, entries, terms


@dataclass(frozen=True, slots=True)
class _Everything:
    when: Instant
    never: Instant | None
    owed: MicroUsd
    rate: UsdPerHour | None
    expected: Usd
    lasting: Seconds
    endless: float
    times: tuple[Instant, ...]
    yes: bool


def test_units_decide_how_a_number_is_written() -> None:
    dollars = (MicroUsd(-1), UsdPerHour(0.052), Usd(math.inf))
    value = _Everything(Instant(0), None, *dollars, Seconds(1.5), math.inf, (Instant(1),), True)
    assert json_lines.to_public(value) == {
        "when": "1970-01-01T00:00:00Z",
        "never": None,
        "owed": "-0.000001",
        "rate": "0.052000",
        "expected": None,
        "lasting": 1.5,
        "endless": None,
        "times": ["1970-01-01T00:00:01Z"],
        "yes": True,
    }


def test_an_event_is_one_line_with_its_schema() -> None:
    assert json.loads(json_lines.event_line(e.PriceChanged(at(32), SPOT, UsdPerHour(0.31)))) == {
        "schema": "spotctl.event/1",
        "event": "PriceChanged",
        "at": "2016-06-05T14:32:00Z",
        "market": {"cloud": "aws", "region": "us-east-1", "zone": "us-east-1b", "instance_type": "c4.xlarge"},
        "price": "0.310000",
    }


def test_the_terms_of_a_run_are_shown_in_one_object_however_they_are_grouped() -> None:
    shown = json.loads(json_lines.event_line(e.JobStarted(at(0), terms())))["terms"]
    assert (shown["run"], shown["strategy"], shown["core_seconds_per_clock"]) == ("movies-1", "auto", 600.0)
    assert shown["luggage"] is None
    assert not shown.keys() & {"origin", "work", "objective", "recovery"}


@pytest.mark.parametrize(
    "entry", [*entries(), decision(1, Action.HOLD)], ids=lambda entry: type(entry).__name__
)
def test_every_entry_is_strict_json_in_one_line(entry: e.Entry) -> None:
    text = json_lines.event_line(entry)
    assert "\n" not in text
    assert json.loads(text, parse_constant=pytest.fail)["at"].endswith("Z")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_that_is_no_number_is_null_in_every_object(value: float) -> None:
    ended = {"objective": {"metric": "mse", "value": value, "reference": None}, "evictions": [1, 0.5, True]}
    expected = {**ended, "objective": {"metric": "mse", "value": None, "reference": None}}
    assert json.loads(json_lines.object_line(ended)) == expected
    assert json.loads(json_lines.to_document(ended)) == expected


def test_a_plain_document_is_the_same_document() -> None:
    fields = {"schema": "x/1", "runs": [{"cost": "1.000000", "clock": 3, "objective": 0.1, "none": None}]}
    assert json_lines.plain_document(fields) == json_lines.to_document(fields)
    diverged = {"runs": [{"objective": math.nan}]}
    assert json_lines.plain_document(diverged) == json_lines.to_document(diverged)
