"""Tests what is owed: cases worked by hand, a reference second by second, and properties for any price."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pricing_data.model.billing import Charge, EndReason, billed_s, settle, settle_on_demand
from pricing_data.model.market import MarketRules, Series
from pricing_data.model.rules import AWS, AWS_2016, AWS_2016_PAYING_BIDS, AZURE, GCP, RULES
from pricing_data.model.units import HOUR_S, Instant, UsdPerHour

MINUTE = 60


def steps(*rows: tuple[int, float]) -> Series:
    return Series(np.array([at for at, _ in rows], np.int64), np.array([price for _, price in rows]))


def net(charges: tuple[Charge, ...]) -> int:
    return sum(charge.amount for charge in charges)


def sum_refunds(charges: tuple[Charge, ...]) -> int:
    return sum(charge.refunded for charge in charges)


RISING = steps((0, 0.10), (30 * MINUTE, 0.20), (90 * MINUTE, 0.30))


@pytest.mark.parametrize(
    ("end", "kind", "amounts", "given_back"),
    [
        (130 * MINUTE, EndReason.RELEASED, [100_000, 200_000, 300_000], 0),
        (130 * MINUTE, EndReason.FAILED, [100_000, 200_000, 300_000], 0),
        (130 * MINUTE, EndReason.EVICTED, [100_000, 200_000, 0], 300_000),
        (1, EndReason.RELEASED, [100_000], 0),
        (10 * MINUTE, EndReason.EVICTED, [0], 100_000),
        (HOUR_S, EndReason.RELEASED, [100_000], 0),
        (HOUR_S, EndReason.EVICTED, [100_000], 0),  # the hour was used whole; the free one had not begun
        (HOUR_S + 1, EndReason.EVICTED, [100_000, 0], 200_000),
        (0, EndReason.EVICTED, [], 0),
        (-5, EndReason.EVICTED, [], 0),  # evicted while pending
    ],
)
def test_aws_2016_charges_started_hours_and_gives_the_evicted_one_back(
    end: int, kind: EndReason, amounts: list[int], given_back: int
) -> None:
    charges = settle(AWS_2016, RISING, Instant(0), Instant(end), kind)
    assert [charge.amount for charge in charges] == amounts
    assert sum_refunds(charges) == given_back


@pytest.mark.parametrize(
    ("now", "amounts"), [(-1, []), (0, [100_000]), (3599, [100_000]), (3600, [100_000, 200_000])]
)
def test_a_running_instance_owes_its_hour_when_it_starts(now: int, amounts: list[int]) -> None:
    charges = settle(AWS_2016, RISING, Instant(0), None, None, now=Instant(now))
    assert [charge.amount for charge in charges] == amounts


def test_a_later_price_change_leaves_the_hour_alone_under_aws_2016() -> None:
    charges = settle(AWS_2016, steps((0, 0.1), (1, 99.0)), Instant(0), Instant(HOUR_S), EndReason.RELEASED)
    assert net(charges) == 100_000


HALF = steps((0, 0.36), (30 * MINUTE, 0.72))


@pytest.mark.parametrize(
    ("rules", "end", "kind", "owed", "given_back"),
    [
        (AWS, HOUR_S, EndReason.RELEASED, 540_000, 0),
        (AWS, 30, EndReason.RELEASED, 6_000, 0),  # 60 s at least
        (AWS, 61, EndReason.RELEASED, 6_100, 0),
        (AWS, HOUR_S - 1, EndReason.EVICTED, 0, 539_800),
        (AWS, HOUR_S, EndReason.EVICTED, 540_000, 0),
        (AWS, HOUR_S + 10, EndReason.EVICTED, 542_000, 0),
        (AWS, 10 * MINUTE, EndReason.FAILED, 60_000, 0),
        (GCP, 59, EndReason.EVICTED, 0, 6_000),
        (GCP, 60, EndReason.EVICTED, 6_000, 0),
        (GCP, 59, EndReason.RELEASED, 6_000, 0),
        (AZURE, 10, EndReason.EVICTED, 1_000, 0),
        (AZURE, 30 * MINUTE + 10, EndReason.RELEASED, 182_000, 0),
    ],
)
def test_per_second_rules_by_hand(
    rules: MarketRules, end: int, kind: EndReason, owed: int, given_back: int
) -> None:
    charges = settle(rules, HALF, Instant(0), Instant(end), kind)
    assert (net(charges), sum_refunds(charges)) == (owed, given_back)


def test_the_minimum_is_charged_at_the_price_the_instance_last_saw() -> None:
    charges = settle(AWS, steps((0, 0.36), (30, 99.0)), Instant(0), Instant(30), EndReason.RELEASED)
    assert net(charges) == 6_000


def test_on_demand_is_billed_by_started_hours_then_and_by_seconds_now() -> None:
    price, end = UsdPerHour(0.239), Instant(HOUR_S + 1)
    assert net(settle_on_demand(AWS_2016, price, Instant(0), end)) == 478_000
    assert net(settle_on_demand(AWS, price, Instant(0), end)) == 239_066  # 239000 + 66.39
    assert net(settle_on_demand(AWS, price, Instant(0), None, now=Instant(HOUR_S))) == 239_000


def test_half_a_micro_dollar_is_rounded_up_and_never_through_a_float() -> None:
    assert net(settle(AZURE, UsdPerHour(0.0018), Instant(0), Instant(1), EndReason.RELEASED)) == 1
    assert net(settle(AZURE, UsdPerHour(0.0018), Instant(0), Instant(3), EndReason.RELEASED)) == 2
    assert net(settle(AWS_2016, UsdPerHour(1e-7), Instant(0), Instant(3), EndReason.RELEASED)) == 0
    assert (
        net(settle(AWS_2016, UsdPerHour(1.0000005), Instant(0), Instant(3), EndReason.RELEASED)) == 1_000_001
    )


def test_the_price_must_be_known_at_the_start_and_some_end_be_given() -> None:
    with pytest.raises(ValueError, match="series begins later"):
        settle(AWS, steps((100, 0.1)), Instant(0), Instant(50), EndReason.RELEASED)
    with pytest.raises(ValueError, match="give end or now"):
        settle(AWS, UsdPerHour(0.1), Instant(0), None, None)


def test_where_bids_are_paid_the_price_does_not_matter() -> None:
    end, bid = Instant(130 * MINUTE), UsdPerHour(0.25)
    charges = settle(AWS_2016_PAYING_BIDS, RISING, Instant(0), end, EndReason.EVICTED, bid=bid)
    assert [charge.amount for charge in charges] == [250_000, 250_000, 0]
    assert settle(AWS_2016, RISING, Instant(0), end, EndReason.EVICTED, bid=bid) == settle(
        AWS_2016, RISING, Instant(0), end, EndReason.EVICTED
    )
    with pytest.raises(ValueError, match="give the bid"):
        settle(AWS_2016_PAYING_BIDS, RISING, Instant(0), end, EndReason.EVICTED)
    assert net(settle_on_demand(AWS_2016_PAYING_BIDS, UsdPerHour(0.4), Instant(0), Instant(1))) == 400_000


# ---- for any price ------------------------------------------------------------------------------

_SERIES = st.lists(
    st.tuples(st.integers(0, 4 * HOUR_S), st.integers(1, 50_000).map(lambda ticks: ticks / 10_000)),
    unique_by=lambda row: row[0],
    max_size=12,
).map(lambda rows: steps((-1, 0.05), *sorted(rows)))
_RULES = st.sampled_from(list(RULES.values()))
_MOMENTS = st.integers(0, 4 * HOUR_S).map(Instant)
_KINDS = st.sampled_from(EndReason)
modest = settings(max_examples=60, deadline=None)


@given(_RULES, _SERIES, _MOMENTS, _MOMENTS, _KINDS)
@modest
def test_rows_tile_the_billed_time_and_nothing_is_negative(
    rules: MarketRules, prices: Series, start: Instant, end: Instant, kind: EndReason
) -> None:
    charges = settle(rules, prices, start, end, kind)
    assert bool(charges) == (end > start)
    borders = [start, *(charge.end for charge in charges)]
    assert [charge.start for charge in charges] == borders[:-1]
    assert all(0 < charge.end - charge.start <= HOUR_S for charge in charges)
    assert all(charge.amount >= 0 and charge.refunded >= 0 for charge in charges)
    assert all(charge.price == prices.price_at(charge.start) for charge in charges)
    if charges:
        assert borders[-1] >= end


@given(_RULES, _SERIES, _MOMENTS, _MOMENTS, _KINDS)
@modest
def test_a_refund_needs_an_eviction_and_only_moves_money(
    rules: MarketRules, prices: Series, start: Instant, end: Instant, kind: EndReason
) -> None:
    charges = settle(rules, prices, start, end, kind)
    released = settle(rules, prices, start, end, EndReason.RELEASED)
    assert sum_refunds(released) == 0
    assert net(charges) + sum_refunds(charges) == net(released)
    assert kind is EndReason.EVICTED or sum_refunds(charges) == 0
    assert all(charge.refunded == 0 for charge in charges[:-1])


@given(_RULES, _SERIES, _MOMENTS, _MOMENTS, _MOMENTS)
@modest
def test_running_longer_never_costs_less(
    rules: MarketRules, prices: Series, start: Instant, one: Instant, other: Instant
) -> None:
    shorter, longer = sorted((one, other))
    assert net(settle(rules, prices, start, None, None, now=shorter)) <= net(
        settle(rules, prices, start, None, None, now=longer)
    )
    # Once the minimum is used up; within it, the price may fall while the seconds are topped up.
    assume(shorter - start >= rules.minimum_s or rules.quantum_s == HOUR_S)
    assert net(settle(rules, prices, start, shorter, EndReason.RELEASED)) <= net(
        settle(rules, prices, start, longer, EndReason.RELEASED)
    )


@given(_RULES, _SERIES, _MOMENTS, _MOMENTS, _KINDS)
@modest
def test_prices_from_the_end_on_change_nothing(
    rules: MarketRules, prices: Series, start: Instant, end: Instant, kind: EndReason
) -> None:
    known = int(np.searchsorted(prices.times, end, side="left"))
    past = Series(prices.times[:known], prices.prices[:known])
    assert settle(rules, prices, start, end, kind) == settle(rules, past, start, end, kind)


@given(_RULES, _SERIES, _MOMENTS, st.integers(1, 3), st.integers(MINUTE, 2 * HOUR_S))
@modest
def test_a_run_splits_at_its_hours(
    rules: MarketRules, prices: Series, start: Instant, hours: int, rest_s: int
) -> None:
    middle = Instant(start + hours * HOUR_S)
    end = Instant(middle + rest_s)
    whole = settle(rules, prices, start, end, EndReason.RELEASED)
    first, second = (
        settle(rules, prices, begin, until, EndReason.RELEASED)
        for begin, until in ((start, middle), (middle, end))
    )
    assert whole == first + second


@given(_SERIES, _MOMENTS, st.integers(MINUTE, 2 * HOUR_S))
@settings(max_examples=15, deadline=None)
def test_per_second_billing_agrees_with_counting_seconds(prices: Series, start: Instant, run_s: int) -> None:
    by_hour: dict[int, Decimal] = {}
    for second in range(run_s):
        price = prices.price_at(Instant(start + second))
        assert price is not None
        by_hour[second // HOUR_S] = by_hour.get(second // HOUR_S, Decimal()) + Decimal(repr(float(price)))
    expected = [
        int((total * 1_000_000 / HOUR_S).quantize(Decimal(1), ROUND_HALF_UP)) for total in by_hour.values()
    ]
    charges = settle(AWS, prices, start, Instant(start + run_s), EndReason.RELEASED)
    assert [charge.amount for charge in charges] == expected


@settings(deadline=None)
@given(
    st.sampled_from(list(RULES.values())),
    st.integers(-10, 5 * HOUR_S),
    st.sampled_from([-0.9, -0.5, 0.0, 5e-7]),
)
def test_what_is_reckoned_beforehand_is_what_the_bill_says(
    rules: MarketRules, lasts_s: int, part_s: float
) -> None:
    """At 0.36 $ an hour a second costs a hundred micro-dollars, so nothing is rounded. Parts of seconds are
    whole ones, but for what arithmetic may add."""
    billed = net(settle_on_demand(rules, UsdPerHour(0.36), Instant(0), Instant(lasts_s)))
    assert billed == 100 * billed_s(rules, lasts_s + part_s)
