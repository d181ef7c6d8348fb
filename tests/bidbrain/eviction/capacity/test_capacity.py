"""The estimators of capacity: what they borrow, what moves them, and that they never look ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.eviction.capacity.curves import CurveModel
from bidbrain.eviction.capacity.exposure import exposure_rows
from bidbrain.eviction.capacity.lifetime_model import LifetimeModel
from bidbrain.eviction.capacity.pooled import PooledModel, instance_family
from bidbrain.eviction.capacity.published_rates import Band, BandModel
from bidbrain.eviction.capacity.regime_hazard import MarketRecord, Memory, RegimeHazard, learn_hazard
from bidbrain.eviction.price.price_crossing import FittedPriceCrossing
from bidbrain.eviction.selector import EstimatorSelector
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import HOUR_S, Instant

BEGIN = 1_680_000_000
DAY_S = 86400
HERE = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
BESIDE = replace(HERE, zone="us-east-1b")
NEVER_SEEN = replace(HERE, zone="us-east-1f")
NOW = Instant(BEGIN + 20 * DAY_S)
NOTHING = PriceHistory()


def draw_spells(hazard_per_h: float, seed: int, days: float = 20, shape: float = 1.0) -> Spells:
    """Spells one after the other, Weibull of that shape, each an hour after the last; censored at the end."""
    random = np.random.default_rng(seed)
    begins, ends, lost, at = [], [], [], float(BEGIN)
    until = BEGIN + days * DAY_S
    while at < until:
        life = random.weibull(shape) / hazard_per_h * HOUR_S + 1
        begins.append(int(at))
        ends.append(int(min(at + life, until)))
        lost.append(at + life < until)
        at += life + HOUR_S
    return Spells.from_columns(begins, ends, lost)


def beta(model: CurveModel, market: Market, age_s: float = 0.0, now: Instant = NOW) -> float:
    return model.fit(NOTHING, now).eviction_probability(market, 0.0, age_s, HOUR_S)


MODELS = (RegimeHazard, PooledModel, LifetimeModel)


@pytest.mark.parametrize("model", MODELS)
def test_what_ends_after_now_changes_nothing(model: type[RegimeHazard | PooledModel | LifetimeModel]) -> None:
    whole = Observations.from_spells({HERE: draw_spells(0.5, 1), BESIDE: draw_spells(0.2, 2)})
    now = Instant(BEGIN + 9 * DAY_S + 1234)
    assert beta(model(whole), HERE, now=now) == beta(model(whole.as_of(now)), HERE, now=now)


@pytest.mark.parametrize("model", [RegimeHazard, PooledModel])
def test_a_market_that_nobody_saw_gets_what_its_neighbours_have(
    model: type[RegimeHazard | PooledModel],
) -> None:
    bad, good = (
        Observations.from_spells({HERE: draw_spells(1.0, 3)}),
        Observations.from_spells({HERE: draw_spells(0.1, 4)}),
    )
    assert beta(model(bad), NEVER_SEEN) > 2 * beta(model(good), NEVER_SEEN)


@pytest.mark.parametrize("model", [RegimeHazard, PooledModel])
def test_own_losses_move_a_market_away_from_its_neighbours(model: type[RegimeHazard | PooledModel]) -> None:
    seen = Observations.from_spells({HERE: draw_spells(0.1, 5), BESIDE: draw_spells(0.1, 6)})
    before = beta(model(seen), NEVER_SEEN)
    for loss in range(8):
        begin = NOW - 16 * HOUR_S + loss * 2 * HOUR_S
        seen = seen.with_spell(NEVER_SEEN, begin, begin + 600, True)
    assert beta(model(seen), NEVER_SEEN) > 1.5 * before
    assert beta(model(seen), HERE) < beta(model(seen), NEVER_SEEN)


def test_the_young_are_lost_sooner_than_the_old_and_it_is_found_out() -> None:
    seen = Observations.from_spells(
        {HERE: draw_spells(0.5, 7, shape=0.5), BESIDE: draw_spells(0.5, 8, shape=0.5)}
    )
    assert beta(RegimeHazard(seen), NEVER_SEEN, 0) > 1.5 * beta(RegimeHazard(seen), NEVER_SEEN, 6 * HOUR_S)


def test_losses_like_clockwork_are_foreseen_and_no_age_is_out_of_numbers() -> None:
    """Lost after exactly two hours each time: sure to be lost then, safe before."""
    begins = np.arange(NOW - 20 * 86400, NOW - 3 * HOUR_S, 3 * HOUR_S)
    spells = Spells.from_columns(begins, begins + 2 * HOUR_S, np.ones(len(begins), np.bool_))
    model = RegimeHazard(Observations.from_spells({HERE: spells}))
    assert beta(model, HERE) < 0.05
    assert beta(model, HERE, age_s=1.9 * HOUR_S) > 0.9


def test_a_machine_started_now_is_as_old_as_the_markets_capacity() -> None:
    """The probes have been up for hours: a new machine does not face the hazard of the first minutes."""
    running = draw_spells(0.5, 7, days=19, shape=0.5).with_spell(NOW - 6 * HOUR_S, NOW, False)
    model = RegimeHazard(Observations.from_spells({HERE: running, BESIDE: draw_spells(0.5, 8, shape=0.5)}))
    assert beta(model, HERE, 0) == beta(model, HERE, 6 * HOUR_S) < beta(model, NEVER_SEEN, 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(2 * HOUR_S, 15 * DAY_S), st.integers(0, 30 * HOUR_S))
def test_asked_in_bulk_a_record_answers_as_a_fit_at_each_moment_would(after_s: int, age_s: int) -> None:
    seen = Observations.from_spells({HERE: draw_spells(0.4, 10), BESIDE: draw_spells(0.2, 11)})
    learned = learn_hazard(seen, NOW, Memory())
    assert learned is not None
    moment = Instant(BEGIN + after_s)
    bulk = MarketRecord.from_rows(learned, exposure_rows(Observations.from_spells({HERE: seen.spells(HERE)})))
    one = MarketRecord.from_rows(
        learned, exposure_rows(Observations.from_spells({HERE: seen.spells(HERE).as_of(moment)}))
    )
    hazards = bulk.hazards_at(np.array([float(moment)]), np.array([float(age_s)]), HOUR_S)
    assert hazards[0] == pytest.approx(one.curve_at(moment).hazard_between(age_s, HOUR_S), rel=1e-9)


def test_intervals_hold_the_truth_and_narrow() -> None:
    """Constant hazards drawn 40 times: the interval of beta holds the true one nearly always."""
    truth, widths, held = -np.expm1(-0.3), [], 0
    for seed in range(40):
        for days in (4, 20):
            seen = Observations.from_spells({HERE: draw_spells(0.3, 100 + seed, days)})
            found = LifetimeModel(seen, least_losses=1).fit(NOTHING, NOW).beta(HERE, 0.0, HOUR_S, 24 * HOUR_S)
            widths.append(found.high - found.low)
        pooled = PooledModel(seen).fit(NOTHING, NOW).beta(HERE, 0.0, 3 * HOUR_S, HOUR_S)
        held += pooled.low <= truth <= pooled.high
    assert held >= 35
    assert np.mean(widths[1::2]) < np.mean(widths[::2])


def test_a_first_loss_elsewhere_does_not_speak_louder_than_what_is_published() -> None:
    published = {
        replace(NEVER_SEEN, zone=HERE.region): Band(0.0, 0.05, 30 * DAY_S, Instant(BEGIN), "advisor")
    }
    seen = Observations().with_spell(HERE, NOW - HOUR_S, NOW - 60, True)
    fitted = EstimatorSelector(AWS, seen, published).fit(NOTHING, NOW)
    assert fitted.evidence(NEVER_SEEN, HOUR_S).source == "advisor"
    assert fitted.eviction_probability(HERE, 0.0, 0.0, HOUR_S) > 5 * fitted.eviction_probability(
        NEVER_SEEN, 0.0, 0.0, HOUR_S
    )


def test_few_losses_are_no_lifetime_table() -> None:
    seen = Observations.from_spells(
        {HERE: Spells.from_columns([BEGIN] * 4, [BEGIN + HOUR_S] * 4, [True] * 4)}
    )
    assert not LifetimeModel(seen).fit(NOTHING, NOW).evidence(HERE, HOUR_S).is_known
    assert LifetimeModel(seen, least_losses=4).fit(NOTHING, NOW).evidence(HERE, HOUR_S).is_known


@pytest.mark.parametrize("model", MODELS)
def test_without_any_loss_nothing_is_known(model: type[RegimeHazard | PooledModel | LifetimeModel]) -> None:
    seen = Observations.from_spells({HERE: Spells.from_columns([BEGIN], [BEGIN + HOUR_S], [False])})
    assert beta(model(seen), HERE) == 1


def test_a_band_is_a_prior_that_own_losses_outweigh() -> None:
    region = replace(HERE, zone=HERE.region)
    published = {region: Band(0.15, 0.20, 30 * DAY_S, Instant(BEGIN), "advisor")}
    told = beta(BandModel(published), HERE)
    assert told == pytest.approx(1 - 0.825 ** (1 / 720), rel=0.05), "a month's share, as a constant hazard"
    seen = Observations.from_spells({HERE: draw_spells(0.5, 12)})
    assert beta(BandModel(published, seen), HERE) == pytest.approx(-np.expm1(-0.5), rel=0.25)
    assert beta(BandModel(published), HERE, now=Instant(BEGIN - 1)) == 1, "not published yet"


def test_bands_without_ends_stay_finite_and_grow_with_what_they_say() -> None:
    ends = ((0.0, 0.0), (0.0, 0.05), (0.05, 0.1), (0.1, 0.1), (0.2, 1.0), (1.0, 1.0))
    hazards = [Band(low, high, DAY_S, Instant(0), "").hazards for low, high in ends]
    assert all(low <= middle <= high for low, middle, high in hazards)
    middles = [middle * DAY_S for _, middle, _ in hazards]
    assert all(0 < middle < 10 for middle in middles)
    assert middles == sorted(middles)
    with pytest.raises(ValueError, match="within \\[0, 1\\]"):
        Band(0.2, 0.1, DAY_S, Instant(0), "")


def test_families_of_types() -> None:
    names = ("p3.2xlarge", "p3dn.24xlarge", "n1-highcpu-16", "a2-highgpu-1g", "Standard_NC6s_v3")
    assert [instance_family(name) for name in names] == [
        "p3",
        "p3dn",
        "n1-highcpu",
        "a2-highgpu",
        "Standard_NC",
    ]


def test_where_prices_clear_by_bid_crossing_is_eviction() -> None:
    seen = Observations.from_spells({HERE: draw_spells(0.5, 13)})
    assert isinstance(EstimatorSelector(AWS_2016, seen).fit(NOTHING, NOW), FittedPriceCrossing)


def test_the_choice_falls_on_who_knows_and_follows_what_happened() -> None:
    published = {replace(HERE, zone=HERE.region): Band(0.0, 0.05, 30 * DAY_S, Instant(BEGIN), "advisor")}
    unseen = EstimatorSelector(AWS, bands=published).fit(NOTHING, NOW)
    assert unseen.evidence(HERE, HOUR_S).source == "advisor"
    assert not unseen.evidence(replace(HERE, region="eu-west-1"), HOUR_S).is_known
    seen = EstimatorSelector(AWS, Observations.from_spells({HERE: draw_spells(0.5, 14)}), published).fit(
        NOTHING, NOW
    )
    assert "losses" in seen.evidence(HERE, HOUR_S).source
    assert seen.eviction_probability(HERE, 0.1, 0, HOUR_S) > 0.2


def test_the_choice_is_made_from_what_was_known_at_midnight() -> None:
    whole = Observations.from_spells({HERE: draw_spells(0.5, 15), BESIDE: draw_spells(0.1, 16)})
    now = Instant(BEGIN + 12 * DAY_S)
    early = EstimatorSelector(AWS, whole.as_of(now)).fit(NOTHING, now)
    late = EstimatorSelector(AWS).with_observations(whole).fit(NOTHING, now)
    assert early.beta(HERE, 0.0, 0.0, HOUR_S) == late.beta(HERE, 0.0, 0.0, HOUR_S)
