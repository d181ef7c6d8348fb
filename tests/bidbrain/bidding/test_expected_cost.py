"""Expected charges: equation 4.1 by hand, and the mean of many settlements under every rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.bidding.expected_cost import expected_charge, expected_refund
from pricing_data.model.billing import Charge, EndReason, settle
from pricing_data.model.market import MarketRules, Refund
from pricing_data.model.rules import AWS, AWS_2016, AZURE, GCP, GCP_PREEMPTIBLE, RULES
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour

START = Instant(1_500_000_000)
PRICE = UsdPerHour(0.36)
"""A hundred micro-dollars per second: settlements by the second round nothing."""


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


@dataclass(frozen=True)
class Case:
    """An instance of some age, the horizon we end it at, and the lifetimes it may have with equal chance."""

    rules: MarketRules
    age_s: int
    horizon_s: int
    lives: Sequence[int]

    def bills(self) -> Iterator[Sequence[Charge]]:
        """Returns the bills of all lifetimes by ``settle``; at the maximum lifetime the provider ends the
        machine.
        """
        for life in self.lives:
            provider_s = min(life, self.rules.max_lifetime_s or life)
            ends_s = min(provider_s, self.age_s + self.horizon_s)
            kind = EndReason.EVICTED if provider_s < self.age_s + self.horizon_s else EndReason.RELEASED
            yield settle(self.rules, PRICE, START, Instant(START + ends_s), kind)

    def mean(self, counted: Callable[[Charge], float]) -> float:
        """Mean over the lifetimes of what ``counted`` makes of their charges, in dollars."""
        return sum(sum(map(counted, bill)) for bill in self.bills()) / len(self.lives) / 1e6

    def until_horizon(self, charge: Charge) -> float:
        """Net of the refund; of an hour only the part up to the horizon (the paper's accounting)."""
        return charge.amount * self._share(charge, self._ends)

    def after_now(self, charge: Charge) -> float:
        """The same, of the seconds after now only."""
        now = START + self.age_s
        return charge.amount * (self._share(charge, self._ends) - self._share(charge, now))

    @property
    def _ends(self) -> int:
        """Returns the ends of bills.

        By the second everything billed counts: a minimum charge may exceed the horizon.
        """
        hourly = self.rules.quantum_s == HOUR_S
        return START + self.age_s + (self.horizon_s if hourly else self.horizon_s + self.rules.minimum_s)

    @staticmethod
    def _share(charge: Charge, until: int) -> float:
        """Share of the billed time of ``charge`` that lies before ``until``."""
        return max(min(charge.end, until) - charge.start, 0) / (charge.end - charge.start)


_SYNTHETIC = (
    replace(AWS_2016, name="hours, never refunded", refund=Refund.NOTHING),
    replace(AWS_2016, name="hours, the first free", refund=Refund.FIRST_HOUR),
    replace(AWS_2016, name="hours, the first minute free", refund=Refund.FIRST_MINUTE),
    replace(AWS_2016, name="hours, for 90 minutes", max_lifetime_s=5400),
    replace(AZURE, name="seconds, a minute at least", minimum_s=60),
    replace(AZURE, name="seconds, ten minutes at least", minimum_s=600),
    replace(GCP, name="seconds, for 40 s", max_lifetime_s=40),
    replace(AWS, name="seconds, for 50 minutes", max_lifetime_s=3000),
)
"""Rules of no cloud: what the two functions agree on must not hang on today's combinations."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rules = draw(st.sampled_from([*RULES.values(), *_SYNTHETIC]))
    oldest_s = min(rules.max_lifetime_s or 3 * HOUR_S, 25 * HOUR_S) - 1
    age_s = draw(st.one_of(st.integers(0, oldest_s), st.sampled_from([0, oldest_s])))
    # An instance evicted on the stroke of an hour has not begun the next; survival, P(T >= t), counts it
    # among those that have. Of real lifetimes, such ones are a share of no measure.
    lives = st.integers(age_s + 1, age_s + 4 * HOUR_S).filter(lambda life: life % HOUR_S)
    horizons = st.one_of(st.integers(1, 3 * HOUR_S), st.sampled_from([10, 60, HOUR_S, 3 * HOUR_S]))
    return Case(rules, age_s, draw(horizons), draw(st.lists(lives, min_size=1, max_size=12)))


@settings(max_examples=200, deadline=None)
@given(cases())
def test_is_the_mean_of_settlements_over_the_seconds_from_now_on(case: Case) -> None:
    lives = Lives(case.lives, case.age_s)
    expected = expected_charge(case.rules, PRICE, case.age_s, case.horizon_s, lives)
    assert expected == pytest.approx(case.mean(case.after_now), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_with_what_is_spent_and_what_may_come_back_it_is_the_whole_bill(case: Case) -> None:
    """Spent + expected charge - expected refund = the mean of the bills."""
    lives = Lives(case.lives, case.age_s)
    spent = PRICE * case.age_s / HOUR_S
    charge = expected_charge(case.rules, PRICE, case.age_s, case.horizon_s, lives)
    refund = expected_refund(case.rules, PRICE, case.age_s, case.horizon_s, lives)
    assert spent + charge - refund == pytest.approx(case.mean(case.until_horizon), abs=1e-9)
    assert 0 <= refund <= spent + 1e-12


def test_waiting_out_a_paid_hour_may_bring_it_back() -> None:
    """45 minutes of an hour at $0.36 are paid; one of four is evicted in the last 15."""
    lives = Lives([3000, 9000, 9000, 9000], age_s=2700)
    assert expected_refund(AWS_2016, PRICE, 2700, 900, lives) == pytest.approx(0.36 * 0.75 / 4)
    assert expected_refund(AWS_2016, PRICE, 2700, 100, lives) == pytest.approx(0.0)
    assert expected_refund(AZURE, PRICE, 2700, 900, lives) == pytest.approx(0.0)


def test_nobody_outlives_the_maximum_lifetime() -> None:
    """Half an hour before the end of a preemptible VM's day, two hours more cost half an hour."""
    day_s = 24 * HOUR_S
    lives = Lives([2 * day_s], age_s=day_s - 1800)
    assert expected_charge(GCP_PREEMPTIBLE, PRICE, day_s - 1800, 2 * HOUR_S, lives) == pytest.approx(0.18)
    assert expected_charge(GCP, PRICE, day_s - 1800, 2 * HOUR_S, lives) == pytest.approx(0.72)


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
