"""A history shows nobody the future, and never one reader's rows to another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import Instant, UsdPerHour

M1 = Market("aws", "us-east-1", "us-east-1a", "m4.xlarge")
M2 = Market("aws", "us-east-1", "us-east-1b", "m4.xlarge")

_TIMES = st.lists(st.integers(0, 1000), unique=True, min_size=1, max_size=40).map(sorted)


def series(times: list[int]) -> Series:
    """Prices that tell their time, so that a misplaced row shows."""
    return Series(np.array(times, np.int64), np.array(times, np.float64) + 0.5)


@given(_TIMES, st.integers(-5, 1005))
def test_as_of_never_shows_a_later_row(times: list[int], now: int) -> None:
    seen = PriceHistory.from_series({M1: series(times)}).as_of(Instant(now)).series(M1)
    assert seen.times.tolist() == [time for time in times if time <= now]
    assert seen.prices.tolist() == [time + 0.5 for time in times if time <= now]


@given(_TIMES, st.integers(-5, 1005))
def test_the_price_in_force_is_that_of_the_last_step(times: list[int], now: int) -> None:
    before = [time for time in times if time <= now]
    expected = before[-1] + 0.5 if before else None
    assert PriceHistory.from_series({M1: series(times)}).price(M1, Instant(now)) == expected


_APPENDS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50), st.integers(1, 99)), max_size=60)


@given(_TIMES, _APPENDS)
@settings(max_examples=60)
def test_branches_never_leak_into_one_another(times: list[int], appends: list[tuple[int, int, int]]) -> None:
    """Grow a tree of histories, appending to any earlier one; each must read as a plain list would."""
    first = PriceHistory.from_series({M1: series(times)})
    grown = [(first, [(time, time + 0.5) for time in times])]
    for parent, gap, price in appends:
        history, rows = grown[parent % len(grown)]
        at = rows[-1][0] + gap
        child = history.with_step(M1, Instant(at), UsdPerHour(float(price)))
        grown.append((child, [*rows, (at, float(price))]))
    for history, rows in grown:
        seen = history.series(M1)
        assert list(zip(seen.times.tolist(), seen.prices.tolist(), strict=True)) == rows


@given(_TIMES, st.integers(-5, 1005))
def test_what_is_appended_to_the_past_stays_there(times: list[int], now: int) -> None:
    whole = PriceHistory.from_series({M1: series(times)})
    branch = whole.as_of(Instant(now)).with_step(M1, Instant(2000), UsdPerHour(9.0))
    assert whole.series(M1).times.tolist() == times
    assert branch.series(M1).times.tolist() == [*(time for time in times if time <= now), 2000]


def test_history_is_append_only() -> None:
    history = PriceHistory.from_series({M1: series([10, 20])})
    with pytest.raises(ValueError, match="not after the last one"):
        history.with_step(M1, Instant(20), UsdPerHour(1.0))


def test_series_must_strictly_increase() -> None:
    with pytest.raises(ValueError, match="strictly increase"):
        PriceHistory.from_series({M1: series([10, 10])})
    with pytest.raises(ValueError, match="2 times but 1 prices"):
        PriceHistory.from_series({M1: Series(np.array([1, 2], np.int64), np.array([0.1]))})


def test_unknown_markets_are_empty_and_only_restricts() -> None:
    history = PriceHistory.from_series({M1: series([10])})
    assert len(history.series(M2)) == 0
    assert history.price(M2, Instant(10)) is None
    assert history.with_step(M2, Instant(5), UsdPerHour(0.1)).select([M2]).markets == (M2,)
    assert history.select([M2]).markets == ()


def test_many_questions_are_answered_as_one_by_one() -> None:
    markets = (Market("aws", "r", "a", "x"), Market("aws", "r", "b", "x"), Market("aws", "r", "c", "x"))
    series = Series(np.array([10, 20]), np.array([1.0, 2.0]))
    history = PriceHistory.from_series(
        {markets[0]: series, markets[1]: Series(np.array([15]), np.array([3.0]))}
    )
    codes, moments = np.array([1, 0, 2, 0, 1]), np.array([15, 9, 15, 25, 14])
    expected = [3.0, np.nan, np.nan, 2.0, np.nan]
    assert np.array_equal(history.prices_at(markets, codes, moments), expected, equal_nan=True)
