"""Scores by hand, base rates that only know the past, and a choice that finds the truth and keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.eviction.base import Evidence, FittedMarkets
from bidbrain.eviction.capacity.curves import FittedCurves
from bidbrain.eviction.capacity.hazard import HazardCurve, MarketCurve
from bidbrain.eviction.scoring import (
    base_rates,
    brier_score,
    brier_skill,
    choose_estimator,
    find_starts,
    log_loss,
    prefer_least_loss,
    reliability_bins,
)
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant, Seconds

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
LOST = np.array([True, False, False, True])


def test_scores_by_hand() -> None:
    given = np.array([0.8, 0.4, 0.0, 0.5])
    assert brier_score(given, LOST) == pytest.approx((0.04 + 0.16 + 0 + 0.25) / 4)
    assert log_loss(given, LOST) == pytest.approx(-(math.log(0.8 * 0.6 * 0.5) + math.log(0.9999)) / 4)
    assert brier_skill(given, np.full(4, 0.5), LOST) == pytest.approx(1 - 0.1125 / 0.25)
    assert math.isnan(brier_skill(given, LOST.astype(float), LOST))


def test_reliability_by_hand() -> None:
    table = reliability_bins(np.array([0.1, 0.15, 0.9, 1.0]), LOST, bins=2)
    assert [(row.low, row.high, row.count) for row in table] == [(0.0, 0.5, 2), (0.5, 1.0, 2)]
    assert [(row.given, row.happened) for row in table] == [(0.125, 0.5), (0.95, 0.5)]


def test_starts_whose_outcome_was_not_watched_are_left_out() -> None:
    spells = Spells.from_columns([0, 1000], [700, 1500], [True, False])
    found = find_starts(spells, 100, 300)
    assert found.moments.tolist() == [0, 100, 200, 300, 400, 500, 600, 1000, 1100, 1200]
    assert found.lost.tolist() == [False] * 4 + [True] * 3 + [False] * 3
    assert found.ages_s.tolist() == [0, 100, 200, 300, 400, 500, 600, 0, 100, 200]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 900), st.booleans()), min_size=1, max_size=9))
def test_base_rates_know_only_what_was_settled(found: list[tuple[int, int, bool]]) -> None:
    begins = np.array([begin for begin, _, _ in found])
    ends = begins + np.array([length for _, length, _ in found])
    every = find_starts(Spells.from_columns(begins, ends, [gone for _, _, gone in found]), 50, 200)
    for moment, rate in zip(every.moments, base_rates(every, 200), strict=True):
        settled = every.moments + 200 <= moment
        assert rate == pytest.approx((every.lost[settled].sum() + 0.5) / (settled.sum() + 1))


def constant_model(hazard_per_h: float) -> Callable[[Instant], FittedMarkets]:
    evidence = Evidence(Seconds(1.0), Seconds(1.0), "fixed", Instant(0))
    known = MarketCurve(HazardCurve.with_constant_rate(hazard_per_h / HOUR_S), (0.5, 2.0), evidence)
    return lambda _: FittedCurves(lambda _: known)


def test_the_choice_finds_the_hazard_that_was_drawn_from() -> None:
    random = np.random.default_rng(4)
    lives = np.maximum(random.exponential(2 * HOUR_S, size=400).astype(np.int64), 60)
    begins = np.append(0, np.cumsum(lives + 60)[:-1])
    seen = Observations.from_spells(
        {MARKET: Spells.from_columns(begins, begins + lives, np.ones(400, np.bool_))}
    )
    now = Instant(int(begins[-1]))
    candidates = {
        "far off": constant_model(0.01),
        "right": constant_model(0.5),
        "too high": constant_model(3.0),
    }
    assert choose_estimator(candidates, seen, MARKET, now) == "right"
    assert choose_estimator(candidates, seen, MARKET, Instant(HOUR_S)) == "far off", (
        "too little: the first that knows"
    )


def test_a_lead_within_chance_changes_nothing() -> None:
    random = np.random.default_rng(6)
    losses = random.uniform(size=100)
    noise = random.normal(scale=0.5, size=100)
    noise -= noise.mean() + 0.01
    assert prefer_least_loss({"first": losses, "barely better": losses + noise}) == "first"
    assert prefer_least_loss({"first": losses, "better": losses - 0.1 + 0.01 * noise}) == "better"
