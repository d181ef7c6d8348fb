"""Computes what is owed for one instance: the ledger's arithmetic, exact to the micro-dollar.

Uses no floating point: a price is taken as the shortest decimal that denotes it (its ``repr``, so 0.0324 is
324/10000), and every billing hour of an instance is rounded once, half up. Knows no future: nothing depends
on a price at or after the instance's end, or after ``now`` while it runs.

Hours are counted from the instance's start and are half-open, [start + k h, start + (k + 1) h): an instance
that ends on the stroke of an hour has used that hour whole and not begun the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

from pricing_data.model.market import ChargedPrice, MarketRules, Refund, Series
from pricing_data.model.units import HOUR_S, Instant, MicroUsd, UsdPerHour

MICROS_PER_USD: Final = 1_000_000
_DUST_S: Final = 1e-6
"""Seconds that rounding may add to a computed duration."""


class EndReason(StrEnum):
    """Says why an instance ended. Only an end by the provider can be refunded."""

    EVICTED = "evicted"
    RELEASED = "released"
    FAILED = "failed"
    """It died on its own, without a warning."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Describes one billing hour of one instance; the billed part of it is [start, end)."""

    start: Instant
    end: Instant
    price: UsdPerHour
    """In force at ``start``. Under per-second billing the amount follows later steps too."""
    amount: MicroUsd
    """Owed, net of the refund."""
    refunded: MicroUsd
    """Charged and given back."""


def whole_s(reckoned_s: float) -> int:
    """Returns a computed duration in whole seconds, rounded up.

    >>> whole_s(2.1 / 0.7 * 3600), whole_s(0.5)
    (10800, 1)
    """
    return math.ceil(reckoned_s - _DUST_S)


