"""The table of all deltas against a brute force, against ``PriceCrossing``, and across block borders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bidbrain.eviction.price import beta_table as module
from bidbrain.eviction.price.beta_table import beta_table
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import BID_DELTAS
from pricing_data.formats.traces import read_trace
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import HOUR_S, Instant

MARKET = Market("aws", "us-east-1", "us-east-1a", "m4.xlarge")
BEGIN = 1_460_000_000
DELTAS = (0.0, 0.005, 0.01, 0.02, 0.03)


@st.composite
def walks(draw: st.DrawFn) -> tuple[Series, Instant]:
    """Few prices on a lattice: plateaus, bids met exactly, long gaps, and a now at or after the last step."""
    size = draw(st.integers(1, 14))
    waits = draw(st.lists(st.sampled_from([1, 1, 2, 3, 5, 17, 60]), min_size=size, max_size=size))
    cents = draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    times = BEGIN + np.cumsum(np.array(waits, dtype=np.int64))
    return Series(times, np.array(cents) / 100), Instant(int(times[-1]) + draw(st.integers(0, 40)))


def brute_force_evictions(
    series: Series, now: int, delta: float, horizon_s: int, watched_s: int
) -> list[bool]:
    """Whether the start in the middle of each second is evicted; all borders are whole seconds."""
    rows = list(zip(series.times.tolist(), series.prices.tolist(), strict=True))
    found = []
    for second in range(rows[0][0], now - watched_s):
        granted = [price for time, price in rows if time <= second][-1]
        window = [price for time, price in rows if second < time < second + 0.5 + horizon_s]
        found.append(any(price > granted + delta + 1e-9 for price in window))
    return found


@settings(max_examples=100, deadline=None)
@given(walks(), st.integers(1, 70), st.integers(0, 30))
def test_equals_brute_force(walk: tuple[Series, Instant], horizon_s: int, longer_s: int) -> None:
    series, now = walk
    watched_s = horizon_s + longer_s
    assume(int(series.times[0]) < now - watched_s)
    shares = [np.mean(brute_force_evictions(series, now, delta, horizon_s, watched_s)) for delta in DELTAS]
    assert beta_table(series, now, DELTAS, horizon_s, watched_s) == pytest.approx(shares, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(walks(), st.integers(1, 70))
def test_equals_price_crossing(walk: tuple[Series, Instant], horizon_s: int) -> None:
    series, now = walk
    fitted = PriceCrossing(1).fit(PriceHistory.from_series({MARKET: series}), now)
    betas = [fitted.eviction_probability(MARKET, delta, 0, horizon_s) for delta in DELTAS]
    assert beta_table(series, now, DELTAS, horizon_s) == pytest.approx(betas, abs=1e-12)


@pytest.mark.parametrize("horizon_s", [600, HOUR_S, 20 * HOUR_S])
def test_blocks_do_not_show(horizon_s: int) -> None:
    """More steps than a block holds, at random, with jumps across the border."""
    random = np.random.default_rng(11)
    count = module._BLOCK + 500
    times = BEGIN + np.cumsum(random.integers(30, 400, size=count))
    series = Series(times, np.round(0.05 * random.lognormal(0, 0.3, size=count), 4))
    now = Instant(int(times[-1]) + 1000)
    fitted = PriceCrossing(horizon_s).fit(PriceHistory.from_series({MARKET: series}), now)
    betas = [fitted.eviction_probability(MARKET, delta, 0, horizon_s) for delta in BID_DELTAS]
    assert beta_table(series, now, BID_DELTAS, horizon_s) == pytest.approx(betas, abs=1e-12)


def test_steps_that_share_an_instant_are_refused_by_the_history_and_never_get_here() -> None:
    with pytest.raises(ValueError, match="must strictly increase"):
        PriceHistory.from_series({MARKET: Series(np.array([BEGIN, BEGIN]), np.array([0.1, 0.2]))})


def test_without_a_start_that_was_watched_every_bid_is_lost() -> None:
    series = Series(np.array([BEGIN]), np.array([0.1]))
    assert beta_table(series, Instant(BEGIN + HOUR_S), DELTAS, HOUR_S).tolist() == [1.0] * len(DELTAS)
    nothing = Series(np.empty(0, np.int64), np.empty(0))
    assert beta_table(nothing, Instant(BEGIN), DELTAS, HOUR_S).tolist() == [1.0] * len(DELTAS)


@pytest.mark.parametrize(
    ("deltas", "horizon_s", "watched_s", "why"),
    [
        ((), 60, 60, "at least one number, increasing"),
        ((0.2, 0.1), 60, 60, "at least one number, increasing"),
        ((-0.1, 0.1), 60, 60, "none negative"),
        ((0.1,), 0, 60, "a horizon of 0 s"),
        ((0.1,), 61, 60, "watched for as long or longer"),
    ],
)
def test_bad_questions_are_refused(
    deltas: tuple[float, ...], horizon_s: int, watched_s: int, why: str
) -> None:
    series = Series(np.array([BEGIN]), np.array([0.1]))
    with pytest.raises(ValueError, match=why):
        beta_table(series, Instant(BEGIN + 3600), deltas, horizon_s, watched_s)


def test_recorded_prices_give_what_price_crossing_gives(recorded_data: Path) -> None:
    market = Market("aws", "us-east-1", "us-east-1a", "g2.8xlarge")
    recording = read_trace(
        recorded_data / "aws-spot-2016q1" / "spot_prices.csv.gz", only=lambda m: m == market
    )
    fitted = PriceCrossing().fit(recording.history, recording.last)
    betas = [fitted.eviction_probability(market, delta, 0, HOUR_S) for delta in BID_DELTAS]
    table = beta_table(recording.history.series(market), recording.last, BID_DELTAS, HOUR_S)
    assert table == pytest.approx(betas, abs=1e-12)
