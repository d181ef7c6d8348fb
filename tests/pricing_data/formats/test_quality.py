"""Whatever order rows come in and whatever bad ones stand among them, the good ones come out, all counted."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.formats.quality import EXAMPLES_KEPT, Flaw, ParsedRows, make_finding, sort_rows

Row = tuple[int, int, float, bool]
"""(market code, time, price, listed)"""

_GOOD = st.tuples(st.integers(0, 2), st.integers(0, 20), st.sampled_from([0.1, 0.2, 0.3]), st.just(True))
_UNLISTED = st.tuples(st.integers(0, 2), st.integers(0, 20), st.just(0.0), st.just(False))
_BAD_PRICES = st.sampled_from([-0.1, 0.0, float("nan"), float("inf"), -float("inf")])
_BAD = st.tuples(st.integers(0, 2), st.integers(0, 20), _BAD_PRICES, st.just(True))


def columns(rows: list[Row]) -> ParsedRows:
    return ParsedRows(
        lines=np.arange(2, len(rows) + 2),
        codes=np.array([row[0] for row in rows], np.int64),
        times=np.array([row[1] for row in rows], np.int64),
        prices=np.array([row[2] for row in rows], np.float64),
        listed=np.array([row[3] for row in rows], np.bool_),
    )


def expected_steps(rows: list[Row]) -> dict[int, list[tuple[int, float]]]:
    """The same by plain Python: first row of a moment wins, equal prices in a row are one step."""
    seen: dict[tuple[int, int], tuple[float, bool]] = {}
    for code, time, price, listed in rows:
        if 0 < price < float("inf") or not listed:
            seen.setdefault((code, time), (price, listed))
    steps: dict[int, list[tuple[int, float]]] = {}
    last: dict[int, tuple[float, bool]] = {}
    for (code, time), row in sorted(seen.items()):
        if last.get(code) != row and row[1]:
            steps.setdefault(code, []).append((time, row[0]))
        last[code] = row
    return steps


@given(st.lists(st.one_of(_GOOD, _UNLISTED, _BAD), max_size=40))
@settings(max_examples=200)
def test_rows_are_sorted_out_as_a_plain_reading_would(rows: list[Row]) -> None:
    result = sort_rows(columns(rows))
    found = {
        code: list(zip(steps.series.times.tolist(), steps.series.prices.tolist(), strict=True))
        for code, steps in result.steps.items()
    }
    assert found == expected_steps(rows)


@given(st.lists(st.one_of(_GOOD, _UNLISTED, _BAD), max_size=40))
@settings(max_examples=200)
def test_every_row_is_counted_once(rows: list[Row]) -> None:
    result = sort_rows(columns(rows))
    quarantined = [
        line for flaw, lines in result.flaws.items() if flaw.is_quarantining for line in lines.tolist()
    ]
    assert len(quarantined) == len(set(quarantined))
    counted = result.used + result.heartbeats + result.duplicates + result.unlisted
    assert counted.sum() + len(quarantined) == len(rows)


@given(st.lists(_GOOD, max_size=30, unique_by=lambda row: row[:2]), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[Row], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert expected_steps(rows) == {
        code: list(zip(steps.series.times.tolist(), steps.series.prices.tolist(), strict=True))
        for code, steps in sort_rows(columns(shuffled)).steps.items()
    }
    assert Flaw.UNORDERED not in sort_rows(columns(sorted(rows, key=lambda row: row[1]))).flaws
    assert Flaw.UNORDERED not in sort_rows(columns(sorted(rows))).flaws


def test_only_rows_that_go_back_within_their_market_are_out_of_order() -> None:
    rows = [(0, 10, 0.1, True), (1, 5, 0.1, True), (0, 9, 0.2, True), (0, 9, 0.2, True), (0, 11, 0.3, True)]
    assert sort_rows(columns(rows)).flaws[Flaw.UNORDERED].tolist() == [4, 5]


def test_a_market_that_returns_after_it_was_gone_is_seen_to() -> None:
    rows = [(0, 1, 0.0, False), (0, 2, 0.1, True), (0, 3, 0.0, False), (0, 4, 0.1, True)]
    steps = sort_rows(columns(rows)).steps[0]
    assert steps.series.times.tolist() == [2, 4]
    assert steps.delisted.tolist() == [3]  # never having been listed is not a loss


def test_a_finding_quotes_the_first_few_rows() -> None:
    found = make_finding(Flaw.ZERO, range(20, 2, -1), lambda line: f"row {line}")
    assert (found.count, len(found.examples)) == (18, EXAMPLES_KEPT)
    assert (found.examples[0].line, found.examples[0].text) == (3, "row 3")
