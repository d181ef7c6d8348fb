"""Tests when there is something to decide."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bidbrain.bidding.decision_times import (
    DECISION_PERIOD_S,
    RENEWAL_LEAD_S,
    due_for_renewal,
    next_decision_at,
)
from pricing_data.model.units import HOUR_S, Instant
from tests.bidbrain.build import NOW, holding


def test_every_two_minutes_from_the_start_of_the_job() -> None:
    assert next_decision_at(Instant(NOW + 119), (), NOW) == NOW + 120
    assert next_decision_at(Instant(NOW + 120), (), NOW) == NOW + 240


def test_shortly_before_an_hour_ends() -> None:
    footprint = (holding("one", left_s=200), holding("two", left_s=1000))
    assert next_decision_at(NOW, footprint, NOW) == NOW + 200 - RENEWAL_LEAD_S
    assert due_for_renewal(NOW, footprint) == ()
    assert due_for_renewal(Instant(NOW + 20), footprint) == ("one",)


def test_renewals_are_asked_for_in_the_order_in_which_hours_end() -> None:
    warned = replace(holding("gone", left_s=10), counts_for=0)
    footprint = (holding("c", left_s=100), holding("b", left_s=60), holding("a", left_s=100), warned)
    assert due_for_renewal(NOW, footprint) == ("b", "a", "c")


@given(st.integers(0, HOUR_S), st.lists(st.integers(-HOUR_S, HOUR_S), max_size=5))
def test_is_always_later_and_never_more_than_a_period_away(passed_s: int, left: list[int]) -> None:
    footprint = tuple(holding(str(i), left_s=seconds) for i, seconds in enumerate(left))
    now = Instant(NOW + passed_s)
    assert now < next_decision_at(now, footprint, NOW) <= now + DECISION_PERIOD_S
