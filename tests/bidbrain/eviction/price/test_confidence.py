"""Tests how certain a beta is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.eviction.price.confidence import evicted_share, predict_coming_week, wilson_interval
from bidbrain.eviction.price.first_passage import Passages, PriceSteps
from pricing_data.model.market import Series
from pricing_data.model.units import HOUR_S, Instant

DAY_S = 24 * HOUR_S


def steps(rows: list[tuple[int, float]], now: int) -> PriceSteps:
    times, prices = zip(*rows, strict=True)
    return PriceSteps.from_series(Series(np.array(times, np.int64), np.array(prices)), Instant(now))


def spikes(days: int, hours_of_the_day: tuple[int, ...], lasting_s: int = 60) -> PriceSteps:
    """A price of 1 with a spike to 2 at those hours of every day."""
    rows = [(0, 1.0)]
    for day in range(days):
        for hour in hours_of_the_day:
            at = day * DAY_S + hour * HOUR_S
            rows += [(at, 2.0), (at + lasting_s, 1.0)]
    return steps(rows, days * DAY_S)


def test_wilson_is_that_of_the_textbook() -> None:
    """Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    published = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0.0, 0.1611)}
    published[1, 29] = (0.0061, 0.1718)
    for (hits, trials), ends in published.items():
        assert wilson_interval(hits / trials, trials) == pytest.approx(ends, abs=6e-5)


@given(st.floats(0, 1), st.floats(0, 1e6))
def test_an_interval_holds_its_share(share: float, count: float) -> None:
    low, high = wilson_interval(share, count)
    assert 0 <= low <= share <= high <= 1


def test_the_share_is_the_estimators() -> None:
    seen = spikes(20, (3, 11, 12))
    for delta in (0.0, 0.5, 1.5):
        survival, _ = Passages.from_steps(seen, delta).survival_and_uptime(HOUR_S, HOUR_S)
        assert evicted_share(seen, delta, HOUR_S, HOUR_S).value == pytest.approx(1 - survival, abs=1e-12)


def test_days_that_are_alike_count_as_many_starts_as_fit() -> None:
    """Every day loses the same two hours: the day-to-day variance is next to none."""
    share = evicted_share(spikes(30, (3, 11)), 0.5, HOUR_S, HOUR_S)
    assert share.value == pytest.approx(2 / 24, rel=0.02)
    assert share.effective > 300
    assert share.effective <= 30 * 24


def test_clusters_count_as_few() -> None:
    """The same number of spikes, all within three of the thirty days."""
    rows = [(0, 1.0)]
    for day in (5, 14, 22):
        for hour in range(2, 22):
            at = day * DAY_S + hour * HOUR_S
            rows += [(at, 2.0), (at + 60, 1.0)]
    clustered = evicted_share(steps(rows, 30 * DAY_S), 0.5, HOUR_S, HOUR_S)
    spread = evicted_share(spikes(30, (3, 11)), 0.5, HOUR_S, HOUR_S)
    assert clustered.value == pytest.approx(spread.value, rel=0.05)
    assert clustered.effective < 40 < spread.effective
    assert clustered.high - clustered.low > 2 * (spread.high - spread.low)


def test_a_quiet_record_is_sure_of_as_many_days_as_it_has() -> None:
    share = evicted_share(steps([(0, 1.0)], 30 * DAY_S), 0.1, HOUR_S, HOUR_S)
    assert (share.value, share.low) == (0.0, 0.0)
    assert share.effective == 30
    assert share.high == pytest.approx(wilson_interval(0.0, 30)[1])


def test_without_a_start_anything_may_be() -> None:
    share = evicted_share(steps([(0, 1.0)], HOUR_S), 0.1, HOUR_S, HOUR_S)
    assert (share.low, share.high, share.effective) == (0.0, 1.0, 0.0)


@given(
    st.lists(st.tuples(st.integers(1, 5 * DAY_S), st.floats(0.01, 3.0)), min_size=1, max_size=30),
    st.floats(0.0, 1.0),
    st.sampled_from([600, HOUR_S, 7 * HOUR_S]),
)
def test_whatever_the_prices_the_answer_is_a_share(
    moves: list[tuple[int, float]], delta: float, horizon_s: int
) -> None:
    rows = sorted({0: 1.0, **dict(moves)}.items())
    share = evicted_share(steps(rows, 6 * DAY_S), delta, horizon_s, max(horizon_s, HOUR_S))
    assert 0 <= share.low <= share.value <= share.high <= 1
    assert 1 <= share.effective <= 6 * DAY_S / HOUR_S


def test_weeks_that_are_alike_promise_another_one() -> None:
    alike = predict_coming_week(spikes(42, (3, 11)), 0.5, HOUR_S, HOUR_S)
    assert alike.low > 0.05
    assert alike.high < 0.13


@pytest.mark.parametrize(("weeks", "quantile"), [(2, 12.706), (3, 4.303), (4, 3.182), (9, 2.306)])
def test_the_fewer_the_weeks_the_wider_by_students_quantile(weeks: int, quantile: float) -> None:
    """Quiet ones: they stray by nothing but the floor, 0.02 in the scale of arcsin sqrt."""
    quiet = predict_coming_week(steps([(0, 1.0)], weeks * 7 * DAY_S + HOUR_S), 0.5, HOUR_S, HOUR_S)
    reach = np.arcsin(np.sqrt(quiet.high))
    assert quiet.low == 0
    assert reach == pytest.approx(quantile * 0.02 * np.sqrt(1 + 1 / weeks), rel=0.01)


def test_weeks_that_stray_promise_little() -> None:
    """All spikes in two weeks of six: the next week may have as many, or none."""
    rows = [(0, 1.0)]
    for day in (*range(7, 14), *range(28, 35)):
        for hour in range(0, 24, 4):
            rows += [(day * DAY_S + hour * HOUR_S, 2.0), (day * DAY_S + hour * HOUR_S + 60, 1.0)]
    strayed = predict_coming_week(steps(rows, 42 * DAY_S), 0.5, HOUR_S, HOUR_S)
    assert strayed.low == 0
    assert strayed.high > 0.25


def test_a_record_of_days_says_next_to_nothing_of_the_coming_week() -> None:
    share = predict_coming_week(spikes(5, (3, 11)), 0.5, HOUR_S, HOUR_S)
    assert share.high - share.low > 0.5
    nothing = predict_coming_week(steps([(0, 1.0)], HOUR_S), 0.5, HOUR_S, HOUR_S)
    assert (nothing.low, nothing.high) == (0, 1)
