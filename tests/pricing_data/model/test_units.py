"""Units are converted here or nowhere: round trips, and refusals that say what was expected."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing_data.model import rules, units
from pricing_data.model.units import (
    Instant,
    MicroUsd,
    format_instant,
    format_micros,
    seconds_after,
    to_micros,
)

_INSTANTS = st.integers(min_value=0, max_value=4_000_000_000).map(Instant)


@pytest.mark.parametrize("module", [units, rules])
def test_the_examples_in_the_docstrings_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@given(_INSTANTS)
def test_an_instant_survives_being_written(at: Instant) -> None:
    assert units.parse_instant(format_instant(at)) == at


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:10", 10),
        (" 1970-01-01T00:00:10Z ", 10),
        ("2016-06-05T08:18:57Z", 1465114737),
    ],
)
def test_instants_are_read_in_utc(text: str, seconds: int) -> None:
    assert units.parse_instant(text) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "2016-13-01", "2016-06-05T25:00:00Z", "1465114737"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="2016-06-05T08:18:57Z"):
        units.parse_instant(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2m", 120), ("1h30m", 5400), ("0.5h", 1800), ("250ms", 0.25), ("1d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "s", "1h30", "-5s", "1 fortnight"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        units.parse_duration(text)


@given(_INSTANTS, st.floats(min_value=0, max_value=1e6))
def test_an_effect_is_never_early_and_less_than_a_second_late(at: Instant, seconds: float) -> None:
    waited = seconds_after(at, seconds) - at
    assert waited - 1 < seconds <= waited


@given(st.integers(min_value=-(10**12), max_value=10**12).map(MicroUsd))
def test_micro_dollars_are_printed_exactly(amount: MicroUsd) -> None:
    whole, fraction = format_micros(amount).lstrip("-").split(".")
    assert len(fraction) == 6
    assert int(whole + fraction) == abs(amount)
    assert format_micros(amount).startswith("-") == (amount < 0)


def test_estimates_round_half_up() -> None:
    assert to_micros(0.0000015) == 2
