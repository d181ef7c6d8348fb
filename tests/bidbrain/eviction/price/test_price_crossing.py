"""The exact estimator against a brute force over every second, and against recorded markets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bidbrain.eviction.price.crossing_index import CrossingIndex
from bidbrain.eviction.price.first_passage import Passages, PriceSteps
from bidbrain.eviction.price.price_crossing import FittedPriceCrossing, PriceCrossing
from pricing_data.formats.traces import read_trace
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import HOUR_S, Instant, Seconds

MARKET = Market("aws", "us-east-1", "us-east-1a", "m4.xlarge")
BEGIN = 1_460_000_000


@st.composite
def walks(draw: st.DrawFn) -> tuple[Series, Instant]:
    """A short price walk on a lattice (ties with the bid are common) and a now at or after its last step."""
    size = draw(st.integers(1, 12))
    waits = draw(st.lists(st.integers(1, 20), min_size=size, max_size=size))
    cents = draw(st.lists(st.integers(1, 6), min_size=size, max_size=size))
    times = BEGIN + np.cumsum(np.array(waits, dtype=np.int64))
    now = int(times[-1]) + draw(st.integers(0, 30))
    return Series(times, np.array(cents) / 100), Instant(now)


deltas = st.sampled_from([0.0, 0.005, 0.01, 0.02, 0.03])


def fit_series(series: Series, now: int, window_s: int = 1) -> FittedPriceCrossing:
    return PriceCrossing(window_s).fit(PriceHistory.from_series({MARKET: series}), Instant(now))


def brute_force_times(series: Series, now: int, delta: float, watched_s: int) -> list[float]:
    """T of the start in the middle of every second that leaves ``watched_s``; infinite if never evicted.

    All borders are whole seconds, and T is linear between them: means over the middles are exact.
    """
    times, prices = series.times.tolist(), series.prices.tolist()
    lives = []
    for second in range(times[0], now - watched_s):
        price = next(p for t, p in zip(reversed(times), reversed(prices), strict=True) if t <= second)
        later = (t for t, p in zip(times, prices, strict=True) if t > second and p > price + delta + 1e-9)
        lives.append(next(later, float("inf")) - (second + 0.5))
    return lives


@settings(max_examples=150, deadline=None)
@given(walks(), deltas, st.integers(1, 60), st.integers(1, 60))
def test_equals_brute_force(
    walk: tuple[Series, Instant], delta: float, horizon_s: int, window_s: int
) -> None:
    series, now = walk
    lives = brute_force_times(series, now, delta, max(horizon_s, window_s))
    assume(lives)
    model = fit_series(series, now, window_s)
    beta = sum(life < horizon_s for life in lives) / len(lives)
    assert model.eviction_probability(MARKET, delta, 0, horizon_s) == pytest.approx(beta, abs=1e-12)
    uptime = sum(min(life, horizon_s) for life in lives) / len(lives)
    assert model.expected_uptime(MARKET, delta, 0, horizon_s) == pytest.approx(uptime, abs=1e-9)
    assert model.evidence(MARKET, horizon_s).used_s == Seconds(len(lives))


@settings(max_examples=150, deadline=None)
@given(walks(), deltas)
def test_median_halves_the_starts_that_were_watched(walk: tuple[Series, Instant], delta: float) -> None:
    series, now = walk
    median = fit_series(series, now).median_time_to_eviction(MARKET, delta, 0)
    watched_s = 1
    while lives := brute_force_times(series, now, delta, watched_s):
        if 2 * sum(life < watched_s for life in lives) >= len(lives):
            assert median is not None
            assert 2 * sum(life < median - 0.5 for life in lives) <= len(lives)
            assert 2 * sum(life <= median + 0.5 for life in lives) >= len(lives)
            return
        watched_s *= 2
    assert median is None


@settings(max_examples=60, deadline=None)
@given(walks(), st.integers(5, 60))
def test_beta_is_a_probability_that_grows_with_the_horizon_and_falls_with_delta(
    walk: tuple[Series, Instant], window_s: int
) -> None:
    series, now = walk
    model = fit_series(series, now, window_s)
    by_horizon = [model.eviction_probability(MARKET, 0.01, 0, h) for h in range(1, window_s + 1)]
    by_delta = [model.eviction_probability(MARKET, d, 0, window_s) for d in (0.0, 0.005, 0.01, 0.02, 0.05)]
    assert all(0 <= beta <= 1 for beta in by_horizon + by_delta)
    assert by_horizon == sorted(by_horizon)
    assert by_delta == sorted(by_delta, reverse=True)


@settings(max_examples=60, deadline=None)
@given(walks(), deltas, st.integers(1, 40))
def test_doubling_prices_and_deltas_changes_nothing(
    walk: tuple[Series, Instant], delta: float, horizon_s: int
) -> None:
    series, now = walk
    doubled = fit_series(Series(series.times, 2 * series.prices), now)
    once = fit_series(series, now)
    assert doubled.survival(MARKET, 2 * delta, 0, horizon_s) == once.survival(MARKET, delta, 0, horizon_s)
    assert doubled.median_time_to_eviction(MARKET, 2 * delta, 0) == once.median_time_to_eviction(
        MARKET, delta, 0
    )


@settings(max_examples=60, deadline=None)
@given(walks(), deltas, st.integers(1, 40), st.integers(0, 100))
def test_rows_after_now_are_not_looked_at(
    walk: tuple[Series, Instant], delta: float, horizon_s: int, cut_s: int
) -> None:
    series, end = walk
    now = max(int(series.times[0]), end - cut_s)
    past = series.times <= now
    known = fit_series(Series(series.times[past], series.prices[past]), now)
    assert fit_series(series, now).survival(MARKET, delta, 0, horizon_s) == known.survival(
        MARKET, delta, 0, horizon_s
    )


def test_a_worked_case() -> None:
    """0.10 for an hour, 0.20 for half an hour, then 0.10; bids 0.05 above, watched for half an hour.

    Of the 2.5 h of starts the half hour before the rise is evicted, on average after a quarter of one.
    """
    series = Series(np.array([0, 3600, 5400]) + BEGIN, np.array([0.1, 0.2, 0.1]))
    model = fit_series(series, BEGIN + 3 * HOUR_S, window_s=1800)
    assert model.eviction_probability(MARKET, 0.05, 0, 1800) == pytest.approx(0.2)
    assert model.expected_uptime(MARKET, 0.05, 0, 1800) == pytest.approx(0.8 * 1800 + 0.2 * 900)
    assert model.eviction_probability(MARKET, 0.1, 0, 1800) == 0, "a price that equals the bid does not evict"


def test_prices_that_repeat_add_no_steps() -> None:
    series = Series(np.array([0, 10, 20, 30]) + BEGIN, np.array([0.1, 0.1, 0.2, 0.2]))
    steps = PriceSteps.from_series(series, Instant(BEGIN + 40))
    assert (steps.begins_s.tolist(), steps.ends_s.tolist(), steps.prices.tolist()) == (
        [0, 20],
        [20, 40],
        [0.1, 0.2],
    )


def test_too_little_history_is_unknown_and_answered_pessimistically() -> None:
    series = Series(np.array([BEGIN]), np.array([0.1]))
    model = fit_series(series, BEGIN + 1800, window_s=HOUR_S)
    assert not model.evidence(MARKET, 60).is_known
    assert model.eviction_probability(MARKET, 0.1, 0, 60) == 1
    assert model.expected_uptime(MARKET, 0.1, 0, 60) == Seconds(0)
    assert model.median_time_to_eviction(MARKET, 0.1, 0) is None
    never_seen = Market("aws", "us-east-1", "us-east-1b", "m4.xlarge")
    assert not model.evidence(never_seen, 60).is_known
    assert model.survival(never_seen, 0.1, 0, 60) == 0


def test_a_bid_below_the_price_is_being_evicted() -> None:
    series = Series(np.array([BEGIN]), np.array([0.1]))
    model = fit_series(series, BEGIN + 7200)
    assert model.survival(MARKET, 0.0, 0, 600) == 1
    assert model.survival(MARKET, -0.001, 0, 600) == 0
    assert model.median_time_to_eviction(MARKET, -0.001, 0) == Seconds(0)


def test_evidence_says_how_much_of_the_history_was_used() -> None:
    series = Series(np.array([BEGIN]), np.array([0.1]))
    evidence = fit_series(series, BEGIN + 4 * HOUR_S, window_s=HOUR_S).evidence(MARKET, 60)
    assert (evidence.span_s, evidence.used_s) == (Seconds(4 * HOUR_S), Seconds(3 * HOUR_S))


@pytest.mark.parametrize(
    ("file", "instance_type", "zone", "betas"),
    [
        ("aws-spot-2015/spot_prices", "c3.xlarge", "a", {0.01: 0.190, 0.4: 0.091}),
        ("aws-spot-2016mid/spot_prices", "m4.xlarge", "a", {0.0001: 0.703, 0.001: 0.333, 0.01: 0.011}),
        ("aws-spot-2016q1/spot_prices", "g2.8xlarge", "a", {0.01: 0.549, 0.1: 0.233}),
        ("aws-spot-2020-2021/spot_prices_us-east-1_2021", "c4.2xlarge", "b", {0.01: 0.0}),
        ("aws-v100-prices-2023/spot_prices", "p3.2xlarge", "c", {0.01: 0.012, 0.05: 0.0}),
    ],
)
def test_recorded_markets(
    recorded_data: Path, file: str, instance_type: str, zone: str, betas: dict[float, float]
) -> None:
    """Shares counted independently on the recorded prices, from a start every five minutes."""
    market = Market("aws", "us-east-1", f"us-east-1{zone}", instance_type)
    recording = read_trace(recorded_data / f"{file}.csv.gz", only=lambda m: m == market)
    model = PriceCrossing().fit(recording.history, recording.last)
    found = {delta: model.eviction_probability(market, delta, 0, HOUR_S) for delta in betas}
    assert found == pytest.approx(betas, abs=0.003)


@settings(max_examples=60, deadline=None)
@given(walks(), walks(), deltas, st.integers(1, 400), st.integers(1, 60), st.integers(0, 300))
def test_what_is_found_once_is_to_the_bit_what_first_passages_say(
    walk: tuple[Series, Instant],
    other: tuple[Series, Instant],
    delta: float,
    horizon_s: int,
    window_s: int,
    back_s: int,
) -> None:
    """At any now, whatever comes later; with a price said twice, as a run says it when it starts."""
    series, end = walk
    now = Instant(max(int(end) - back_s, int(series.times[0])))
    known = PriceHistory.from_series({MARKET: series}).as_of(now)
    if now > known.series(MARKET).times[-1]:
        known = known.with_step(MARKET, now, known.series(MARKET).prices[-1])
    steps = PriceSteps.from_series(known.series(MARKET), now)
    for whole in (series, other[0]):  # what is held may be of other prices, too
        held = PriceCrossing(window_s, {MARKET: CrossingIndex.from_series(whole)}).fit(known, now)
        for asked_s in (horizon_s, 2 * horizon_s, HOUR_S, HOUR_S + horizon_s, 25 * HOUR_S):
            watched_s = max(asked_s, window_s)
            some = steps.starts_s(watched_s) > 0
            plainly = (
                Passages.from_steps(steps, delta).survival_and_uptime(asked_s, watched_s)
                if some
                else (0.0, 0.0)
            )
            assert held.survival(MARKET, delta, 0.0, asked_s) == plainly[0]
            assert held.expected_uptime(MARKET, delta, 0.0, asked_s) == plainly[1]


def test_what_a_recorded_market_answers_does_not_depend_on_what_it_remembers(recorded_data: Path) -> None:
    """Hundreds of deltas, more than are remembered, at three nows; again in another order."""
    market = Market("aws", "us-east-1", "us-east-1a", "g2.8xlarge")
    file = recorded_data / "aws-spot-2016q1" / "spot_prices.csv.gz"
    history = read_trace(file, only=lambda m: m == market).history
    series = history.series(market)
    held, random = CrossingIndex.from_series(series), np.random.default_rng(2)
    nows = [Instant(int(series.times[n])) for n in (len(series) // 3, len(series) // 2, -1)]
    asked = [(now, float(delta)) for now in nows for delta in random.uniform(0, 0.05, 40)]
    first: dict[tuple[Instant, float], tuple[float, float]] = {}
    for now, delta in (*asked, *asked[::-1]):
        fit = PriceCrossing(recorded={market: held}).fit(history.as_of(now), now)
        answer = fit.survival(market, delta, 0.0, HOUR_S), fit.expected_uptime(market, delta, 0.0, HOUR_S)
        assert first.setdefault((now, delta), answer) == answer
    for now, delta in asked[::10]:
        plainly = Passages.from_steps(PriceSteps.from_series(history.as_of(now).series(market), now), delta)
        assert plainly.survival_and_uptime(HOUR_S, HOUR_S) == first[now, delta]


def test_grids_are_answered_once_and_nobody_can_spoil_them() -> None:
    series = Series(BEGIN + np.arange(0, 4000, 10), np.tile([0.1, 0.2, 0.1, 0.15], 100))
    fit = fit_series(series, BEGIN + 5000)
    chances = fit.survival_batch((MARKET,))
    market, bids, age_s = (
        np.zeros((1, 1, 1), np.int64),
        np.linspace(0, 0.2, 20)[None, None],
        np.zeros((1, 1, 1)),
    )
    horizon_s = np.full((1, 1, 1), 60.0)
    survival, uptime_s = chances.survival_and_uptime(market, bids, age_s, horizon_s)
    assert survival.ravel().tolist() == [fit.survival(MARKET, d, 0.0, 60.0) for d in bids.ravel().tolist()]
    assert uptime_s.ravel().tolist() == [
        fit.expected_uptime(MARKET, d, 0.0, 60.0) for d in bids.ravel().tolist()
    ]
    survival[:] = -1.0
    assert fit.survival_batch((MARKET,)) is chances
    assert (chances.survival_and_uptime(market, bids, age_s, horizon_s)[0] >= 0).all()
    longer = chances.survival_and_uptime(market, bids, age_s, horizon_s * 2)[1]
    assert (longer >= uptime_s).all()
    assert (longer > uptime_s).any()
