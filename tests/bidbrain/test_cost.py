"""Expected charges: equation 4.1 by hand, and the mean of many settlements under every rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.cost import expected_charge
from pricing_data.billing import End, settle
from pricing_data.market import MarketRules, Refund
from pricing_data.rules import AWS, AWS_2016, AZURE, GCP
from pricing_data.units import HOUR_S, Instant, Seconds, UsdPerHour

START = Instant(1_500_000_000)
PRICE = UsdPerHour(0.36)
"""A hundred micro-dollars per second: settlements by the second round nothing."""
KEPT_HOURS = replace(AWS_2016, name="hours, never refunded", refund=Refund.NOTHING)


@dataclass(frozen=True)
class Lives:
    """The distribution that some observed lifetimes are; seconds."""

    seconds: Sequence[int]
    age_s: int = 0

    def survival(self, horizon_s: float) -> float:
        alive = [life for life in self.seconds if life >= self.age_s]
        return sum(life - self.age_s >= horizon_s for life in alive) / len(alive)

    def expected_uptime(self, horizon_s: float) -> Seconds:
        alive = [life for life in self.seconds if life >= self.age_s]
        return Seconds(sum(min(life - self.age_s, horizon_s) for life in alive) / len(alive))


def test_equation_4_1() -> None:
    """0.10 $/h, half an hour left, one of four evicted within it: (1 - 1/4) x 0.10 x 1/2."""
    survival = Lives([2100, 9000, 9000, 9000], age_s=1800)
    charge = expected_charge(AWS_2016, UsdPerHour(0.10), 1800, 1800, survival)
    assert charge == pytest.approx(0.0375)


def test_todays_first_hour_is_charged_like_the_papers_hour() -> None:
    """Free if evicted within the first hour: only those who live through it pay for it."""
    survival = Lives([900, 1800, 2700, 9000])
    charges = [expected_charge(rules, PRICE, 0, HOUR_S, survival) for rules in (AWS, AWS_2016)]
    assert charges == pytest.approx([0.09, 0.09])


def test_after_the_free_hour_every_second_is_paid() -> None:
    survival = Lives([HOUR_S + 900, 3 * HOUR_S], age_s=HOUR_S)
    assert expected_charge(AWS, PRICE, HOUR_S, HOUR_S, survival) == pytest.approx(0.36 * (0.25 + 1) / 2)


@settings(max_examples=120, deadline=None)
@given(
    rules=st.sampled_from([AWS_2016, AWS, GCP, AZURE, KEPT_HOURS]),
    lives=st.lists(st.integers(1, 4 * HOUR_S).filter(lambda s: s % HOUR_S), min_size=1, max_size=12),
    hours=st.integers(1, 3),
)
def test_is_the_mean_of_settlements(rules: MarketRules, lives: list[int], hours: int) -> None:
    """Over whole hours, since of the last hour the expectation counts only the part that is asked about."""
    horizon_s = hours * HOUR_S
    settled = sum(_settled(rules, min(life, horizon_s), evicted=life < horizon_s) for life in lives)
    expected = expected_charge(rules, PRICE, 0, horizon_s, Lives(lives))
    assert expected == pytest.approx(settled / len(lives) / 1e6, abs=1e-6)


def _settled(rules: MarketRules, ran_s: int, *, evicted: bool) -> int:
    end = Instant(START + ran_s)
    kind = End.EVICTED if evicted else End.RELEASED
    return sum(charge.amount for charge in settle(rules, PRICE, START, end, kind))


@pytest.mark.parametrize("rules", [AWS_2016, AWS, GCP, AZURE])
@pytest.mark.parametrize("age_s", [0, 30, 1800, HOUR_S, 5000])
def test_doubling_the_price_doubles_the_charge(rules: MarketRules, age_s: int) -> None:
    survival = Lives([age_s + 10, age_s + 1000, age_s + 9000], age_s=age_s)
    once = expected_charge(rules, PRICE, age_s, 2000, survival)
    assert 0 <= once <= PRICE * 2000 / HOUR_S
    assert expected_charge(rules, UsdPerHour(2 * PRICE), age_s, 2000, survival) == 2 * once


def test_a_minimum_charge_is_paid_by_the_short_lived() -> None:
    minimum = replace(AZURE, name="by the second, a minute at least", minimum_s=60)
    survival = Lives([10, 600])
    assert expected_charge(minimum, PRICE, 0, 600, survival) == pytest.approx(0.0001 * (60 + 600) / 2)
    assert expected_charge(minimum, PRICE, 0, 40, survival) == pytest.approx(0.0001 * 60)
