"""Tests that verdicts are a function of the set of rows: not of order, repetition or company."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.formats.quality import Flaw
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, UsdPerHour, parse_instant
from pricing_data.store.validation import BELIEVED, FLAWS, RowPool, SeriesKey, judge_rows, pool_rows

MAY = parse_instant("2016-05-01")
MARKETS = (Market("aws", "r", "ra", "m4.large"), Market("aws", "r", "rb", "m4.large"))
SERIES = tuple(sorted(SeriesKey.from_market(market, source) for market in MARKETS for source in ("x", "y")))
NAN = float("nan")

Row = tuple[int, int, float, int]
"""(series, time, price, observed)"""


def pool(rows: list[Row]) -> RowPool:
    return RowPool(
        series=SERIES,
        codes=np.array([row[0] for row in rows], np.int64),
        times=np.array([row[1] for row in rows], np.int64),
        prices=np.array([row[2] for row in rows], np.float64),
        observed=np.array([row[3] for row in rows], np.int64),
        polled=np.zeros(len(rows), np.bool_),
        approximate=np.zeros(len(rows), np.bool_),
    )


def caps(*_: str) -> tuple[tuple[Instant, UsdPerHour], ...]:
    return ((parse_instant("2015-01-01"), UsdPerHour(0.12)), (MAY, UsdPerHour(0.1)))


def verdicts(rows: list[Row]) -> dict[tuple[int, int, str], tuple[int, str]]:
    """(series, time, price) -> (observed, verdict)."""
    settled = judge_rows(pool(rows), caps)
    out = settled.pool
    return {
        (int(code), int(time), repr(float(price))): (
            int(observed),
            "believed" if verdict == BELIEVED else str(FLAWS[verdict]),
        )
        for code, time, price, observed, verdict in zip(
            out.codes, out.times, out.prices, out.observed, settled.verdicts, strict=True
        )
    }


_PRICES = st.sampled_from([0.03, 0.031, 1.19, 1.3, 31.0, 0.0, -1.0, NAN, float("inf"), 2000.0])
_ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(MAY, MAY + 6),
        _PRICES,
        st.sampled_from([MAY - 200_000, MAY + 9, MAY + 10]),
    ),
    max_size=24,
)


@given(_ROWS, st.integers(), st.integers(0, 24))
@settings(max_examples=150, deadline=None)
def test_order_repetition_and_company_do_not_matter(rows: list[Row], seed: int, cut: int) -> None:
    whole = verdicts(rows)
    shuffled = [*rows, *rows[:5]]
    Random(seed).shuffle(shuffled)
    assert verdicts(shuffled) == whole
    parts = [judge_rows(pool(part), caps).pool for part in (rows[:cut], rows[cut:])]
    merged = judge_rows(pool_rows((parts[1], parts[0])), caps)
    assert len(merged.pool) == len(whole)
    assert int(np.sum(merged.is_believed)) == sum(1 for _, said in whole.values() if said == "believed")


@given(_ROWS)
@settings(max_examples=100, deadline=None)
def test_every_row_is_somewhere_and_moments_are_believed_once(rows: list[Row]) -> None:
    settled = judge_rows(pool(rows), caps)
    assert len(settled.copies) == len(rows)
    given_rows = pool(rows)
    copy = settled.pool.take_rows(settled.copies)
    assert np.array_equal(copy.codes, given_rows.codes)
    assert np.array_equal(copy.times, given_rows.times)
    assert np.array_equal(copy.prices, given_rows.prices, equal_nan=True)
    believed = settled.pool.take_rows(settled.is_believed)
    moments = list(zip(believed.codes.tolist(), believed.times.tolist(), strict=True))
    assert moments == sorted(set(moments))


@pytest.mark.parametrize(
    ("price", "at", "observed", "flaw"),
    [
        (0.0, MAY, MAY, Flaw.ZERO),
        (-0.1, MAY, MAY, Flaw.NEGATIVE),
        (float("inf"), MAY, MAY, Flaw.NOT_FINITE),
        (1500.0, MAY, MAY, Flaw.ABSURD),
        (0.05, MAY, MAY - 86401, Flaw.FUTURE),
        (0.05, 0, MAY, Flaw.PREHISTORIC),
        (1.3, MAY, MAY, Flaw.ABOVE_CAP),
        (0.13, parse_instant("2018-01-01"), parse_instant("2018-01-01"), Flaw.ABOVE_CAP),
    ],
)
def test_a_bad_row_is_set_aside_with_its_reason(price: float, at: int, observed: int, flaw: Flaw) -> None:
    assert {said for _, said in verdicts([(0, at, price, observed)]).values()} == {str(flaw)}


@pytest.mark.parametrize(
    ("price", "at"),
    [
        (1.2, MAY),  # ten times the list price before it was cut
        (0.11, MAY),  # above on-demand, as m3.medium stood for half of 2015
        (0.1, parse_instant("2018-01-01")),  # today's cap
        (NAN, MAY),  # no longer listed
        (5.0, parse_instant("2014-12-31")),  # before any list price is known
    ],
)
def test_what_the_era_allowed_is_believed(price: float, at: int) -> None:
    assert {said for _, said in verdicts([(0, at, price, at)]).values()} == {"believed"}


def test_of_two_prices_for_a_moment_the_first_observed_is_believed() -> None:
    said = verdicts([(0, MAY, 0.03, MAY + 5), (0, MAY, 0.04, MAY + 4), (1, MAY, 0.05, MAY + 5)])
    assert said[0, MAY, "0.03"][1] == str(Flaw.CONFLICT)
    assert said[0, MAY, "0.04"][1] == said[1, MAY, "0.05"][1] == "believed"


def test_a_slip_of_unit_stands_out_from_its_neighbours() -> None:
    rows: list[Row] = [(0, MAY + k, 0.03 + k / 1000, MAY) for k in range(5)]
    said = verdicts([*rows, (0, MAY + 9, 0.00003, MAY)])
    assert said[0, MAY + 9, "3e-05"][1] == str(Flaw.SLIP)
    assert sum(1 for _, verdict in said.values() if verdict == "believed") == 5


def test_a_name_that_is_none_is_set_aside() -> None:
    bad = SeriesKey("aws", "r", "../..", "x", "s")
    rows = pool([(0, MAY, 0.03, MAY)])
    settled = judge_rows(
        RowPool((bad,), rows.codes, rows.times, rows.prices, rows.observed, rows.polled, rows.approximate),
        caps,
    )
    assert FLAWS[settled.verdicts[0]] is Flaw.NAME
