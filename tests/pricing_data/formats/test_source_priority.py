"""Tests that one of several sources is believed at any time, whichever came first; others fill gaps."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.source_priority import SILENCE_S, SourceClaim, drop_repeats, merge_claims

HOUR = 3600
NAN = float("nan")


def claim(
    source: str, times: list[int], price: float, *, polled: bool = False, approximate: bool = False
) -> SourceClaim:
    semantics = Semantics.POLLED if polled else Semantics.EVENT_STREAM
    prices = np.full(len(times), price)
    return SourceClaim(source, semantics, approximate, np.array(times, np.int64), prices)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (claim("z", [5, 6], 1.0, approximate=True), claim("a", [4, 5, 6], 2.0, polled=True)),
        (claim("z", [5, 6], 1.0), claim("a", [4, 5, 6], 2.0, approximate=True)),
        (claim("z", [4, 5, 6], 1.0), claim("a", [5, 6], 2.0)),
        (claim("a", [5, 6], 1.0), claim("z", [5, 6], 2.0)),
    ],
)
def test_events_then_exact_times_then_more_rows_then_the_name(
    better: SourceClaim, worse: SourceClaim
) -> None:
    for order in permutations([better, worse]):
        account = merge_claims(order)
        assert account.claims[0].source == better.source
        assert account.prices[(account.times >= 5) & (account.times <= 6)].tolist() == [1.0, 1.0]


def test_where_the_better_source_is_silent_the_other_is_heard() -> None:
    events = claim("events", [10 * HOUR, 20 * HOUR, 20 * HOUR + 2 * SILENCE_S], 1.0)
    polls = claim("polls", [k * HOUR for k in range(0, 200, 8)], 2.0, polled=True)
    account = merge_claims([polls, events])
    heard = account.times[account.by == 1]
    assert not np.any((heard >= 10 * HOUR) & (heard <= 20 * HOUR))
    assert {0, 8 * HOUR, 24 * HOUR, 112 * HOUR} <= set(heard.tolist())
    assert np.all(np.diff(account.times) > 0)


def test_a_price_list_is_not_silent_until_it_speaks_again() -> None:
    changes = replace(claim("changes", [0, 1000 * HOUR], 1.0), repeats=False)
    polls = claim("polls", [k * HOUR for k in range(0, 1200, 100)], 2.0, polled=True)
    account = merge_claims([polls, changes])
    assert account.times[account.by == 1].tolist() == [1100 * HOUR]


def test_a_poller_speaks_for_all_the_time_between_its_polls() -> None:
    slow = claim("slow", [0, 1000 * HOUR, 2000 * HOUR], 1.0, polled=True)
    fast = claim("fast", [500 * HOUR, 501 * HOUR], 2.0, polled=True)
    assert set(merge_claims([fast, slow]).by.tolist()) == {0}


def test_steps_are_changes_of_a_listed_price() -> None:
    times, prices = drop_repeats(np.arange(7), np.array([0.1, 0.1, 0.2, NAN, NAN, 0.2, 0.3]))
    assert times.tolist() == [0, 2, 5, 6]
    assert prices.tolist() == [0.1, 0.2, 0.2, 0.3]
