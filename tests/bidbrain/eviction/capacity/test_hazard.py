"""Hazard curves against numeric integration, and lifetimes against closed forms and the product limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.eviction.capacity.exposure import exposure_rows
from bidbrain.eviction.capacity.hazard import HazardCurve, beta_limits, gamma_limits
from bidbrain.eviction.capacity.lifetimes import bathtub, constant_hazard, kaplan_meier, weibull
from bidbrain.eviction.capacity.poisson import ridge_poisson
from bidbrain.eviction.capacity.recent_losses import LossRecord
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")


@st.composite
def curves(draw: st.DrawFn) -> HazardCurve:
    size = draw(st.integers(1, 5))
    steps = draw(st.lists(st.integers(1, 500), min_size=size - 1, max_size=size - 1))
    rates = draw(st.lists(st.sampled_from([0.0, 1e-4, 1e-3, 0.02]), min_size=size, max_size=size))
    return HazardCurve.from_rates(np.append(0.0, np.cumsum(steps)), rates)


@settings(max_examples=100, deadline=None)
@given(curves(), st.integers(0, 900), st.integers(1, 900))
def test_survival_and_uptime_are_integrals_of_the_hazard(
    curve: HazardCurve, age_s: int, horizon_s: int
) -> None:
    moments = age_s + (np.arange(horizon_s * 20) + 0.5) / 20
    rates = curve.rates[np.searchsorted(curve.edges_s, moments, side="right") - 1]
    assert curve.hazard_between(age_s, horizon_s) == pytest.approx(rates.sum() / 20, rel=1e-9, abs=1e-12)
    survival = np.exp(-(np.cumsum(rates) - rates / 2) / 20)
    assert curve.expected_uptime(age_s, horizon_s) == pytest.approx(survival.sum() / 20, rel=1e-4)
    assert curve.hazards_between(np.array([float(age_s)]), horizon_s)[0] == curve.hazard_between(
        age_s, horizon_s
    )


@settings(max_examples=100, deadline=None)
@given(curves(), st.integers(0, 900))
def test_half_are_gone_at_the_median(curve: HazardCurve, age_s: int) -> None:
    median = curve.median(age_s)
    if median is None:
        assert curve.survival(age_s, 1e6) > 0.5
    else:
        assert curve.survival(age_s, median) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("edges", "rates", "why"),
    [
        ([1.0], [0.1], "first edge at age 0"),
        ([0.0, 5.0], [0.1], "as many rates"),
        ([0.0, 5.0, 5.0], [0.1, 0.1, 0.1], "must increase"),
        ([0.0], [-0.1], "no negative number"),
    ],
)
def test_what_is_no_hazard_is_refused(edges: list[float], rates: list[float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HazardCurve.from_rates(edges, rates)


def test_limits_narrow_with_losses_and_hold_what_gamma_says() -> None:
    random = np.random.default_rng(2)
    for shape in (1.0, 3.0, 30.0):
        low, high = gamma_limits(shape)
        drawn = random.gamma(shape, 1 / shape, size=100_000)
        assert np.mean((drawn >= low) & (drawn <= high)) == pytest.approx(0.95, abs=0.015)
    assert beta_limits(0.1, (1.0, 1.0))[0] == pytest.approx(-math.expm1(-0.1))


lives = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=2, max_size=15).filter(
    lambda found: any(lost for _, lost in found)
)


@settings(max_examples=150, deadline=None)
@given(lives)
def test_kaplan_meier_is_the_product_limit(found: list[tuple[int, bool]]) -> None:
    """At every age of a loss that somebody outlived, censored ones counted at risk until they left."""
    ages = np.array([float(age) for age, _ in found])
    lost = np.array([gone for _, gone in found])
    curve, product = kaplan_meier(ages, lost), 1.0
    for age in sorted(set(ages[lost].tolist())):
        deaths, at_risk = np.count_nonzero(lost & (ages == age)), np.count_nonzero(ages >= age)
        if deaths < at_risk:
            product *= 1 - deaths / at_risk
            assert curve.survival(0, age) == pytest.approx(product)


def test_a_constant_hazard_is_losses_over_time() -> None:
    ages, lost = np.array([3600.0, 7200.0, 7200.0]), np.array([True, True, False])
    assert constant_hazard(ages, lost).survival(0, 3600) == pytest.approx(math.exp(-2 * 3600 / 18000))


def test_weibull_finds_the_shape_it_was_drawn_from_despite_censoring() -> None:
    random = np.random.default_rng(8)
    drawn = 5 * HOUR_S * random.weibull(0.6, size=4000)
    given_up = random.uniform(0, 10 * HOUR_S, size=4000)
    curve = weibull(np.minimum(drawn, given_up), drawn <= given_up)
    for hours in (0.2, 1, 4):
        assert curve.survival(0, hours * HOUR_S) == pytest.approx(math.exp(-((hours / 5) ** 0.6)), abs=0.02)


def test_a_bathtub_has_two_walls() -> None:
    random = np.random.default_rng(9)
    young = random.exponential(0.5 * HOUR_S, size=300)
    old = 24 * HOUR_S - random.exponential(0.5 * HOUR_S, size=400)
    given_up = random.uniform(0, 24 * HOUR_S, size=200)
    ages = np.concatenate([young, old, given_up])
    curve = bathtub(ages, np.arange(len(ages)) < 700)
    first, middle, last = (1 - curve.survival(age * HOUR_S, HOUR_S) for age in (0, 12, 22.5))
    assert first > 5 * middle
    assert last > 5 * middle


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 90_000), st.booleans()), min_size=1, max_size=12)
)
def test_rows_keep_all_time_and_every_loss(found: list[tuple[int, int, bool]]) -> None:
    begins = np.array([begin for begin, _, _ in found])
    lengths = np.array([length for _, length, _ in found])
    lost = np.array([gone for _, _, gone in found])
    rows = exposure_rows(
        Observations.from_spells({MARKET: Spells.from_columns(begins, begins + lengths, lost)})
    )
    assert rows.at_risk_s.sum() == lengths.sum()
    assert np.count_nonzero(rows.lost) == np.count_nonzero(lost)
    assert bool(np.all(rows.at_risk_s >= 0))


def test_the_regression_finds_rates_by_group_and_its_slope_is_zero_there() -> None:
    group = np.array([0.0, 0.0, 1.0, 1.0])
    losses, exposure = np.array([3.0, 1.0, 9.0, 7.0]), np.array([100.0, 100.0, 100.0, 300.0])
    fitted = ridge_poisson(group[:, None], losses, exposure, 0.0)
    assert fitted.predict_rates(np.array([[0.0], [1.0]])) == pytest.approx([4 / 200, 16 / 400])
    drawn = ridge_poisson(group[:, None], losses, exposure, 1e6)
    assert drawn.predict_rates(np.array([[0.0], [1.0]])) == pytest.approx([20 / 600, 20 / 600], rel=1e-3)
    with pytest.raises(ValueError, match="at least one loss"):
        ridge_poisson(group[:, None], np.zeros(4), exposure, 1.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 7000),
)
def test_a_record_is_the_faded_sum_of_what_was_over_or_running(
    found: list[tuple[int, int, bool]], moment: int
) -> None:
    begins = np.array([begin for begin, _, _ in found])
    ends = begins + np.array([length for _, length, _ in found])
    rows = exposure_rows(
        Observations.from_spells({MARKET: Spells.from_columns(begins, ends, [gone for _, _, gone in found])})
    )
    rate, memory_s, lost, expected = 1e-3, 2000.0, 0.0, 0.0
    for begin, end, gone in zip(rows.begins, rows.ends, rows.lost, strict=True):
        if end <= moment:
            fading = math.exp(-(moment - end) / memory_s)
            lost += gone * fading
            expected += rate * (end - begin) * fading
        elif begin < moment:
            expected += rate * (moment - begin)
    record = LossRecord.from_rows(rows, np.full(len(rows.cell), rate), memory_s)
    factor = record.factor_at(np.array([float(moment)]), 2.0)[0]
    assert factor == pytest.approx((2 + lost) / (2 + expected), rel=1e-9)
