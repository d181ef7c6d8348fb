"""Tapes, bills, tables and the oracle, each against something simpler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.backtest.beta_grid import BetaTables
from bidbrain.backtest.bills import settle_all
from bidbrain.backtest.job import Accounting, BacktestJob
from bidbrain.backtest.oracle import clairvoyant_bound
from bidbrain.backtest.price_tape import NEVER, PriceTape
from bidbrain.backtest.run import backtest
from bidbrain.backtest.terminations import EndedAllocations
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.strategies.price_only import OnDemand
from pricing_data.model.billing import EndReason, settle
from pricing_data.model.market import PriceHistory, Series
from pricing_data.model.rules import AWS, AWS_2016, AZURE, GCP
from pricing_data.model.units import HOUR_S, Instant, UsdPerHour
from tests.bidbrain.backtest.scene import MARKETS, NOW, scene
from tests.bidbrain.backtest.test_engine import STRATEGIES, run_scene

END = Instant(NOW + 20 * HOUR_S)


def history(seed: int) -> PriceHistory:
    rng = np.random.default_rng(seed)
    found = {}
    for market in MARKETS:
        times = NOW - HOUR_S + np.cumsum(rng.integers(1, 2000, size=60))
        found[market] = Series(times.astype(np.int64), rng.integers(1, 90_000, size=60) / 1e6)
    return PriceHistory.from_series(found)


# ---- the job ---------------------------------------------------------------------------------------


@given(st.integers(1, 100_000), st.sampled_from([0.1, 0.7, 7.3, 14.4, 48.6, 600.0, 1234.5]))
def test_whole_clocks_are_whole_however_they_are_written(clocks: int, per_clock: float) -> None:
    """5 x 14.4 leaves 14.399999999999999 when it is divided by 14.4."""
    assert BacktestJob(clocks * per_clock, core_seconds_per_clock=per_clock).work == clocks * per_clock
    with pytest.raises(ValueError, match="whole number of clocks"):
        BacktestJob((clocks + 0.5) * per_clock, core_seconds_per_clock=per_clock)


# ---- the tape ------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_a_tape_reads_as_its_series(seed: int) -> None:
    of, rng = history(seed), np.random.default_rng(seed)
    tape = PriceTape.from_history(of, MARKETS, NOW, END)
    market, moment = rng.integers(0, 2, 50), rng.integers(NOW, END + 1, 50)
    level = rng.integers(1, 100_000, 50) / 1e6
    read, above = tape.price_at(market, moment), tape.first_above(market, moment, level)
    for i in range(50):
        series = of.series(MARKETS[market[i]])
        price = series.price_at(Instant(int(moment[i])))
        assert np.isnan(read[i]) if price is None else read[i] == price
        told = (series.times > moment[i]) & (series.times <= END) & (series.prices > level[i])
        assert above[i] == (series.times[told][0] if told.any() else NEVER)


def test_a_market_that_begins_later_has_no_price_before() -> None:
    late = Series(np.array([NOW + 100]), np.array([0.05]))
    tape = PriceTape.from_history(PriceHistory.from_series({MARKETS[0]: late}), MARKETS[:1], NOW, END)
    assert np.isnan(tape.price_at(np.array([0]), np.array([NOW + 99]))).all()
    assert tape.price_at(np.array([0]), np.array([NOW + 100])) == [0.05]


def test_an_empty_window_and_a_market_without_prices_are_errors() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        PriceTape.from_history(history(0), MARKETS, NOW, NOW)
    with pytest.raises(ValueError, match="no price before"):
        PriceTape.from_history(PriceHistory.from_series({}), MARKETS[:1], NOW, END)


# ---- bills ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([AWS_2016, AWS, GCP, AZURE]), st.booleans())
def test_bills_are_the_ledgers_to_the_micro_dollar(seed: int, rules: object, on_demand: bool) -> None:
    assert isinstance(rules, type(AWS))
    of, rng = history(seed), np.random.default_rng(seed)
    tape = PriceTape.from_history(of, MARKETS, NOW, END)
    size, first = 12, max(int(of.series(m).times[0]) for m in MARKETS)
    begins = rng.integers(max(NOW, first), END - 6 * HOUR_S, size)
    ends = begins + rng.choice([0, 1, 59, 61, 3599, 3600, 3601, 7200, 9000, 18_000], size)
    evicted = (rng.random(size) < 0.5) & (not on_demand)
    ended = EndedAllocations(
        job=np.zeros(size, np.int64),
        market=rng.integers(0, 2, size),
        count=rng.integers(1, 5, size),
        bid=np.full(size, np.inf if on_demand else 0.5),
        number=np.arange(1, size + 1),
        requested_at=begins,
        runs_at=begins,
        end=ends,
        evicted=evicted,
        at_finish=~evicted,
    )
    listed = np.array([0.239, 0.1234567 // 1e-6 * 1e-6])
    bills = settle_all(rules, listed, tape, ended, Accounting.LEDGER)
    for i in range(size):
        price = UsdPerHour(round(float(listed[ended.market[i]]), 6))
        prices = price if on_demand else of.series(MARKETS[ended.market[i]])
        kind = EndReason.EVICTED if evicted[i] else EndReason.RELEASED
        charges = settle(rules, prices, Instant(int(begins[i])), Instant(int(ends[i])), kind)
        assert bills.amount[i] == ended.count[i] * sum(charge.amount for charge in charges)
        assert bills.refunded[i] == ended.count[i] * sum(charge.refunded for charge in charges)
        assert bills.paid_s[i] + bills.free_s[i] == ended.count[i] * (ends[i] - begins[i])


# ---- tables --------------------------------------------------------------------------------------


def test_tables_are_exact_at_their_knots_and_between_their_neighbours_elsewhere() -> None:
    of = scene(5)
    fitted = PriceCrossing().fit(of.history.as_of(NOW), NOW)
    tables = BetaTables.from_fitted(fitted, MARKETS, of.setting.limits.bid_deltas)
    codes, age = np.array([0, 1]), np.zeros(2)
    for delta in of.setting.limits.bid_deltas:
        survival, uptime = tables.survival_and_uptime(
            codes, np.full(2, delta), age, np.full(2, float(HOUR_S))
        )
        for code, market in enumerate(MARKETS):
            assert survival[code] == fitted.survival(market, delta, 0.0, HOUR_S)
            assert uptime[code] == fitted.expected_uptime(market, delta, 0.0, HOUR_S)
    deltas, horizons = np.linspace(0, 1, 40), np.full(40, 1500.0)
    survival, _ = tables.survival_and_uptime(np.zeros(40, np.int64), deltas, np.zeros(40), horizons)
    assert (np.diff(survival) >= -1e-12).all(), "a higher bid lives no shorter"
    assert tables.survival_and_uptime(codes, np.full(2, -0.01), age, np.full(2, 60.0))[0].tolist() == [0, 0]


# ---- the oracle ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("accounting", Accounting)
def test_no_strategy_beats_the_oracle(seed: int, accounting: Accounting) -> None:
    of = scene(seed, accounting=accounting)
    found = [run_scene(of, strategy).outcomes for strategy in STRATEGIES]
    horizon_s = np.max([outcomes.finish_s for outcomes in found], axis=0)
    least = clairvoyant_bound(of.setting, of.job, of.tape, of.starts, horizon_s)
    unrefunded = clairvoyant_bound(of.setting, of.job, of.tape, of.starts, horizon_s, refunds=False)
    assert (least <= unrefunded + 1e-9).all()
    for outcomes in found:
        assert (outcomes.cost >= least - 1e-9).all()
        never_refunded = outcomes.free_s == 0
        assert (outcomes.cost >= unrefunded - 1e-9)[never_refunded].all()


def test_where_prices_stand_still_the_oracle_pays_them() -> None:
    """Nothing to know: all cores all along at the one price, but for the grid's last cell."""
    of = scene(0, jobs=3)
    calm = {m: Series(np.array([NOW - HOUR_S]), np.array([0.04])) for m in MARKETS}
    tape = PriceTape.from_history(PriceHistory.from_series(calm), MARKETS, NOW, Instant(of.tape.end))
    plain = replace(of.setting, scaling=replace(of.setting.scaling, phi=1.0))
    seconds = of.job.work / 34.0  # of all cores, the reliable ones included
    least = clairvoyant_bound(plain, of.job, tape, of.starts, np.full(3, seconds))
    assert least == pytest.approx(of.job.work * 0.01 / HOUR_S, rel=0.03)
    assert (least <= of.job.work * 0.01 / HOUR_S).all()


def test_on_demand_alone_bounds_what_cannot_be_had_cheaper() -> None:
    of = scene(0, jobs=3)
    dear = {m: Series(np.array([NOW - HOUR_S]), np.array([5.0])) for m in MARKETS}
    tape = PriceTape.from_history(PriceHistory.from_series(dear), MARKETS, NOW, Instant(of.tape.end))
    found = backtest(OnDemand(32.0), of.setting, of.job, tape, lambda _: of.tables, of.starts).outcomes
    least = clairvoyant_bound(of.setting, of.job, tape, of.starts, found.finish_s)
    assert (least <= found.cost).all()
    assert (least >= 0.5 * found.cost).all()


def test_a_grid_coarser_than_the_start_of_a_machine_is_an_error() -> None:
    of = scene(0)
    quick = replace(of.job, boot_s=0)
    with pytest.raises(ValueError, match="too coarse"):
        clairvoyant_bound(of.setting, quick, of.tape, of.starts, np.full(len(of.starts), 9000.0))