def billed_s(rules: MarketRules, lasted_s: float) -> int:
    """Returns the seconds that are paid for an instance that lasts ``lasted_s`` and is ended by its user.

    It equals what ``settle`` charges for such an instance, for estimates made beforehand.
    """
    whole = whole_s(lasted_s)
    if whole <= 0:
        return 0
    if rules.quantum_s == HOUR_S:
        return -(-whole // HOUR_S) * HOUR_S
    return max(whole, rules.minimum_s)


def settle(
    rules: MarketRules,
    prices: Series | UsdPerHour,
    start: Instant,
    end: Instant | None,
    kind: EndReason | None,
    now: Instant | None = None,
    bid: UsdPerHour | None = None,
) -> tuple[Charge, ...]:
    """Returns the charges of a spot instance that ran from ``start`` to ``end``, one per billing hour.

    ``bid`` is needed where instances pay it (``MarketRules.charge``); elsewhere it changes nothing.

    While it runs, ``end`` and ``kind`` are None and ``now`` says up to when to charge: under hourly billing
    the hour begun at ``now`` whole, under per-second billing the seconds before ``now``. An end at or before
    ``start`` (evicted while pending) costs nothing. Raises ValueError where no price is known at the start,
    neither ``end`` nor ``now`` is given, or a bid that is paid is missing.
    """
    if rules.charge is ChargedPrice.BID:
        if bid is None:
            raise ValueError(f"{rules.name}: an instance pays its bid there: give the bid")
        # From here on the bid is the price, constant over the instance's life.
        prices = bid
    if end is not None:
        charges = _gross_charges(rules, prices, start, end)
        # Only the provider's own evictions are refunded, never a release or a failure.
        if kind is EndReason.EVICTED:
            charges = tuple(_refund_charge(charge, rules, start, end) for charge in charges)
        return charges
    if now is None:
        raise ValueError("a running instance is charged up to a moment: give end or now")
    if rules.quantum_s == HOUR_S:
        # An hour that begins at ``now`` has begun, so it is charged.
        return _by_started_hours(prices, start, Instant(now + 1))
    return _by_seconds(prices, start, now, now)


def settle_on_demand(
    rules: MarketRules, price: UsdPerHour, start: Instant, end: Instant | None, now: Instant | None = None
) -> tuple[Charge, ...]:
    """Returns the charges of an on-demand instance: as ``settle``, at one price and never refunded."""
    return settle(rules, price, start, end, EndReason.RELEASED, now, bid=price)


def on_demand_micros(rules: MarketRules, price: UsdPerHour, lasted_s: float) -> MicroUsd:
    """Returns what one on-demand machine owes that its user ends after ``lasted_s``: all its charges at once.

    >>> from pricing_data.model.rules import AWS, AWS_2016
    >>> on_demand_micros(AWS_2016, 0.209, 5760), on_demand_micros(AWS, 0.209, 5760)
    (418000, 334400)
    """
    hours, rest_s = divmod(billed_s(rules, lasted_s), HOUR_S)
    exact = _exact_price(price)
    return MicroUsd(hours * _round_micros(exact * HOUR_S) + _round_micros(exact * rest_s))


def _gross_charges(
    rules: MarketRules, prices: Series | UsdPerHour, start: Instant, end: Instant
) -> tuple[Charge, ...]:
    until = Instant(start + billed_s(rules, end - start))
    if rules.quantum_s == HOUR_S:
        return _by_started_hours(prices, start, until)
    return _by_seconds(prices, start, until, end)


def _by_started_hours(prices: Series | UsdPerHour, start: Instant, until: Instant) -> tuple[Charge, ...]:
    """Charges every hour begun before ``until``, whole, at the price in force when it began."""
    charges = []
    for opens in range(start, until, HOUR_S):
        price = _in_force(prices, opens)
        charges.append(_make_charge(opens, opens + HOUR_S, price, _exact_price(price) * HOUR_S))
    return tuple(charges)


def _by_seconds(
    prices: Series | UsdPerHour, start: Instant, until: Instant, known: Instant
) -> tuple[Charge, ...]:
    """Charges every second in [start, until).

    Seconds from ``known`` on (the minimum charge) are charged at the last price before it.
    """
    charges = []
    for opens in range(start, until, HOUR_S):
        closes = min(opens + HOUR_S, until)
        steps = tuple(_price_steps(prices, opens, closes, known))
        # Fractions: the sum is exact, and rounded once per hour.
        price_seconds = sum((_exact_price(price) * seconds for price, seconds in steps), Fraction())
        charges.append(_make_charge(opens, closes, steps[0][0], price_seconds))
    return tuple(charges)


def _price_steps(
    prices: Series | UsdPerHour, opens: int, closes: int, known: int
) -> Iterator[tuple[UsdPerHour, int]]:
    """Yields the prices in force within [opens, closes) and for how many seconds each."""
    if not isinstance(prices, Series):
        yield prices, closes - opens
        return
    # Steps inside (opens, closes); the price in force at ``opens`` comes from before them.
    after = int(prices.times.searchsorted(opens, side="right"))
    before = int(prices.times.searchsorted(min(closes, known), side="left"))
    cuts = [opens, *prices.times[after:before].tolist(), closes]
    later = prices.prices[after:before].tolist()
    for price, (begins, ends) in zip((_in_force(prices, opens), *later), pairwise(cuts), strict=True):
        yield price, ends - begins


def _in_force(prices: Series | UsdPerHour, moment: int) -> UsdPerHour:
    if not isinstance(prices, Series):
        return prices
    price = prices.price_at(Instant(moment))
    if price is None:
        raise ValueError(f"no price is known at {moment}: the series begins later")
    return price


@lru_cache(maxsize=1 << 16)
def _exact_price(price: UsdPerHour) -> Fraction:
    # repr gives the shortest decimal that denotes the float: 0.0324 becomes 324/10000 and not its binary
    # value.
    return Fraction(repr(float(price)))


def _make_charge(opens: int, closes: int, price: UsdPerHour, price_seconds: Fraction) -> Charge:
    """Makes a charge. ``price_seconds``: the integral of the hourly price over the billed seconds."""
    return Charge(Instant(opens), Instant(closes), price, MicroUsd(_round_micros(price_seconds)), MicroUsd(0))


def _round_micros(price_seconds: Fraction) -> int:
    """Returns micro-dollars, rounded half up."""
    # Integer arithmetic throughout: floor((2 n + d) / 2 d) rounds n / d half up.
    dollars, parts = price_seconds.numerator, price_seconds.denominator * HOUR_S
    return (2 * dollars * MICROS_PER_USD + parts) // (2 * parts)


def _refund_charge(charge: Charge, rules: MarketRules, start: Instant, end: Instant) -> Charge:
    """Returns what remains of ``charge`` when the provider ended the instance at ``end``."""
    if rules.refund is Refund.EVICTED_HOUR:
        # Half-open: an eviction on the stroke of an hour leaves the hour before it charged.
        free = charge.start <= end < charge.start + HOUR_S
    else:
        free = end < start + rules.refund.free_until_s
    if not free:
        return charge
    return Charge(charge.start, charge.end, charge.price, MicroUsd(0), charge.amount)
